"""Integer sums of updates over users, item by item, and the validation of each update."""

from __future__ import annotations

import numpy as np

from coterie.kernels.fallback.norms import squared
from coterie.types import NOT_FINITE, SCALE, TOO_LARGE, Doubles, Floats, Ints, Longs

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
    """For items low..high: total += n_k q_k, touched += n_k over the users k that sent the row."""
    within = _within(items, low, high)
    n = np.repeat(samples, np.diff(offsets))[within]
    _add(total, items[within], n[:, None] * rows[within])
    _add(touched, items[within], n)


def by_change(
    offsets: Longs,
    items: Ints,
    rows: Ints,
    samples: Longs,
    n_by_change: int,
    low: int,
    high: int,
    total: Longs,
    weight: Longs,
) -> None:
    """ActvAGG for items low..high: total += |q| q, weight += |q|, component by component.

    Components from `n_by_change` on are weighed by n_k: total += n_k q, weight += n_k.
    """
    within = _within(items, low, high)
    q = rows[within].astype(np.int64)
    weights = np.abs(q)
    weights[:, n_by_change:] = np.repeat(samples, np.diff(offsets))[within, None]
    _add(total, items[within], weights * q)
    _add(weight, items[within], weights)


def move(before: Floats, total: Longs, weight: Longs, low: int, high: int, after: Floats) -> None:
    """Rows low..high: after = before + total / weight, converted from fixed point.

    `weight` has one column per component, or one for the whole row.
    """
    part = slice(low, high)
    after[part] = before[part] + total[part] / np.maximum(weight[part], 1) / SCALE


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
    by_row: Doubles,
    by_client: Doubles,
) -> None:
    """Write faults[k] for users first..last: items must exist and ascend, entries be in range.

    Unless they are empty, also write the squared norms of item rows, and their sums.
    """
    if len(by_client):
        squared(offsets, item_rows, first, last, by_row, by_client)
    own = slice(offsets[first], offsets[last])
    starts = offsets[first : last + 1] - offsets[first]
    owner = np.repeat(np.arange(last - first), np.diff(starts))
    worst = np.maximum(_worst_entries(user_rows[first:last]), _worst_entries(dense[first:last]))
    np.maximum.at(worst, owner, _worst_entries(item_rows[own]))
    # The fault of the first item with a fault counts more than those of entries.
    by_item = _faults_of_items(items[own].astype(np.int64), starts, n_items)
    wrong = np.flatnonzero(by_item)[::-1]
    worst[owner[wrong]] = by_item[wrong]
    faults[first:last] = worst


def _within(items: Ints, low: int, high: int) -> Longs:
    """Positions of the items low..high."""
    return np.flatnonzero((items >= low) & (items < high))


def _add(total: Longs, items: Ints, values: Longs) -> None:
    """total[i] += the sum of the values of item i."""
    order = np.argsort(items, kind="stable")
    distinct, begins = np.unique(items[order], return_index=True)
    if len(distinct):
        total[distinct] += np.add.reduceat(values[order], begins, axis=0)


def _faults_of_items(items: Longs, starts: Longs, n_items: int) -> np.ndarray:
    """The fault of every item; `starts` has where the items of each user begin, and the end."""
    faults = np.zeros(len(items), np.int8)
    before = np.concatenate([[-1], items[:-1]])[: len(items)]
    before[starts[:-1][np.diff(starts) > 0]] = -1
    faults[items <= before] = REPEATED_ITEM
    faults[(items < 0) | (items >= n_items)] = UNKNOWN_ITEM
    return faults


def _worst_entries(rows: Ints) -> np.ndarray:
    """The worst fault of the entries of each row."""
    lowest = rows.min(axis=1, initial=0)
    highest = rows.max(axis=1, initial=0)
    faults = np.zeros(len(rows), np.int8)
    faults[(highest >= TOO_LARGE) | (lowest <= -TOO_LARGE)] = OUT_OF_RANGE
    faults[lowest == NOT_FINITE] = NOT_A_NUMBER
    return faults
