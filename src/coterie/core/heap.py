"""The C heap: of a process that runs for days, and of one that trains."""

from __future__ import annotations

import ctypes
import gc
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, field

LARGE_BLOCK = 128 * 1024
"""Bytes from which on a block is returned to the system as soon as it is freed."""
RETURN_SECONDS = 60.0
"""How often a process that runs for days returns its free memory."""
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_MMAP_MAX = -4
M_ARENA_MAX = -8
"""Numbers of parameters in glibc's malloc.h."""
NEVER = -1
"""As M_TRIM_THRESHOLD: free memory at the end of the heap is never returned."""
MOST_MAPPED = 65536
"""Blocks outside the heap; glibc's default."""


def keep_heap_compact() -> None:
    """Make glibc return large blocks when they are freed, and use one heap for all threads.

    128 kB is glibc's default, too. But it raises this limit to the size of the largest block that
    was freed, up to 32 MB. Messages, checkpoints and TLS buffers then share the heap with small
    blocks of any lifetime, and the gaps between those grow for hours. A limit that is set is fixed.

    Threads have heaps of their own by default, with gaps of their own. Python's threads do not
    allocate at the same time, so that one is enough. Other C libraries stay as they are.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, MOST_MAPPED)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE_BLOCK)
        libc.mallopt(M_ARENA_MAX, 1)


def keep_large_blocks() -> None:
    """Make glibc keep the blocks that are freed, for arrays of the next round.

    By itself it asks the system for every block of more than 32 MB, which clears each page, and
    gives it back when it is freed. A round of training needs arrays as large as those of the round
    before: on MovieLens-1M this saves 2 to 17 % of a round's processor time, and 26 % of FCF's with
    bounds. Peaks of memory stayed the same in runs without defences. Other C libraries stay as they
    are.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, NEVER)


def return_free_memory() -> None:
    """Make glibc return the free pages between blocks that are in use.

    It does so by itself only at the end of the heap. Nodes that leave and come back leave gaps.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


@dataclass(slots=True)
class FreeMemory:
    """Returns the free memory of a process from time to time."""

    empty_caches: Callable[[], None] = lambda: None
    """Called before: what it frees is returned, too."""
    returned: float = field(default_factory=time.monotonic)
    """When memory was returned last."""
    is_collected: bool = False
    """Whether cycles of the start were freed."""

    def return_if_due(self) -> None:
        now = time.monotonic()
        if now < self.returned + RETURN_SECONDS:
            return
        self.returned = now
        self.empty_caches()
        if not self.is_collected:
            # Importing and compiling leave 50,000 objects in cycles. By itself, Python looks at
            # old objects again only when there are a quarter as many new ones.
            gc.collect()
            self.is_collected = True
        return_free_memory()
