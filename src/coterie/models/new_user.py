"""Fits the row of a new user, with all other parameters frozen.

With item rows frozen, y_i = x_i . p + b_i is linear in the user's row p, and binary cross-entropy
with a ridge is convex: Newton's method finds the optimal p in a few steps. All unseen items are
negatives, each with the expected weight of drawing `negatives` of them per positive. Nothing is
drawn at random, and no round is needed.
"""

from __future__ import annotations

import numpy as np

from coterie.types import Doubles, Floats, Ints

MAX_STEPS = 25
TOLERANCE = 1e-8


def fit_row(
    features: Floats, bias: Floats | float, history: Ints, negatives: int, reg: float
) -> Floats:
    """The row p (d,) of a user with the items `history`, given x (items, d) and b."""
    X = features.astype(np.float64)
    target, weight = targets_and_weights(len(X), history, negatives)
    ridge = reg * weight.sum()  # training regularises the row at every sample
    p = np.zeros(X.shape[1])
    for _ in range(MAX_STEPS):
        y = np.exp(-np.logaddexp(0, -(X @ p + bias)))  # the sigmoid, without overflow
        gradient = X.T @ (weight * (y - target)) + ridge * p
        curvature = (X * (weight * y * (1 - y))[:, None]).T @ X + (ridge + 1e-9) * np.eye(len(p))
        step = np.linalg.solve(curvature, gradient)
        # Limit the step, because full Newton steps may overshoot far from the optimum.
        p -= step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < TOLERANCE:
            break
    return p.astype(np.float32)


def targets_and_weights(n_items: int, history: Ints, negatives: int) -> tuple[Doubles, Doubles]:
    """Target and weight of every item."""
    target = np.zeros(n_items)
    target[history] = 1
    unseen = n_items - int(target.sum())
    weight = np.where(target > 0, 1.0, negatives * target.sum() / max(unseen, 1))
    return target, weight
