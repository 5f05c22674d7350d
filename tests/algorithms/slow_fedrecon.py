"""A slow, obvious twin of FedRecon: one client and one batch at a time, in double precision.

Gradients are central differences of the loss of a batch, so that no derivative is written twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

Sample = tuple[int, float]
STEP = 1e-6


def predicted(local: np.ndarray, row: np.ndarray, biases: bool) -> float:
    """p . q + b_u + b_i, or p . q"""
    if not biases:
        return float(local @ row)
    return float(local[:-1] @ row[:-1] + local[-1] + row[-1])


def loss(y: float, target: float, rated: bool) -> float:
    """Half the squared error, or cross-entropy of a logit."""
    return (y - target) ** 2 / 2 if rated else float(np.logaddexp(0, y)) - target * y


def batches(samples: list[Sample], size: int, most: int) -> Iterator[list[Sample]]:
    whole = (samples[at : at + size] for at in range(0, len(samples), size))
    return islice(whole, most or None)


def gradient(cost: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    found = np.zeros_like(at)
    for place in np.ndindex(*at.shape):
        shift = np.zeros_like(at)
        shift[place] = STEP
        found[place] = (cost(at + shift) - cost(at - shift)) / (2 * STEP)
    return found


def reconstruct(samples: list[Sample], start: np.ndarray, g: np.ndarray, s: Any, rated: bool):
    """R: SGD on the local row, item rows frozen."""
    local = start.astype(float)
    for batch in batches(samples, s.batch_size, s.reconstruction_steps):

        def cost(row: np.ndarray, batch: list[Sample] = batch) -> float:
            fit = [loss(predicted(row, g[i], s.biases), r, rated) for i, r in batch]
            return float(np.mean(fit)) + s.reg / 2 * float(row @ row)

        local = local - s.reconstruction_rate * gradient(cost, local)
    return local


def update(samples: list[Sample], local: np.ndarray, g: np.ndarray, s: Any, rated: bool):
    """U: SGD on a copy of the item rows, local row frozen."""
    own = g.astype(float)
    for batch in batches(samples, s.batch_size, s.update_steps):

        def cost(rows: np.ndarray, batch: list[Sample] = batch) -> float:
            fit = [loss(predicted(local, rows[i], s.biases), r, rated) for i, r in batch]
            size = [s.reg / 2 * float(rows[i] @ rows[i]) for i, _ in batch]
            return float(np.mean(fit) + np.mean(size))

        own = own - s.learning_rate * gradient(cost, own)
    return own


def server_update(
    g: np.ndarray, copies: list[np.ndarray], touched: list[set[int]], n: list[int], s: Any
) -> np.ndarray:
    """g + eta sum_i (n_i / n) (g_i - g); per row over the clients that touched it, if so set."""
    after = g.astype(float)
    for item in range(len(g)):
        counted = [k for k in range(len(n)) if s.average == "all" or item in touched[k]]
        total = sum(n[k] for k in counted)
        for k in counted:
            after[item] += s.server_learning_rate * n[k] / total * (copies[k][item] - g[item])
    return after
