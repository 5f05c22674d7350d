"""Sums over groups of clients, without the extreme groups.

A cohort is split at random into groups, which are summed as any cohort is; under secure
aggregation, its groups are taken. Of each component, the `cut` groups with the smallest and the
largest sum by client do not count, and the others count for them. Where the components of a row
make sense only together, the 2 `cut` groups do not count whose row is farthest from the median.
Hostile clients have to be in more than `cut` groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core import streams
from coterie.federated.federation import AnyWorld, SecureSum, Sums
from coterie.federated.robust.trimming import central_sum, trimmed_sum
from coterie.types import Longs

GROUPS = 10
FEWEST_GROUPS = 3
TRIMMED = 0.3


def assign(n: int, seed: int, t: int) -> list[Longs]:
    """Groups of about the same size, as positions in the cohort, ascending."""
    order = streams.at(seed, "robust groups", t).permutation(n)
    return [np.sort(part) for part in np.array_split(order, min(GROUPS, n))]


def too_few_groups(world: AnyWorld, n_groups: int) -> bool:
    """Whether a round cannot tell which of its groups are extreme."""
    return world.settings.robust == "groups" and n_groups < FEWEST_GROUPS


def without_extremes(tables: SecureSum, parts: Sequence[Sums], n_clients: Sequence[int]) -> Sums:
    """The sums of groups as one; `n_clients` of each group."""
    cut = max(int(TRIMMED * len(parts)), 1)
    sizes = np.array(n_clients)
    robust_sum = central_sum if tables.whole_rows else trimmed_sum
    return {
        name: robust_sum(np.stack([part[name] for part in parts]), sizes, cut) for name in parts[0]
    }
