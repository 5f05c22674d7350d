"""Foursquare check-ins of six Italian cities (Yang et al. 2016, ACM TIST 7(3)), as one set of interactions.

Each city is a file `user_id venue_id type utc` with times such as `Tue Apr 03 18:00:12 +0000 2012`. A venue has no name: its type,
such as Ramen House, is its text, and its category the one of nine that Foursquare's tree puts the type in. The tree is that of the
API's second version in its last years; where a type was renamed by then, its category is that of the new name.
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
from coterie.data.options import Reading
from coterie.data.table import Layout, Table, read_lookup, read_table, refuse_duplicates

CITIES = ("Bologna", "Florence", "Milan", "Rome", "Turin", "Venice")
MONTHS = {
    m: i
    for i, m in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}
LOST = re.compile("\x1a+")
"""What an é has become on its way into the files, once as one sign and once as two: it stands in Café alone."""
COLUMNS = {"item_id": "venue_id", "timestamp": "utc"}


def read(place: Path, options: Reading) -> Interactions:
    tables = [_city(place, city, options) for city in CITIES]
    if options.duplicates == "error":
        for table in tables:  # here a message can still name the city's file
            refuse_duplicates(table)
    whole = Table(
        source=str(place),
        columns={
            role: np.concatenate([t.columns[role] for t in tables]) for role in tables[0].columns
        },
        lines=np.concatenate([t.lines for t in tables]),
        skipped={
            rule: sum(t.skipped.get(rule, 0) for t in tables) for t in tables for rule in t.skipped
        },
    )
    types = {row[1]: LOST.sub("é", row[2]) for city in CITIES for row in _side(place, city)}
    known = categories()
    return options.build(whole).describe_items(
        types, {venue: (known[kind],) for venue, kind in types.items() if kind in known}
    )


@cache
def categories() -> dict[str, str]:
    """The category of every type of venue."""
    text = (
        resources.files("coterie.data")
        .joinpath("foursquare_categories.csv")
        .read_text(encoding="utf-8")
    )
    return {row["type"]: row["category"] for row in csv.DictReader(text.splitlines())}


def _city(place: Path, city: str, options: Reading) -> Table:
    layout = Layout("\t", columns=COLUMNS | options.columns, parse_time=_time, quoting=False)
    with files.open_member(place, f"{city}.tsv") as lines:
        return read_table(str(place / f"{city}.tsv"), lines, layout, options.skip_bad_rows)


def _side(place: Path, city: str) -> list[list[str]]:
    with files.open_member(place, f"{city}.tsv") as lines:
        return list(read_lookup(lines, "\t", 4))[1:]


def _time(text: str) -> float:
    """Seconds since 1970; strptime would be five times slower and depends on the locale."""
    _, month, day, clock, _, year = text.split()
    hour, minute, second = clock.split(":")
    return datetime(
        int(year), MONTHS[month], int(day), int(hour), int(minute), int(second), tzinfo=UTC
    ).timestamp()
