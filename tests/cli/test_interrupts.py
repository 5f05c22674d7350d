"""Ctrl-C where Python ignores exceptions: in finalisers and in functions that C code calls."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes
import sys
import time
from coterie.cli.interrupts import never_lose_interrupts

def wait():
    print("waiting", flush=True)
    end = time.monotonic() + 1
    while time.monotonic() < end:
        pass

class Finaliser:
    def __del__(self):
        wait()

def callback():
    compiler = {"wait": wait, "__name__": "llvmlite.binding.executionengine"}
    exec("def called_by_c(): wait()", compiler)
    ctypes.CFUNCTYPE(None)(compiler["called_by_c"])()

if sys.argv[1] == "here":
    never_lose_interrupts()
try:
    {"finaliser": Finaliser, "callback": callback}[sys.argv[2]]()
    time.sleep(0.5)
    print("lost")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("place", ["finaliser", "callback"])
@pytest.mark.parametrize(("which", "outcome"), [("here", "interrupted"), ("in Python", "lost")])
def test_an_interrupt_where_python_ignores_it(which: str, outcome: str, place: str):
    command = [sys.executable, "-c", SCRIPT, which, place]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20)[0].strip() == outcome
