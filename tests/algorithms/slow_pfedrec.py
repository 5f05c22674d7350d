"""PFedRec once more, slow and obvious: whole tables on every client, in double precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from drawn_batches import Batch


class Client(NamedTuple):
    """What a client has: a score function, and an item table of its own."""

    w: np.ndarray  # (d,)
    b: float
    q: np.ndarray  # (items, d)

    def scores(self) -> np.ndarray:
        return self.q @ self.w + self.b


def client_update(client: Client, batches: list[Batch], rate: float, item_rate: float) -> Client:
    """Both steps of every batch; `client.q` is the table as the server sent it."""
    w = client.w.copy()
    b = client.b
    q = client.q.copy()
    for batch in batches:
        items = [item for item, _ in batch]
        targets = np.array([target for _, target in batch])
        error = 1 / (1 + np.exp(-(q[items] @ w + b))) - targets
        w = w - rate * (error @ q[items]) / len(batch)
        b = b - rate * error.mean()
        error = 1 / (1 + np.exp(-(q[items] @ w + b))) - targets
        gradient = np.zeros_like(q)
        for item, of_item in zip(items, error, strict=True):
            gradient[item] += of_item * w / len(batch)
        q = q - item_rate * gradient
    return Client(w, b, q)


def aggregate(tables: list[np.ndarray]) -> np.ndarray:
    return sum(tables) / len(tables)


def aggregate_touched(
    before: np.ndarray, tables: list[np.ndarray], touched: list[set[int]]
) -> np.ndarray:
    """Every row as the mean over the clients that trained on it."""
    after = before.copy()
    for item in range(len(before)):
        of_item = [q[item] for q, items in zip(tables, touched, strict=True) if item in items]
        if of_item:
            after[item] = sum(of_item) / len(of_item)
    return after
