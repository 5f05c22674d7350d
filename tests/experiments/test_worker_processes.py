"""Worker processes end with the process they help, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

SCRIPT = """
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


def test_a_killed_process_leaves_no_worker(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(SCRIPT)
    place = tmp_path / "pid"
    main = subprocess.Popen([sys.executable, str(script), str(place)])
    try:
        assert wait_until(lambda: place.exists() and place.read_text())
        worker = int(place.read_text())
        assert is_running(worker)
    finally:
        main.send_signal(signal.SIGKILL)
        main.wait()
    ended = wait_until(lambda: not is_running(worker), 10)
    if not ended:
        os.kill(worker, signal.SIGKILL)
    assert ended
