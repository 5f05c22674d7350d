"""The state of a server as others see it: what it wrote last, and whether it still runs."""

from __future__ import annotations

from pathlib import Path

from coterie.deployment.traffic import STATUS, read_status
from coterie.errors import RunError
from coterie.experiments import run_folder
from coterie.types import JsonObject

FINISHED = "finished"
STOPPED = "stopped"
ENDED = (FINISHED, STOPPED)
"""States in which no server works on the folder."""


def read_current_status(folder: Path) -> JsonObject:
    """The status in a run folder. A server that was killed could not write that it stopped."""
    if not (folder / STATUS).exists():
        raise RunError(
            f"{folder} holds no {STATUS}; expected the run folder of `coterie serve`. "
            f"{_remedy(folder)}"
        )
    status = read_status(folder)
    if status.get("state") in ENDED or is_served(folder):
        return status
    return status | {
        "state": STOPPED,
        "note": "the server was killed, its machine stopped, or its disk was full; "
        f"resume with coterie serve --config FILE --out {folder}",
    }


def _remedy(missing: Path) -> str:
    """The newest run folder of a server in the folder that was named, or else next to it."""
    found = [*missing.glob(f"*/{STATUS}")] or [*missing.parent.glob(f"*/{STATUS}")]
    if not found:
        return "Check the path."
    newest = max(found, key=lambda path: path.stat().st_mtime)
    return f"The newest one there is {newest.parent}."


def is_served(folder: Path) -> bool:
    """Whether a process holds the lock of the folder."""
    return run_folder.is_held(folder / ".lock")
