"""What a solved vector says about the history it was solved from (FedALS).

x solves (Y^T Y + ridge I + alpha sum y_i y_i^T) x = (1 + alpha) sum y_i over a history. A server
that knows x and Y reads this the other way round. It is linear in the history p, zeros and ones:

    sum_i p_i w_i y_i = Y^T Y x + ridge x        w_i = 1 + alpha - alpha x . y_i

The ridge depends on the length of the history, which no server knows, so the part of the equations
along x is dropped: d - 1 of d equations remain. They are multiplied by (Y^T Y)^(-1/2), in which
directions all items differ, not only popular from other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.types import SCALE, Doubles, Floats

FLOOR = 0.01
"""Smallest share of the mean eigenvalue of Y^T Y that directions are divided by."""
DEVIATIONS = 4.0
"""Standard deviations of the rounding of x that equations may be off by."""


class Equations(NamedTuple):
    """columns p = right up to `tolerance`, for a history p."""

    columns: Doubles  # (equations, items)
    right: Doubles  # (equations,)
    tolerance: float

    @classmethod
    def joined(cls, parts: Sequence[Equations]) -> Equations:
        """The equations of several rounds: the same history, other items Y."""
        return cls(
            np.concatenate([part.columns for part in parts]),
            np.concatenate([part.right for part in parts]),
            max(part.tolerance for part in parts),
        )


class Whitened(NamedTuple):
    """The items of a round, with what is needed of them for every user."""

    Y: Doubles  # (items, d)
    gram: Doubles  # Y^T Y
    root: Doubles  # (Y^T Y)^(-1/2)
    largest: float
    """Eigenvalue of Y^T Y."""


def whiten(item_rows: Floats | Doubles) -> Whitened:
    Y = item_rows.astype(np.float64)
    gram = Y.T @ Y
    values, vectors = np.linalg.eigh(gram)
    root = (vectors / np.sqrt(values + FLOOR * values.mean())) @ vectors.T
    return Whitened(Y, gram, root, float(values[-1]))


def equations(items: Whitened, x: Doubles, alpha: float) -> Equations:
    """What x says about the history it was solved from."""
    weights = 1 + alpha - alpha * (items.Y @ x)
    columns = items.root @ (items.Y * weights[:, None]).T
    right = items.root @ (items.gram @ x)
    along = items.root @ x
    along /= np.linalg.norm(along) or 1.0
    # x is rounded to half a unit either way; the system is at most (1 + alpha) Y^T Y and a ridge.
    deviation = (1 + alpha) * np.sqrt(items.largest / 12) / SCALE
    return Equations(
        columns - np.outer(along, along @ columns),
        right - along * (along @ right),
        float(DEVIATIONS * deviation),
    )
