"""A row for a person who was never in training: what training would give them with everybody else's rows frozen.

With item rows frozen, y_i = x_i . p + b_i is linear in the person's row p, and binary cross-entropy with its ridge is
convex: Newton's method finds the one best p in a few steps. Unseen items all count as negatives, each with the weight
that drawing `negatives` of them for every positive gives it on average: nothing is drawn, and no round is needed.
"""

from __future__ import annotations

import numpy as np

from coterie.types import Doubles, Floats, Ints

STEPS = 25
ENOUGH = 1e-8


def fit_row(
    features: Floats, bias: Floats | float, history: Ints, negatives: int, reg: float
) -> Floats:
    """The row p (d,) of somebody who chose `history`, given x (items, d) and b."""
    X = features.astype(np.float64)
    target, weight = weigh(len(X), history, negatives)
    ridge = reg * weight.sum()  # training regularises the row at every sample
    p = np.zeros(X.shape[1])
    for _ in range(STEPS):
        y = np.exp(-np.logaddexp(0, -(X @ p + bias)))  # the sigmoid, without overflow
        gradient = X.T @ (weight * (y - target)) + ridge * p
        curvature = (X * (weight * y * (1 - y))[:, None]).T @ X + (ridge + 1e-9) * np.eye(len(p))
        step = np.linalg.solve(curvature, gradient)
        p -= step / max(
            1.0, float(np.abs(step).max())
        )  # far from the optimum whole steps may overshoot
        if np.abs(step).max() < ENOUGH:
            break
    return p.astype(np.float32)


def weigh(n_items: int, history: Ints, negatives: int) -> tuple[Doubles, Doubles]:
    """Target and weight of every item."""
    target = np.zeros(n_items)
    target[history] = 1
    unseen = n_items - int(target.sum())
    weight = np.where(target > 0, 1.0, negatives * target.sum() / max(unseen, 1))
    return target, weight
