"""GMF trained by every user of a cohort on its own copy, batch by batch with SGD or Adam."""

from __future__ import annotations

import numpy as np

from coterie.kernels.fallback.quantise import quantised_change
from coterie.types import Floats, Ints, Longs

DECAY1 = np.float32(0.9)
DECAY2 = np.float32(0.999)
EPSILON = np.float32(1e-8)


class Copy:
    """A parameter as a device has it: its values and, for Adam, two moments of its gradient."""

    def __init__(self, values: Floats) -> None:
        self.values = values.copy()
        self.mean = np.zeros_like(values)
        self.square = np.zeros_like(values)

    def move(
        self,
        gradients: Floats,
        rate: float,
        by_adam: bool,
        t: int,
        rows: Ints | slice = slice(None),
    ) -> None:
        """One step, number t = 1, 2, ..., on all of it or on some rows."""
        if by_adam:
            self.mean[rows] = DECAY1 * self.mean[rows] + np.float32(0.1) * gradients
            self.square[rows] = DECAY2 * self.square[rows] + np.float32(0.001) * gradients**2
            mean = self.mean[rows] / np.float32(1 - 0.9**t)
            gradients = mean / (np.sqrt(self.square[rows] / np.float32(1 - 0.999**t)) + EPSILON)
        self.values[rows] -= np.float32(rate) * gradients


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
    rate: float,
    reg: float,
    batch_size: int,
    by_adam: bool,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Users first..last of a cohort; each starts from the same item rows and `dense` (the output layer, then the bias)."""
    for k in range(first, last):
        mine = slice(starts[k], starts[k + 1])
        touched = slice(offsets[k], offsets[k + 1])
        before = user_rows[k], item_rows[items[touched]], dense
        p, q, h = (Copy(values) for values in before)
        for t, begin in enumerate(range(mine.start, mine.stop, batch_size), 1):
            batch = slice(begin, min(begin + batch_size, mine.stop))
            step(p, q, h, samples[batch], targets[batch], squared, rate, reg, by_adam, t)
        user_deltas[k] = quantised_change(p.values, before[0])
        item_deltas[touched] = quantised_change(q.values, before[1])
        dense_deltas[k] = quantised_change(h.values, before[2])


def step(
    p: Copy,
    q: Copy,
    h: Copy,
    places: Ints,
    targets: Floats,
    squared: bool,
    rate: float,
    reg: float,
    by_adam: bool,
    t: int,
) -> None:
    """One batch: the mean over its samples of the loss, plus reg / 2 (|p|^2 + |q|^2) for each; writes p, q and h."""
    user = p.values.copy()
    rows = q.values[places]
    output = h.values[:-1].copy()
    touched, which = np.unique(places, return_inverse=True)
    row_gradients = np.zeros((len(touched), len(user)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # who diverges is refused by the server
        y = (rows * (output * user)).sum(axis=1) + h.values[
            -1
        ]  # no BLAS: its bits change with the number of threads
        gradients = ((y if squared else 1 / (1 + np.exp(-y))) - targets)[:, None] / np.float32(
            len(places)
        )
        np.add.at(
            row_gradients, which, gradients * output * user + np.float32(reg / len(places)) * rows
        )
        by_item = (gradients * rows).sum(axis=0)
        p.move(by_item * output + np.float32(reg) * user, rate, by_adam, t)
        q.move(row_gradients, rate, by_adam, t, touched)
        h.move(np.append(by_item * user, gradients.sum()), rate, by_adam, t)
