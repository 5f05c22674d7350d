"""Sums over groups of clients, without the extreme groups.

A cohort is split at random into groups, which are summed as any cohort is, also by secure
aggregation. Of each component, the sums of the `cut` smallest and largest groups do not count, and
those of the others count for them. Hostile clients have to be in more than `cut` groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core import streams
from coterie.federated.federation import Sums
from coterie.federated.robust.trimming import trimmed_sum
from coterie.types import Longs

GROUPS = 10
FEWEST_GROUPS = 3
TRIMMED = 0.3


def assign(n: int, seed: int, t: int) -> list[Longs]:
    """Groups of about the same size, as positions in the cohort, ascending."""
    order = streams.at(seed, "robust groups", t).permutation(n)
    return [np.sort(part) for part in np.array_split(order, min(GROUPS, n))]


def without_extremes(parts: Sequence[Sums]) -> Sums:
    """The sums of groups as one."""
    cut = int(TRIMMED * len(parts)) if len(parts) >= FEWEST_GROUPS else 0
    cut = max(cut, int(len(parts) >= FEWEST_GROUPS))
    return {name: trimmed_sum(np.stack([part[name] for part in parts]), cut) for name in parts[0]}
