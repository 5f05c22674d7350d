"""Child processes end with their parent, however it ends: workers of plans, readers of nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

WORKER = """
import os, sys, time
from pathlib import Path
from coterie.experiments.worker_processes import helped_by

def work():
    Path(sys.argv[1]).write_text(str(os.getpid()))
    time.sleep(600)

if __name__ == "__main__":
    with helped_by(2, work):
        time.sleep(600)
"""
READER = """
import os, sys, time
from pathlib import Path
from coterie.deployment.fleet.join import put_in_another_process

class SlowUsers:
    def read(self):
        Path(sys.argv[1]).write_text(str(os.getpid()))
        time.sleep(600)

if __name__ == "__main__":
    put_in_another_process(SlowUsers(), Path(sys.argv[1]).with_name("node.db"))
"""


def is_running(pid: int) -> bool:
    """A process that ended and is not yet collected by its parent counts as ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("code", [WORKER, READER], ids=["worker", "reader"])
def test_a_killed_process_leaves_no_child(tmp_path: Path, code: str) -> None:
    script = tmp_path / "main.py"
    script.write_text(code)
    place = tmp_path / "pid"
    main = subprocess.Popen([sys.executable, str(script), str(place)])
    try:
        assert wait_until(lambda: place.exists() and place.read_text())
        child = int(place.read_text())
        assert is_running(child)
    finally:
        main.send_signal(signal.SIGKILL)
        main.wait()
    ended = wait_until(lambda: not is_running(child), 10)
    if not ended:
        os.kill(child, signal.SIGKILL)
    assert ended
