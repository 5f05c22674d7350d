"""Yelp reviews of 2019, distributed by Dang et al. (AAAI 2023, "Uniform Sequence Better").

The data is two parallel files: a line is `user item item ...` in one and `user time time ...` in
the other. If the files disagree about a line, or one of its times is invalid, the whole line is
bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.cells import Chunk
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import CheckedTable, Fault, Layout, Piece, check_table, shown

ITEMS = "Yelp_item_org_rank.txt"
TIMES = "Yelp_time_org_rank.txt"
COLUMNS = ("user_id", "item_id", "timestamp")
BLOCK = 10_000  # lines, each with about ten interactions
ALIKE = "expected the same user in both files, with as many times as items"
SOME = "expected a user and at least one item"


def read(path: Path, options: ReadOptions) -> Interactions:
    return options.build(_table(files.home(path), options))


def _table(home: Path, options: ReadOptions) -> CheckedTable:
    source = str(files.path_of(home, ITEMS))
    times_file = str(files.path_of(home, TIMES))
    layout = Layout(columns=options.columns, other_files={"timestamp": times_file})
    with files.open_member(home, ITEMS) as items, files.open_member(home, TIMES) as times:
        pieces = _pieces(items, times, times_file)
        return check_table(source, pieces, COLUMNS, layout, options.skip_bad_rows)


def _pieces(items: Iterable[str], times: Iterable[str], times_file: str) -> Iterator[Piece]:
    """Both files in parallel, a block of lines at a time; the shorter one is padded."""
    pairs = zip_longest(items, times, fillvalue="")
    first = 1
    while block := list(islice(pairs, BLOCK)):
        yield _piece([(item.split(), time.split()) for item, time in block], first, times_file)
        first += len(block)


def _piece(block: list[tuple[list[str], list[str]]], first: int, times_file: str) -> Piece:
    """One row per interaction, with the line number of its user; blank lines are skipped."""
    rows = []
    faults = {}
    for line, (items, times) in enumerate(block, first):
        if items[:1] == times[:1] and len(items) == len(times) > 1:
            rows.append((line, items, times))
        elif items or times:
            faults[line] = _disagreement(items, times, times_file)
    counts = [len(items) - 1 for _, items, _ in rows]
    users = ([items[0]] * n for (_, items, _), n in zip(rows, counts, strict=True))
    columns = [
        list(chain.from_iterable(users)),
        list(chain.from_iterable(items[1:] for _, items, _ in rows)),
        list(chain.from_iterable(times[1:] for _, _, times in rows)),
    ]
    lines = np.repeat(np.array([line for line, _, _ in rows], np.int64), counts)
    return Chunk(columns, lines, {}), faults


def _disagreement(items: list[str], times: list[str], times_file: str) -> Fault:
    if not times:
        return Fault(f"no line for user {shown(items[0])}", ALIKE, times_file)
    if not items:
        return Fault(f"no line for user {shown(times[0])}", ALIKE)
    user = f"user {shown(times[0])}"
    if items[0] != times[0]:
        what = f"{user} is on the line where {ITEMS} has user {shown(items[0])}"
        return Fault(what, ALIKE, times_file)
    if len(items) != len(times):
        what = f"{user} has {len(times) - 1} times for {len(items) - 1} items"
        return Fault(what, ALIKE, times_file)
    return Fault(f"user {shown(items[0])} has no items", SOME)
