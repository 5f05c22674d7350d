"""Large blocks go back to the system, or stay; threads share one heap."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref

import pytest

from coterie.core import heap
from coterie.core.heap import FreeMemory

LIBC = """
import ctypes
import tempfile
import threading
from coterie.core.heap import (
    LARGE_BLOCK, keep_heap_compact, keep_large_blocks, return_free_memory
)

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
{call}
"""
MAPPED = """
bytearray(8 << 20)  # freed at once: from now on, glibc puts blocks of up to 8 MB into the heap
before = libc.mallinfo2().hblkhd
blocks = [bytearray(LARGE_BLOCK) for _ in range(20)]
print(libc.mallinfo2().hblkhd - before)
"""
"""Prints the bytes that large blocks add to the blocks outside the heap. A gap takes a few."""
KEPT = """
before = libc.mallinfo2().arena
block = bytearray(64 << 20)
del block
print(libc.mallinfo2().arena - before)
"""
"""Prints by how many bytes the heap has grown for a large block that is freed."""
HEAPS = """
blocks = []
barrier = threading.Barrier(4)

def allocate():
    barrier.wait()  # all threads are there at once
    blocks.extend(bytearray(50_000) for _ in range(100))
    barrier.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().count(b"<heap nr="))
"""
"""Prints how many heaps the process has after four threads allocated at once."""


GAPS = """
def kilobytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if "VmRSS" in line)

blocks = [bytearray(b"x" * 60_000) for _ in range(1_000)]
del blocks[:-1]  # the last one is at the end of the heap
before = kilobytes()
{call}
print(before - kilobytes())
"""
"""Prints by how many kilobytes a call shrinks the process, of about 60,000 that are free."""


def printed(call: str, script: str) -> int:
    """What a script prints in a new process after a call."""
    command = [sys.executable, "-c", LIBC.format(call=call) + script]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc's malloc")
def test_large_blocks_are_returned_when_freed():
    assert printed("keep_heap_compact()", MAPPED) >= 15 * 128 * 1024
    assert printed("", MAPPED) == 0, "glibc does so by itself now: coterie.core.heap is not needed"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc's malloc")
def test_large_blocks_are_kept_in_training():
    assert printed("keep_large_blocks()", KEPT) >= 64 << 20
    assert printed("", KEPT) < 1 << 20
    assert printed("keep_large_blocks(); keep_heap_compact()", KEPT) < 1 << 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc's malloc")
def test_threads_share_one_heap():
    assert printed("keep_heap_compact()", HEAPS) == 1
    assert printed("", HEAPS) > 1


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="for glibc's malloc")
def test_free_pages_are_returned():
    assert printed("", GAPS.format(call="return_free_memory()")) > 40_000
    assert printed("", GAPS.format(call="")) < 1_000


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def old_cycle() -> weakref.ref[Cycle]:
    """A cycle that nothing holds, and that Python leaves until it looks at its oldest objects."""
    cycle = Cycle()
    gc.collect()
    return weakref.ref(cycle)


def test_memory_is_returned_once_a_minute(monkeypatch: pytest.MonkeyPatch):
    seconds = [100.0]
    done: list[str] = []
    monkeypatch.setattr(heap.time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(heap, "return_free_memory", lambda: done.append("returned"))
    memory = FreeMemory(lambda: done.append("emptied"), returned=100.0)
    memory.return_if_due()
    assert done == []
    seconds[0] += 61
    memory.return_if_due()
    memory.return_if_due()
    assert done == ["emptied", "returned"]
    seconds[0] += 61
    memory.return_if_due()
    assert done == ["emptied", "returned"] * 2


def test_cycles_of_the_start_are_freed(monkeypatch: pytest.MonkeyPatch):
    seconds = [100.0]
    monkeypatch.setattr(heap.time, "monotonic", lambda: seconds[0])
    memory = FreeMemory(returned=100.0)
    cycle = old_cycle()
    assert cycle() is not None
    seconds[0] += 61
    memory.return_if_due()
    assert cycle() is None
