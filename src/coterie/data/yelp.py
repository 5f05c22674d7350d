"""Yelp reviews of 2019 as two parallel files: a line is `user item item ...` in one and `user time time ...` in the other.

That is how Dang et al. (AAAI 2023, "Uniform Sequence Better") distribute them. A line is a row here: where the two files
disagree about a line, or one of its times is none, the whole line is bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice, zip_longest
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.cells import Chunk
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.table import Fault, Layout, Piece, Table, check_table, shown

ITEMS = "Yelp_item_org_rank.txt"
TIMES = "Yelp_time_org_rank.txt"
COLUMNS = ("user_id", "item_id", "timestamp")
BLOCK = 10_000  # lines, each with about ten interactions
ALIKE = "expected the same user in both files, with as many times as items"
SOME = "expected a user and at least one item"


def read(place: Path, options: Reading) -> Interactions:
    return options.build(_table(files.home(place), options))


def _table(home: Path, options: Reading) -> Table:
    source, beside = (str(files.place_of(home, name)) for name in (ITEMS, TIMES))
    layout = Layout(columns=options.columns, beside={"timestamp": beside})
    with files.open_member(home, ITEMS) as items, files.open_member(home, TIMES) as times:
        return check_table(
            source, _pieces(items, times, beside), COLUMNS, layout, options.skip_bad_rows
        )


def _pieces(items: Iterable[str], times: Iterable[str], beside: str) -> Iterator[Piece]:
    """Both files side by side, some lines at a time; the shorter one goes on with blank lines."""
    pairs = zip_longest(items, times, fillvalue="")
    first = 1
    while block := list(islice(pairs, BLOCK)):
        yield _piece([(item.split(), time.split()) for item, time in block], first, beside)
        first += len(block)


def _piece(block: list[tuple[list[str], list[str]]], first: int, beside: str) -> Piece:
    """A row for every interaction, all of one line under that line's number; blank lines say nothing."""
    rows = []
    faults = {}
    for line, (items, times) in enumerate(block, first):
        if items[:1] == times[:1] and len(items) == len(times) > 1:
            rows.append((line, items, times))
        elif items or times:
            faults[line] = _disagreement(items, times, beside)
    counts = [len(items) - 1 for _, items, _ in rows]
    users = chain.from_iterable(
        [items[0]] * n for (_, items, _), n in zip(rows, counts, strict=True)
    )
    columns = [
        list(users),
        list(chain.from_iterable(items[1:] for _, items, _ in rows)),
        list(chain.from_iterable(times[1:] for _, _, times in rows)),
    ]
    lines = np.repeat(np.array([line for line, _, _ in rows], np.int64), counts)
    return Chunk(columns, lines, {}), faults


def _disagreement(items: list[str], times: list[str], beside: str) -> Fault:
    if not times:
        return Fault(f"there is no line for user {shown(items[0])}", ALIKE, beside)
    if not items:
        return Fault(f"there is no line for user {shown(times[0])}", ALIKE)
    if items[0] != times[0]:
        return Fault(
            f"user {shown(times[0])} stands where {ITEMS} has user {shown(items[0])}", ALIKE, beside
        )
    if len(items) != len(times):
        return Fault(
            f"user {shown(times[0])} has {len(times) - 1} times for {len(items) - 1} items",
            ALIKE,
            beside,
        )
    return Fault(f"user {shown(items[0])} has no items", SOME)
