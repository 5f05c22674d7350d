"""Sums by user and item over rounds; memory grows with the pairs touched, not users times items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.types import Ints, Longs


class Ledger:
    """Columns of sums by key. New entries are merged once there are more of them than old ones."""

    def __init__(self, n_columns: int) -> None:
        self._keys: list[Longs] = [np.empty(0, np.int64)]
        self._columns: list[list[Ints]] = [[np.empty(0, np.int32)] for _ in range(n_columns)]

    def add(self, keys: Longs, values: Sequence[Ints]) -> None:
        """Add values to keys, one array per column. A key is user * n_items + item."""
        self._keys.append(keys)
        for column, new in zip(self._columns, values, strict=True):
            column.append(new)
        if sum(map(len, self._keys[1:])) > len(self._keys[0]):
            self.totals()

    def totals(self) -> tuple[Longs, list[Ints]]:
        """The distinct keys, ascending, and the sums of each column."""
        if len(self._keys) > 1:
            keys = np.concatenate(self._keys)
            order = np.argsort(keys, kind="stable")
            keys = keys[order]
            starts = np.flatnonzero(np.diff(keys, prepend=-1))
            self._keys = [keys[starts]]
            self._columns = [
                [_sums(np.concatenate(column)[order], starts)] for column in self._columns
            ]
        return self._keys[0], [column[0] for column in self._columns]


def _sums(values: Ints, starts: Longs) -> Ints:
    return np.add.reduceat(values, starts) if len(starts) else values
