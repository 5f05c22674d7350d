"""A Little Is Enough: all colluders shift their updates by a little, and by the same.

Baruch, Baruch, Goldberg. A little is enough: circumventing defenses for distributed learning.
NeurIPS 2019:

    mu_j, sigma_j    mean and standard deviation of the colluders' honest updates, by coordinate
    send             mu_j - z sigma_j

z is small enough that the shifted value is still within the spread of honest clients.

Deviations: z is a setting; the paper derives it from the number of clients, which a colluder here
does not know. Item rows are sparse: mu and sigma of a row are over the colluders that have it, and
a colluder sends the rows that it has. A colluder that is alone is honest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.item_updates import limited
from coterie.attacks.poisoning.surface import needs_numbers
from coterie.types import Doubles, Ints, Updates


class ALIE(AttackSettings):
    z: float = Field(1.5, gt=0)
    """Standard deviations by which updates are shifted."""


def poison(view: AttackView, settings: ALIE) -> Updates:
    honest = view.honest
    rows = shifted(honest.items, honest.item_rows, view.world.n_items, settings.z)
    all_the_same = np.zeros(len(honest), np.int32)
    dense = shifted(all_the_same, honest.dense, 1, settings.z)
    return replace(
        honest, item_rows=limited(rows[honest.items]), dense=limited(dense[all_the_same])
    )


def shifted(groups: Ints, rows: Ints, n: int, z: float) -> Doubles:
    """(n, width) mu - z sigma over the rows of every group."""
    counts = np.maximum(np.bincount(groups, minlength=n), 1)[:, None]
    mean = np.zeros((n, rows.shape[1]))
    np.add.at(mean, groups, rows)
    mean /= counts
    variance = np.zeros_like(mean)
    np.add.at(variance, groups, (rows - mean[groups]) ** 2)
    return mean - z * np.sqrt(variance / counts)


ALIE_ATTACK = AttackKind(
    summary="the colluders' mean update, shifted by z standard deviations",
    settings=ALIE,
    poison=poison,
    paper="Baruch et al. 2019",
    refusal=needs_numbers,
)
