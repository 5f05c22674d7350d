"""Ctrl-C that is never lost.

Python ignores exceptions inside finalisers, weak references' callbacks and functions that C code
calls. Numba's compiler has many of them: a Ctrl-C that arrives there would be ignored, or leave
LLVM without the answer that it called for, which is a segmentation fault. Here the Ctrl-C is put
off until such code is over.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

PAUSE = 0.01
"""Seconds until an interrupt that was put off is tried again."""

UNINTERRUPTED = ("llvmlite", "weakref", "_weakrefset")
"""Packages and modules with functions that C code calls."""


def never_lose_interrupts() -> None:
    """Raise KeyboardInterrupt where Python passes it on. A shell that ignores Ctrl-C goes on so."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    in_main_thread = threading.current_thread() is threading.main_thread()
    if is_default and in_main_thread and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _would_be_lost(frame):
        signal.setitimer(signal.ITIMER_REAL, PAUSE)
        return
    raise KeyboardInterrupt


def _would_be_lost(frame: FrameType | None) -> bool:
    while frame is not None:
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if frame.f_code.co_name == "__del__" or package in UNINTERRUPTED:
            return True
        frame = frame.f_back
    return False
