"""Threads over ranges of rows.

Kernels release the interpreter lock. Results do not depend on how the rows are divided.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise

import numpy as np

from coterie.errors import ConfigError
from coterie.types import Longs

CORES = os.cpu_count() or 1
PIECES_PER_THREAD = 4  # enough to balance the load, few enough to add no overhead
_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_alone: ContextVar[bool] = ContextVar("alone", default=False)


def workers() -> int:
    """The number of threads: COTERIE_THREADS, by default one per core."""
    wanted = os.environ.get("COTERIE_THREADS") or CORES
    if not str(wanted).isdecimal() or int(wanted) < 1:
        raise ConfigError(
            f"COTERIE_THREADS is {wanted!r}; expected a number of threads, at least 1. "
            "Change or unset it."
        )
    return int(wanted)


def over(
    work: Callable[[int, int], object], load: Longs | int, smallest: int = 1, alone: bool = False
) -> None:
    """Call work(first, last) on ranges that together cover all rows.

    `load` is the number of rows, or the cumulative work per row (rows + 1 entries). Threads get
    several ranges each only if the ranges then have at least `smallest` rows. `alone`: the work is
    so little that waking other threads would take longer.
    """
    n = workers()
    alone = alone or _alone.get()
    rows = load if isinstance(load, int) else len(load) - 1
    pieces = n * PIECES_PER_THREAD if rows >= n * PIECES_PER_THREAD * smallest else n
    if n == 1 or rows <= 1 or alone:
        work(0, rows)
        return
    ranges = iter([(first, last) for first, last in pairwise(_cuts(load, pieces)) if first < last])

    def take() -> None:
        # All threads share the iterator: each takes the next range when it is free.
        for first, last in ranges:
            work(first, last)

    # The calling thread works too, because waking another thread is slow.
    others = [_pool(n).submit(take) for _ in range(n - 1)]
    try:
        take()
    finally:
        wait(others)
    for other in others:
        other.result()


def _cuts(load: Longs | int, pieces: int) -> list[int]:
    """Boundaries of ranges with about equal work."""
    if isinstance(load, int):
        return [load * piece // pieces for piece in range(pieces + 1)]
    shares = load[0] + (load[-1] - load[0]) * np.arange(1, pieces) // pieces
    return [0, *np.searchsorted(load, shares).tolist(), len(load) - 1]


def _pool(n: int) -> ThreadPoolExecutor:
    """One pool per process and size, because threads do not survive a fork."""
    key = (os.getpid(), n)
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(n, thread_name_prefix="coterie")
    return _pools[key]


@contextmanager
def on_this_thread() -> Iterator[None]:
    """Let `over` wake no threads: for many calls with little work each."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


@contextmanager
def one_torch_thread(enabled: bool = True) -> Iterator[None]:
    """Run PyTorch on a single thread, then restore the previous number."""
    import torch

    before = torch.get_num_threads()
    try:
        if enabled:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(before)
