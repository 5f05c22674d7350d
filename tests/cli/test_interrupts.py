"""Ctrl-C inside a finaliser, where Python ignores exceptions."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import sys
import time
from coterie.cli.interrupts import never_lose_interrupts

class Slow:
    def __del__(self):
        print("in a finaliser", flush=True)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            pass

if sys.argv[1] == "here":
    never_lose_interrupts()
try:
    Slow()
    time.sleep(0.5)
    print("lost")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize(("which", "outcome"), [("here", "interrupted"), ("in Python", "lost")])
def test_an_interrupt_in_a_finaliser(which: str, outcome: str):
    command = [sys.executable, "-c", SCRIPT, which]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in a finaliser\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0].strip() == outcome
