"""Call the command line in its own process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


def settings(**values: object) -> list[str]:
    """Arguments `--set key=value` for every value."""
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


SMALL = settings(n_users=60, n_items=90, mean_interactions=9, n_groups=3)
"""Settings of a small synthetic dataset."""


@dataclass(frozen=True)
class Done:
    """The exit code and the output of a finished command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The single line that a user's mistake prints; fails the test on anything else."""
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
