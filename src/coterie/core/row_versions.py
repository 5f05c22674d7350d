"""Versions of a table with a row for every user, of which a round changes a few rows.

States are values: a round returns a new table and leaves the one before as it was. A copy of the
table in every round would cost what the population costs. Most often nobody refers to the version
before last any more. Its memory then becomes the next version, once the rows that changed in
between are brought up to date: the cost is that of the rows that change.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from coterie.core.weak_cache import WeakCache
from coterie.types import Ints, Longs

SMALL = 1 << 24
"""Bytes of a table that is copied. It takes a millisecond, and the memory is not used twice."""

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Before:
    """The version before another one."""

    table: np.ndarray
    changed: Ints | Longs
    """Rows in which the later version may differ."""


def _references(before: _Before) -> int:
    """References to the table of a version, with those of this question."""
    return sys.getrefcount(before.table)


UNSHARED = _references(_Before(np.empty(0), np.empty(0, np.int64)))
"""References to a table that nobody else has. Versions of Python count differently."""
_before = WeakCache()
"""The memory of a version -> the version before it."""


def next_version(table: NDArray[Scalar], rows: Ints | Longs) -> NDArray[Scalar]:
    """A copy of a table, in which the caller may write these rows and no others.

    Rows may repeat. The table itself does not change while anything refers to it.
    """
    owner = _owner(table)
    if table.nbytes < SMALL or len(rows) > len(table) // 2 or owner is None:
        return table.copy()
    after = _reused(owner)
    if after is None:
        after = owner.copy()
    _before.put(after, _Before(owner, rows))
    # A view: every reference to the version is then counted as one to its memory.
    return after.view()


def _owner(table: NDArray[Scalar]) -> NDArray[Scalar] | None:
    """The array that holds the memory of a table, if it holds this table and nothing else."""
    owner = table if table.base is None else table.base
    same = isinstance(owner, np.ndarray) and owner.shape == table.shape
    whole = same and owner.dtype == table.dtype and owner.strides == table.strides
    return owner if whole else None


def _reused(owner: NDArray[Scalar]) -> NDArray[Scalar] | None:
    """The memory of the version before, brought up to date; None if somebody may read it."""
    before: _Before | None = _before.get(owner)
    if before is None:
        return None
    _before.forget(owner)
    # NumPy's views refer to the array that holds the memory, whatever they were made from.
    if _references(before) > UNSHARED:
        return None
    table: NDArray[Scalar] = before.table
    table[before.changed] = owner[before.changed]
    return table
