"""A slow CoLR: a round as the paper writes it, client by client, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np

Sample = tuple[int, float]


def local_training(
    p: np.ndarray, Q: np.ndarray, B: np.ndarray, samples: list[Sample], s: Any
) -> tuple[np.ndarray, np.ndarray]:
    """The client's row, and its A, which has a row for every item."""
    A = np.zeros((len(Q), len(B)))
    for begin in range(0, len(samples), s.batch_size):
        batch = samples[begin : begin + s.batch_size]
        rows = Q + A @ B
        by_user = []
        by_item: dict[int, list[np.ndarray]] = {}
        for item, target in batch:
            e = 1 / (1 + np.exp(-p @ rows[item])) - target
            by_user.append(e * rows[item])
            by_item.setdefault(item, []).append(e * p)
        for item, gradients in by_item.items():
            gradient = np.mean(gradients, axis=0) + s.reg * rows[item]
            # The derivative by A of a loss of A B, in the authors' code shortened.
            by_A = B @ gradient
            if s.scaled_steps:
                by_A = by_A * np.sqrt(len(B) / B.shape[1])
            A[item] -= s.learning_rate * by_A
        p = p - s.learning_rate * (np.mean(by_user, axis=0) + s.reg * p)
    return p, A


def server_step(
    Q: np.ndarray,
    B: np.ndarray,
    sent: list[np.ndarray],
    samples: list[list[Sample]],
    average: str,
) -> np.ndarray:
    """Q after the clients' A, by their numbers on each item or by the whole cohort."""
    total = np.sum(sent, axis=0)
    trained_on = [{item for item, _ in own} for own in samples]
    for item in range(len(Q)):
        n = sum(item in items for items in trained_on) if average == "touched" else len(sent)
        total[item] /= max(n, 1)
    after: np.ndarray = Q + total @ B
    return after
