"""Signals of a server and a node."""

from __future__ import annotations

import signal
import sys


def exit_on_sigterm() -> None:
    """Exit on SIGTERM as on Ctrl-C, so that the state is saved and peers are told."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
