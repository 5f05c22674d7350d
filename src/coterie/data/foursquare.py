"""Foursquare check-ins in six Italian cities (Yang et al. 2016, ACM TIST 7(3)).

Each city is a file `user_id venue_id type utc` with times such as `Tue Apr 03 18:00:12 +0000 2012`.
Venues have no names: a venue's text is its type, such as Ramen House, and its category is the one
of nine top-level categories that contains the type in Foursquare's category tree. The tree is that
of the last years of API version 2; a type renamed by then has the category of its new name.
"""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import CheckedTable, Layout, read_lookup, read_table, refuse_duplicates

CITIES = ("Bologna", "Florence", "Milan", "Rome", "Turin", "Venice")
MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS = {name: number for number, name in enumerate(MONTH_NAMES, 1)}
BROKEN_E = re.compile("\x1a+")
"""The files contain one or two of these characters in place of é, which occurs only in Café."""
COLUMNS = {"item_id": "venue_id", "timestamp": "utc"}


def read(path: Path, options: ReadOptions) -> Interactions:
    tables = [_city(path, city, options) for city in CITIES]
    if options.duplicates == "error":
        # Check the cities one by one, so that a message names the city's file.
        for table in tables:
            refuse_duplicates(table)
    types = {row[1]: BROKEN_E.sub("é", row[2]) for city in CITIES for row in _venues(path, city)}
    known = categories()
    of_venues = {venue: (known[kind],) for venue, kind in types.items() if kind in known}
    return options.build(_joined(str(path), tables)).describe_items(types, of_venues)


def _joined(source: str, tables: list[CheckedTable]) -> CheckedTable:
    roles = tables[0].columns
    rules = [rule for table in tables for rule in table.skipped]
    return CheckedTable(
        source=source,
        columns={role: np.concatenate([t.columns[role] for t in tables]) for role in roles},
        lines=np.concatenate([t.lines for t in tables]),
        skipped={rule: sum(t.skipped.get(rule, 0) for t in tables) for rule in rules},
    )


@cache
def categories() -> dict[str, str]:
    """The category of every type of venue."""
    file = resources.files("coterie.data").joinpath("foursquare_categories.csv")
    lines = file.read_text(encoding="utf-8").splitlines()
    return {row["type"]: row["category"] for row in csv.DictReader(lines)}


def _city(path: Path, city: str, options: ReadOptions) -> CheckedTable:
    layout = Layout("\t", columns=COLUMNS | options.columns, parse_time=_time, quoting=False)
    with files.open_member(path, f"{city}.tsv") as lines:
        return read_table(str(path / f"{city}.tsv"), lines, layout, options.skip_bad_rows)


def _venues(path: Path, city: str) -> list[list[str]]:
    with files.open_member(path, f"{city}.tsv") as lines:
        return list(read_lookup(lines, "\t", 4))[1:]


def _time(text: str) -> float:
    """Seconds since 1970. strptime is five times slower and depends on the locale."""
    _, month, day, clock, _, year = text.split()
    hour, minute, second = clock.split(":")
    return datetime(
        int(year), MONTHS[month], int(day), int(hour), int(minute), int(second), tzinfo=UTC
    ).timestamp()
