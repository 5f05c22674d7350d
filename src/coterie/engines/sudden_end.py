"""Says why a process ended that Ray ended: its library exits without an exception.

It does so when it uses the object store of a raylet that was killed. Only another process can tell.
"""

from __future__ import annotations

import atexit
import subprocess
import sys

MESSAGE = (
    "error: this process ended suddenly. It was killed, or Ray ended it, as it does when the "
    "raylet of this machine is killed or memory is short. Resume the run with coterie resume FOLDER"
)
DONE = "done"
WATCHER = f"""
import sys
if sys.stdin.read() != {DONE!r}:
    print(sys.argv[1], file=sys.stderr)
"""
"""Its input ends with the process that it watches, which says `done` if it ends by itself."""


def report_sudden_end() -> None:
    """From now on, a sudden end of this process is reported on its standard error."""
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WATCHER, MESSAGE],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is for the run only
    )
    atexit.register(watcher.communicate, DONE)
