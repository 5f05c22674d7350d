"""Small random histories as the arrays that kernels take, read-only like those from Ray."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.types import Floats, Ints, Longs


def locked(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@dataclass(frozen=True)
class SmallData:
    """Histories as lists, and the same as flat arrays."""

    histories: list[list[int]]
    users: Ints
    items: Ints
    offsets: Longs
    n_items: int

    @property
    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.users.tolist(), self.items.tolist(), strict=True))

    @property
    def seen(self) -> list[set[int]]:
        return [set(h) for h in self.histories]

    @classmethod
    def of(cls, histories: list[list[int]], n_items: int) -> SmallData:
        counts = [len(h) for h in histories]
        return cls(
            histories,
            locked(np.repeat(np.arange(len(histories)), counts).astype(np.int32)),
            locked(np.array([i for h in histories for i in sorted(h)], np.int32)),
            locked(np.cumsum([0, *counts]).astype(np.int64)),
            n_items,
        )


def small_data(seed: int, n_users: int = 9, n_items: int = 14) -> SmallData:
    """Random histories; the last user has every item, the one before none."""
    rng = np.random.default_rng(seed)
    some = [
        rng.permutation(n_items)[: rng.integers(1, n_items)].tolist() for _ in range(n_users - 2)
    ]
    return SmallData.of([sorted(h) for h in some] + [[], list(range(n_items))], n_items)


def rows(seed: int, n: int, d: int, scale: float = 0.5) -> Floats:
    return np.random.default_rng([seed, n]).normal(0, scale, (n, d)).astype(np.float32)
