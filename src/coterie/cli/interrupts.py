"""Ctrl-C that is never lost.

Python ignores exceptions inside finalisers (`__del__`). Numba's compiler has many, and a Ctrl-C
that arrives in one of them would be ignored, too. Here it is put off until the finaliser is over.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

PAUSE = 0.01
"""Seconds until an interrupt that was put off is tried again."""


def never_lose_interrupts() -> None:
    """Raise KeyboardInterrupt outside finalisers only. A shell that ignores Ctrl-C goes on so."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    in_main_thread = threading.current_thread() is threading.main_thread()
    if is_default and in_main_thread and hasattr(signal, "setitimer"):
        signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGALRM, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    if _in_finaliser(frame):
        signal.setitimer(signal.ITIMER_REAL, PAUSE)
        return
    raise KeyboardInterrupt


def _in_finaliser(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
