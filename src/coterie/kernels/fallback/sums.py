"""Integer sums of updates over users, item by item, and the check that every update may enter them."""

from __future__ import annotations

import numpy as np

from coterie.types import NOT_FINITE, SCALE, TOO_LARGE, Bools, Floats, Ints, Longs

FINE = 0
UNKNOWN_ITEM = 1
REPEATED_ITEM = 2
OUT_OF_RANGE = 3
NOT_A_NUMBER = 4


def by_samples(
    offsets: Longs,
    items: Ints,
    rows: Ints,
    samples: Longs,
    low: int,
    high: int,
    total: Longs,
    touched: Longs,
) -> None:
    """For items low..high: total += n_k q_k, touched += n_k of those who sent the row."""
    here = _within(items, low, high)
    n = np.repeat(samples, np.diff(offsets))[here]
    _add(total, items[here], n[:, None] * rows[here])
    _add(touched, items[here], n)


def by_change(
    offsets: Longs, items: Ints, rows: Ints, low: int, high: int, total: Longs, weight: Longs
) -> None:
    """For items low..high: total += |q| q, weight += |q|, component by component."""
    here = _within(items, low, high)
    q = rows[here].astype(np.int64)
    _add(total, items[here], np.abs(q) * q)
    _add(weight, items[here], np.abs(q))


def move(before: Floats, total: Longs, weight: Longs, low: int, high: int, after: Floats) -> None:
    """Rows low..high: after = before + total / weight, out of fixed point; a weight is one for a row or for a component."""
    here = slice(low, high)
    after[here] = before[here] + total[here] / np.maximum(weight[here], 1) / SCALE


def check(
    offsets: Longs,
    items: Ints,
    item_rows: Ints,
    user_rows: Ints,
    dense: Ints,
    n_items: int,
    first: int,
    last: int,
    faults: np.ndarray,
) -> None:
    """faults[k] for users first..last: items exist and ascend, entries are numbers within range."""
    for k in range(first, last):
        mine = slice(offsets[k], offsets[k + 1])
        faults[k] = _fault_of_items(items[mine].astype(np.int64), n_items) or max(
            _worst(item_rows[mine]), _worst(user_rows[k]), _worst(dense[k])
        )


def _within(items: Ints, low: int, high: int) -> Longs:
    return np.flatnonzero((items >= low) & (items < high))


def _add(total: Longs, items: Ints, values: Longs) -> None:
    """total[i] += the values of item i, all at once."""
    order = np.argsort(items, kind="stable")
    distinct, begins = np.unique(items[order], return_index=True)
    if len(distinct):
        total[distinct] += np.add.reduceat(values[order], begins, axis=0)


def _fault_of_items(items: Longs, n_items: int) -> int:
    """What is wrong with the first item that is wrong."""
    unknown: Bools = (items < 0) | (items >= n_items)
    wrong = np.flatnonzero(unknown | (np.diff(items, prepend=-1) <= 0))
    if not len(wrong):
        return FINE
    return UNKNOWN_ITEM if unknown[wrong[0]] else REPEATED_ITEM


def _worst(entries: Ints) -> int:
    lowest = entries.min(initial=0)
    highest = entries.max(initial=0)
    if lowest == NOT_FINITE:
        return NOT_A_NUMBER
    return OUT_OF_RANGE if highest >= TOO_LARGE or lowest <= -TOO_LARGE else FINE
