"""GMF trained by every user of a cohort on a local copy, in batches with SGD or Adam."""

from __future__ import annotations

import numpy as np

from coterie.kernels.fallback.quantise import quantised_change
from coterie.kernels.fallback.sums import FINE, OUT_OF_RANGE
from coterie.types import TOO_LARGE, Floats, Ints, Longs

DECAY1 = np.float32(0.9)
DECAY2 = np.float32(0.999)
EPSILON = np.float32(1e-8)


class UserCopy:
    """One user's copy of a parameter, with Adam's two moments of its gradient."""

    def __init__(self, values: Floats) -> None:
        self.values = values.copy()
        self.mean = np.zeros_like(values)
        self.square = np.zeros_like(values)

    def step(
        self,
        gradients: Floats,
        learning_rate: float,
        by_adam: bool,
        t: int,
        rows: Ints | slice = slice(None),
    ) -> None:
        """Take step t = 1, 2, ... on all rows or on some."""
        if by_adam:
            self.mean[rows] = DECAY1 * self.mean[rows] + np.float32(0.1) * gradients
            self.square[rows] = DECAY2 * self.square[rows] + np.float32(0.001) * gradients**2
            mean = self.mean[rows] / np.float32(1 - 0.9**t)
            gradients = mean / (np.sqrt(self.square[rows] / np.float32(1 - 0.999**t)) + EPSILON)
        self.values[rows] -= np.float32(learning_rate) * gradients


def train(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    user_rows: Floats,
    item_rows: Floats,
    dense: Floats,
    squared: bool,
    learning_rate: float,
    reg: float,
    batch_size: int,
    by_adam: bool,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
    total: Longs,
    faults: np.ndarray,
) -> None:
    """Train users first..last of a cohort. Writes their changes in fixed point.

    Each user starts from the same item rows and `dense` (the output layer, then the bias). User k
    trains on samples[starts[k]:starts[k + 1]], which are positions in items[offsets[k]:].
    Where `total` has rows, changes of item rows are added to it instead, times the number of
    samples, and faults[k] says what validation would find in them.
    """
    for k in range(first, last):
        end = starts[k + 1]
        touched = slice(offsets[k], offsets[k + 1])
        rows_before = item_rows[items[touched]]
        p = UserCopy(user_rows[k])
        q = UserCopy(rows_before)
        h = UserCopy(dense)
        for t, begin in enumerate(range(starts[k], end, batch_size), 1):
            batch = slice(begin, min(begin + batch_size, end))
            step(p, q, h, samples[batch], targets[batch], squared, learning_rate, reg, by_adam, t)
        user_deltas[k] = quantised_change(p.values, user_rows[k])
        changes = quantised_change(q.values, rows_before)
        if len(total):
            # Items of a user are distinct.
            total[items[touched]] += (end - starts[k]) * changes.astype(np.int64)
            too_large = np.abs(changes.astype(np.int64)).max(initial=0) >= TOO_LARGE
            faults[k] = OUT_OF_RANGE if too_large else FINE
        else:
            item_deltas[touched] = changes
        dense_deltas[k] = quantised_change(h.values, dense)


def step(
    p: UserCopy,
    q: UserCopy,
    h: UserCopy,
    places: Ints,
    targets: Floats,
    squared: bool,
    learning_rate: float,
    reg: float,
    by_adam: bool,
    t: int,
) -> None:
    """One step on a batch. Writes p, q and h.

    The loss is the mean over the samples, each with reg / 2 (|p|^2 + |q|^2).
    """
    user = p.values.copy()
    rows = q.values[places]
    output = h.values[:-1].copy()
    touched, which = np.unique(places, return_inverse=True)
    row_gradients = np.zeros((len(touched), len(user)), np.float32)
    n = np.float32(len(places))
    shrink = np.float32(reg / len(places))
    # The update of a user who diverges is rejected by the server.
    with np.errstate(over="ignore", invalid="ignore"):
        # Without BLAS, whose bits change with the number of threads.
        y = (rows * (output * user)).sum(axis=1) + h.values[-1]
        predictions = y if squared else 1 / (1 + np.exp(-y))
        gradients = (predictions - targets)[:, None] / n
        np.add.at(row_gradients, which, gradients * output * user + shrink * rows)
        by_item = (gradients * rows).sum(axis=0)
        p.step(by_item * output + np.float32(reg) * user, learning_rate, by_adam, t)
        q.step(row_gradients, learning_rate, by_adam, t, touched)
        h.step(np.append(by_item * user, gradients.sum()), learning_rate, by_adam, t)
