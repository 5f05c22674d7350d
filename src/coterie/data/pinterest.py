"""Pinterest pins (Geng et al. 2015, in a filtered version of He et al. 2017's Pinterest-20): a line is `user item item ...`.

Two files, somebody's split, are one set of interactions here: a protocol holds out its own part. There are no times, and a
user may have pinned an image more than once. Many datasets lie about as `train.txt`: only a folder or zip counts as this
layout, so that naming one file never brings its neighbour, a test part perhaps, along.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path

import numpy as np

from coterie.data import delimited, files
from coterie.data.cells import Chunk
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.table import Fault, Layout, Piece, Table, check_table, refuse_duplicates, shown
from coterie.errors import DataError

TRAIN = "train.txt"
TEST = "test.txt"
COLUMNS = ("user_id", "item_id")
BLOCK = 10_000  # lines, each with about twenty interactions
NUMBERS = "expected whole numbers, a user and the user's items"
SOME = "expected a user and at least one item"


def read(place: Path, options: Reading) -> Interactions:
    if not place.is_dir() and not _is_of_user_lines(place):
        return delimited.read(place, options)
    if not place.is_dir() and place.suffix != ".zip":
        raise DataError(
            f"{place}: is one of two files that are read together; expected the folder or zip with {TRAIN} and {TEST}. "
            f"Name the folder: {place.parent}"
        )
    train, test = (_table(place, name, options) for name in (TRAIN, TEST))
    if options.duplicates == "error":
        _refuse_repeats(train, test)
    return options.build(_joined(str(place), train, test))


def _is_of_user_lines(place: Path) -> bool:
    """Whether the file by that name is laid out so: a table of columns would begin with their names."""
    with files.open_member(place, TRAIN) as lines:
        return _are_numbers(next(filter(str.strip, lines), "").split())


def _table(place: Path, name: str, options: Reading) -> Table:
    source = str(place / name if place.suffix == ".zip" else files.place_of(place, name))
    with files.open_member(place, name) as lines:
        layout = Layout(columns=options.columns)
        return check_table(source, _pieces(lines), COLUMNS, layout, options.skip_bad_rows)


def _pieces(lines: Iterable[str]) -> Iterator[Piece]:
    stream = iter(lines)
    first = 1
    while block := list(islice(stream, BLOCK)):
        yield _piece([line.split() for line in block], first)
        first += len(block)


def _piece(block: list[list[str]], first: int) -> Piece:
    """A row for every interaction, all of one line under that line's number; blank lines say nothing."""
    faults = {line: fault for line, cells in enumerate(block, first) if (fault := _fault(cells))}
    said = [(line, cells) for line, cells in enumerate(block, first) if cells]
    counts = np.array([len(cells) - 1 for _, cells in said], np.int64)
    users = np.repeat(np.array([cells[0] for _, cells in said], dtype=object), counts)
    items = list(chain.from_iterable(cells[1:] for _, cells in said))
    lines = np.repeat(np.array([line for line, _ in said], np.int64), counts)
    return Chunk([users.tolist(), items], lines, {}), faults


def _fault(cells: list[str]) -> Fault | None:
    if len(cells) == 1:
        return Fault(f"user {shown(cells[0])} has no items", SOME)
    if not cells or _are_numbers(cells):
        return None
    column, cell = next((c, cell) for c, cell in enumerate(cells) if not _are_numbers([cell]))
    return Fault(f"{'item' if column else 'user'} {shown(cell)} is no number", NUMBERS)


def _are_numbers(cells: list[str]) -> bool:
    text = "".join(cells)
    return text.isascii() and text.isdigit()


def _joined(source: str, train: Table, test: Table) -> Table:
    rules = train.skipped | test.skipped
    return Table(
        source,
        {role: np.concatenate([train.columns[role], test.columns[role]]) for role in COLUMNS},
        np.concatenate([train.lines, test.lines]),
        {rule: train.skipped.get(rule, 0) + test.skipped.get(rule, 0) for rule in rules},
    )


def _refuse_repeats(train: Table, test: Table) -> None:
    """Within a file, then across: here a message can still name both places."""
    refuse_duplicates(train)
    refuse_duplicates(test)
    before = dict(zip(_pairs(train), train.lines.tolist(), strict=True))
    for (user, item), line in zip(_pairs(test), test.lines.tolist(), strict=True):
        if (user, item) in before:
            raise DataError(
                f"{test.source}:{line}: user {user!r} and item {item!r} stood in {train.source}:{before[user, item]} already; "
                "expected distinct pairs. Remove one or set duplicates=newest."
            )


def _pairs(table: Table) -> Iterator[tuple[str, str]]:
    return zip(*(table.columns[role].tolist() for role in COLUMNS), strict=True)
