"""Large blocks go back to the system, whatever was freed before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

MAPPED_AFTER = """
import ctypes
from coterie.core.heap import LARGE_BLOCK, return_large_blocks

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info

{call}
bytearray(8 << 20)  # freed at once: from now on, glibc puts blocks of up to 8 MB into the heap
before = libc.mallinfo2().hblkhd
block = bytearray(LARGE_BLOCK)
print(libc.mallinfo2().hblkhd - before)
"""


def mapped_after(call: str) -> int:
    """Bytes that a new large block adds to the blocks outside the heap, in a new process."""
    script = MAPPED_AFTER.format(call=call)
    command = [sys.executable, "-c", script]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc's malloc")
def test_large_blocks_are_returned_when_freed():
    assert mapped_after("return_large_blocks()") >= 128 * 1024
    assert mapped_after("") == 0, "glibc does so by itself now: coterie.core.heap is not needed"
