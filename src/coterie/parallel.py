"""Threads over ranges of rows. Kernels release the interpreter's lock; results never depend on how work was cut."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from coterie.types import Longs

PIECES_A_THREAD = 4  # enough to even out, few enough to cost nothing
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}


def workers() -> int:
    """How many threads work: COTERIE_THREADS, else one a core."""
    return int(os.environ.get("COTERIE_THREADS") or os.cpu_count() or 1)


def over(work: Callable[[int, int], None], load: Longs | int, smallest: int = 1) -> None:
    """Call work(first, last) on ranges that cover all rows; `load` is how many rows, or their running total of work."""
    n = workers()
    bounds = _bounds(load, n * PIECES_A_THREAD if n > 1 else 1, smallest)
    if len(bounds) <= 2 or n == 1:
        for first, last in pairwise(bounds.tolist()):
            work(first, last)
        return
    list(_pool(n).map(work, bounds[:-1].tolist(), bounds[1:].tolist()))


def _bounds(load: Longs | int, pieces: int, smallest: int) -> Longs:
    """Where ranges of about equal work begin and end."""
    if isinstance(load, int):
        pieces = max(1, min(pieces, load // smallest))
        return np.unique(np.linspace(0, load, pieces + 1).astype(np.int64))
    cuts = np.searchsorted(load, np.linspace(load[0], load[-1], pieces + 1)[1:-1])
    return np.unique(np.concatenate([[0], cuts, [len(load) - 1]]))


def _pool(n: int) -> ThreadPoolExecutor:
    """One pool per process and size: threads do not survive a fork."""
    key = (os.getpid(), n)
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(n, thread_name_prefix="coterie")
    return _pools[key]
