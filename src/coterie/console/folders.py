"""The folders that the console may read: nothing outside them, and no links.

A run has an id that is derived from its path. Requests name ids, never paths, so that no request
can name a file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from coterie.core.printable import one_line
from coterie.errors import ConfigError
from coterie.experiments.round_log import NAME as ROUNDS

Kind = Literal["run", "federation", "paper"]

DEEPEST = 3
"""Levels below a named folder that are searched."""
MOST_FOLDERS = 20_000
OF_RUN = ("config.yaml", "result.json", ROUNDS)
OF_FEDERATION = ("terms.json", "status.json")
OF_PAPER = "found.json"
DATA_ENDINGS = (".csv", ".tsv", ".txt", ".parquet", ".inter", ".json", ".jsonl", ".dat", ".gz")
MOST_DATA_FILES = 500


@dataclass(frozen=True, slots=True)
class FoundFolder:
    """A folder with a run, a federation or a paper, and its plain files."""

    id: str
    path: Path
    name: str
    """For display: the path below the named folder."""
    kind: Kind
    files: frozenset[str]
    """Names of plain files; links, pipes and folders are none."""

    def has(self, name: str) -> bool:
        return name in self.files


@dataclass(frozen=True, slots=True)
class Folders:
    roots: tuple[Path, ...]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Folders:
        """The folders that a user named; each must exist."""
        for path in paths:
            if not path.is_dir():
                why = "is a file" if path.exists() else "does not exist"
                raise ConfigError(
                    f"FOLDER is {str(path)!r}, which {why}; expected a folder with runs. "
                    "Name the folder that holds them, such as runs."
                )
        return cls(tuple(dict.fromkeys(path.resolve() for path in paths)))

    def found(self) -> dict[str, FoundFolder]:
        """Every run, federation and paper by id."""
        left = [MOST_FOLDERS]
        every = (each for root in self.roots for each in _search(root, root, DEEPEST, left))
        return {folder.id: folder for folder in every}

    def again(self, found: FoundFolder) -> FoundFolder | None:
        """A folder as it is now, without a search; None if it holds no run any more."""
        files = _files(_entries(found.path))
        kind = _kind(files)
        return None if kind is None else replace(found, files=files, kind=kind)

    def holds(self, path: Path) -> bool:
        """Whether a path is inside a named folder once its links are followed."""
        resolved = path.resolve()
        return any(resolved.is_relative_to(root) for root in self.roots)

    def data_files(self) -> list[Path]:
        """Files that may hold interactions: in the named folders, not inside runs."""
        files: list[Path] = []
        for root in self.roots:
            for entry in sorted(_entries(root), key=lambda entry: entry.name):
                is_data = entry.name.endswith(DATA_ENDINGS) and not entry.name.startswith(".")
                if is_data and entry.is_file(follow_symlinks=False):
                    files.append(Path(entry.path))
        return files[:MOST_DATA_FILES]


def id_of(path: Path) -> str:
    """The id of a folder, the same in every process."""
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def _search(root: Path, path: Path, levels: int, left: list[int]) -> Iterator[FoundFolder]:
    """The runs in a folder and below it; `left` counts down the folders that may be opened."""
    if left[0] <= 0:
        return
    left[0] -= 1
    entries = _entries(path)
    files = _files(entries)
    kind = _kind(files)
    if kind is not None:
        name = path.name if path == root else str(path.relative_to(root))
        yield FoundFolder(id_of(path), path, one_line(name), kind, files)
        return
    if not levels:
        return
    for entry in entries:
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
            yield from _search(root, path / entry.name, levels - 1, left)


def _kind(files: frozenset[str]) -> Kind | None:
    if OF_PAPER in files:
        return "paper"
    if any(name in files for name in OF_FEDERATION):
        return "federation"
    return "run" if any(name in files for name in OF_RUN) else None


def _files(entries: Sequence[os.DirEntry[str]]) -> frozenset[str]:
    return frozenset(entry.name for entry in entries if entry.is_file(follow_symlinks=False))


def _entries(path: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder; none of one that cannot be read or was just removed."""
    try:
        with os.scandir(path) as entries:
            return list(entries)
    except OSError:
        return []
