"""Pinterest pins (Geng et al. 2015), in a filtered version of Pinterest-20 (He et al. 2017).

A line is `user item item ...`. The data is distributed as two files, a published split; the reader
joins them, because a protocol holds out its own test part. There are no times, and a user may have
pinned an image more than once. `train.txt` is a common name, so only a folder or zip is read in
this layout: the path of one file never pulls in the file next to it, which may be a test part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from coterie.data import delimited, files
from coterie.data.cells import Chunk
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import (
    CheckedTable,
    Fault,
    Layout,
    Piece,
    check_table,
    refuse_duplicates,
    shown,
)
from coterie.errors import DataError

TRAIN = "train.txt"
TEST = "test.txt"
COLUMNS = ("user_id", "item_id")
BLOCK = 10_000  # lines, each with about twenty interactions
NUMBERS = "expected whole numbers, a user and the user's items"
SOME = "expected a user and at least one item"


def read(path: Path, options: ReadOptions) -> Interactions:
    if not path.is_dir() and not _has_user_lines(path):
        return delimited.read(path, options)
    if not path.is_dir() and path.suffix != ".zip":
        raise DataError(
            f"{path}: is one of two files that are read together; "
            f"expected the folder or zip with {TRAIN} and {TEST}. Name the folder: {path.parent}"
        )
    train = _table(path, TRAIN, options)
    test = _table(path, TEST, options)
    if options.duplicates == "error":
        _refuse_repeats(train, test)
    return options.build(_joined(str(path), train, test))


def _has_user_lines(path: Path) -> bool:
    """Whether the train file has this layout: a delimited table would start with a header."""
    with files.open_member(path, TRAIN) as lines:
        return _are_numbers(next(filter(str.strip, lines), "").split())


def _table(path: Path, name: str, options: ReadOptions) -> CheckedTable:
    source = str(path / name if path.suffix == ".zip" else files.path_of(path, name))
    with files.open_member(path, name) as lines:
        layout = Layout(columns=options.columns)
        return check_table(source, _pieces(lines), COLUMNS, layout, options.skip_bad_rows)


def _pieces(lines: Iterable[str]) -> Iterator[Piece]:
    stream = iter(lines)
    first = 1
    while block := list(islice(stream, BLOCK)):
        yield _piece([line.split() for line in block], first)
        first += len(block)


def _piece(block: list[list[str]], first: int) -> Piece:
    """One row per interaction, with the line number of its user; blank lines are skipped."""
    faults = {line: fault for line, cells in enumerate(block, first) if (fault := _fault(cells))}
    filled = [(line, cells) for line, cells in enumerate(block, first) if cells]
    counts = np.array([len(cells) - 1 for _, cells in filled], np.int64)
    users = np.repeat(np.array([cells[0] for _, cells in filled], dtype=object), counts)
    items = list(chain.from_iterable(cells[1:] for _, cells in filled))
    lines = np.repeat(np.array([line for line, _ in filled], np.int64), counts)
    return Chunk([users.tolist(), items], lines, {}), faults


def _fault(cells: list[str]) -> Fault | None:
    if len(cells) == 1:
        return Fault(f"user {shown(cells[0])} has no items", SOME)
    if not cells or _are_numbers(cells):
        return None
    column, cell = next((c, cell) for c, cell in enumerate(cells) if not _are_numbers([cell]))
    return Fault(f"{'item' if column else 'user'} {shown(cell)} is not a number", NUMBERS)


def _are_numbers(cells: list[str]) -> bool:
    text = "".join(cells)
    return text.isascii() and text.isdigit()


def _joined(source: str, train: CheckedTable, test: CheckedTable) -> CheckedTable:
    rules = train.skipped | test.skipped
    return CheckedTable(
        source,
        {role: np.concatenate([train.columns[role], test.columns[role]]) for role in COLUMNS},
        np.concatenate([train.lines, test.lines]),
        {rule: train.skipped.get(rule, 0) + test.skipped.get(rule, 0) for rule in rules},
    )


def _refuse_repeats(train: CheckedTable, test: CheckedTable) -> None:
    """Check each file, then both together, so that a message names both lines."""
    refuse_duplicates(train)
    refuse_duplicates(test)
    in_train = dict(zip(_pairs(train), train.lines.tolist(), strict=True))
    for (user, item), line in zip(_pairs(test), test.lines.tolist(), strict=True):
        if (user, item) in in_train:
            raise DataError(
                f"{test.source}:{line}: user {user!r} and item {item!r} are already in "
                f"{train.source}:{in_train[user, item]}; "
                "expected distinct pairs. Remove one or set duplicates=newest."
            )


def _pairs(table: CheckedTable) -> Iterator[tuple[str, str]]:
    return zip(*(table.columns[role].tolist() for role in COLUMNS), strict=True)
