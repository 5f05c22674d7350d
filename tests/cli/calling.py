"""Calling the command line in a process of its own, and what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SMALL = [
    "--set",
    "n_users=60",
    "--set",
    "n_items=90",
    "--set",
    "mean_interactions=9",
    "--set",
    "n_groups=3",
]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line of a user's mistake; anything else fails the test."""
        lines = self.err.strip().splitlines()
        assert self.code == 2, self
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        return lines[0].removeprefix("error: ")


def start(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "coterie.cli.main", *map(str, arguments)],
        cwd=cwd,
        env=os.environ | {"COTERIE_DATA": str(cwd / "no data")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def call_apart(*arguments: str | Path, cwd: Path) -> Done:
    process = start(*arguments, cwd=cwd)
    out, err = process.communicate(timeout=60)
    return Done(process.returncode, out, err)
