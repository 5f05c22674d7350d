"""Histories that explain solved vectors: sparse solutions p of `solved_vectors.Equations`.

Orthogonal matching pursuit (Pati, Rezaiifar, Krishnaprasad 1993) adds the item that explains most
of what is left. Basis pursuit (Chen, Donoho, Saunders 1998) solves a linear program. Its bounds
0 <= p <= 1 count: about half as many equations as candidates are enough for a history.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.attacks.solved_vectors import Equations
from coterie.types import Doubles, Longs

EXPLAINED = 1e-3
"""Share of the right side that may be left when matching pursuit ends."""
LIKED = 0.5
"""Scores x . y above this are likely of liked items: those are fitted to 1, others to 0."""


def matching_pursuit(systems: Sequence[Equations], most: int) -> Longs:
    """(users, most) the items that each user's history is made of, in the order they were found.

    -1 where nothing is left to explain. All users are searched at once; each has as many equations.
    """
    columns = np.stack([system.columns for system in systems])  # (users, equations, items)
    left = np.stack([system.right for system in systems])
    enough = EXPLAINED * np.linalg.norm(left, axis=1)
    lengths = np.maximum(np.linalg.norm(columns, axis=1), 1e-12)
    users = np.arange(len(systems))
    found = np.full((len(systems), most), -1)
    basis = np.zeros((len(systems), most, left.shape[1]))
    open_items = np.ones(lengths.shape, bool)
    for step in range(min(most, left.shape[1])):
        active = np.linalg.norm(left, axis=1) > enough
        if not active.any():
            break
        gain = np.einsum("ue,uei->ui", left, columns) / lengths
        item = np.where(open_items, gain, -np.inf).argmax(axis=1)
        direction = columns[users, :, item]
        for _ in range(2):  # twice, for rounding
            along = np.einsum("ube,ue->ub", basis, direction)
            direction = direction - np.einsum("ub,ube->ue", along, basis)
        length = np.linalg.norm(direction, axis=1)
        unit = direction / np.maximum(length, 1e-12)[:, None] * active[:, None]
        left = left - unit * np.einsum("ue,ue->u", unit, left)[:, None]
        basis[:, step] = unit
        found[active, step] = item[active]
        open_items[users[active], item[active]] = False
    return found


def basis_pursuit(system: Equations, scores: Doubles, known: Longs | None = None) -> Doubles | None:
    """(items,) the history p between 0 and 1 that fits, with the best scores; None if none does.

    `scores` are x . y. `known` are items of the history.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    least = np.zeros(len(scores))
    if known is not None:
        least[known] = 1
    fits = LinearConstraint(
        system.columns, system.right - system.tolerance, system.right + system.tolerance
    )
    found = milp(LIKED - scores, bounds=Bounds(least, 1), constraints=fits)
    return None if found.x is None else np.asarray(found.x, np.float64)
