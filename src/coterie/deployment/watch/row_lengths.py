"""The item with the longest row. Honest training leaves no item far ahead of all others.

A row that promotes its item has to be long: the score of an item grows with its length. An attack
in the first rounds, while exposures still change, shows here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.deployment.watch.exposure import ItemVectors

LEAD = 1.4
"""Times the second longest row from which an item is conspicuous."""


class Leader(NamedTuple):
    item: int
    lead: float
    """Length of its row, in lengths of the second longest one."""


def leader(table: ItemVectors) -> Leader | None:
    """The item with the longest row; None where there is nothing to compare it with."""
    lengths = np.sqrt(np.einsum("ij,ij->i", table.rows, table.rows))
    if len(lengths) < 2:
        return None
    second, first = np.argpartition(lengths, -2)[-2:].tolist()
    if lengths[second] <= 0:
        return None
    return Leader(first, float(lengths[first] / lengths[second]))
