"""The folder of a leaderboard: one file of data for every dataset, and the report made from them.

leaderboard-DATASET.json    the data of one dataset
report.html, report.md      all datasets of the folder
"""

from __future__ import annotations

import json
from pathlib import Path

from coterie.core.plain_files import read_json_object
from coterie.experiments.leaderboard import Leaderboard
from coterie.experiments.leaderboard_page import markdown, page
from coterie.experiments.run_folder import write_text

PREFIX = "leaderboard-"


def is_leaderboard(folder: Path) -> bool:
    """Whether the folder has a leaderboard, to which another dataset may be added."""
    return any(folder.glob(f"{PREFIX}*.json"))


def add(folder: Path, board: Leaderboard, command: str) -> None:
    """Write the data of one dataset, and the report of all."""
    name = Path(board.dataset).name.split(".")[0]
    text = json.dumps(board.to_json() | {"command": command}, indent=1, allow_nan=False)
    write_text(folder, f"{PREFIX}{name}.json", f"{text}\n")
    write_report(folder)


def write_report(folder: Path) -> None:
    """The report of all datasets in the folder, the most interactions first."""
    boards, commands = read(folder)
    write_text(folder, "report.html", page(boards, "\n".join(commands)))
    write_text(folder, "report.md", markdown(boards, "\n".join(commands)))


def read(folder: Path) -> tuple[list[Leaderboard], list[str]]:
    """The leaderboards of a folder, and the commands that made them."""
    found = [read_json_object(path) for path in sorted(folder.glob(f"{PREFIX}*.json"))]
    commands = list(dict.fromkeys(str(values.pop("command")) for values in found))
    return [Leaderboard.from_json(values) for values in found], commands
