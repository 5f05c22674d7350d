"""The C heap of a process that runs for days."""

from __future__ import annotations

import ctypes
import platform

LARGE_BLOCK = 128 * 1024
"""Bytes from which on a block is returned to the system as soon as it is freed."""
M_MMAP_THRESHOLD = -3
"""The parameter's number in glibc's malloc.h."""


def return_large_blocks() -> None:
    """Make glibc return every large block as soon as it is freed; other C libraries stay as is.

    128 kB is glibc's default, too. But it raises this limit to the size of the largest block that
    was freed, up to 32 MB. Messages, checkpoints and TLS buffers then share the heap with small
    blocks of any lifetime, and the gaps between those grow for hours. A limit that is set is fixed.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, LARGE_BLOCK)
