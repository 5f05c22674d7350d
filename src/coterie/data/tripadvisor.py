"""TripAdvisor hotel ratings with context (Zheng, Mobasher and Burke 2014), out of the zip that they are distributed in.

A user's state and time zone become features, a hotel's city and state its categories. The trip type belongs to one visit,
not to the user or the hotel: summed up for either it would tell of the visits that are held out, so it is left alone.
There are no times.
"""

from __future__ import annotations

from pathlib import Path

from coterie.data import files
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.table import Layout, Table, read_table

ARCHIVE = "Travel_TripAdvisor_v2.zip"
RATINGS = "Data_TripAdvisor_v2.csv"
COLUMNS = {"user_id": "UserID", "item_id": "ItemID", "rating": "Rating"}
OF_USERS = {"state": "UserState", "time_zone": "UserTimeZone"}
OF_ITEMS = ("ItemCity", "ItemState")


def read(place: Path, options: Reading) -> Interactions:
    table = _table(_unpacked(place), options)
    return (
        options.build(table).describe_items({}, _categories(table)).describe_users(_features(table))
    )


def _unpacked(place: Path) -> Path:
    """Where the ratings are: the file, folder or zip itself, or the zip that lies in the folder."""
    return place / ARCHIVE if place.is_dir() and not files.exists(place, RATINGS) else place


def _table(place: Path, options: Reading) -> Table:
    layout = Layout(columns=COLUMNS | options.columns, also=(*OF_USERS.values(), *OF_ITEMS))
    with files.open_member(place, RATINGS) as lines:
        return read_table(str(files.place_of(place, RATINGS)), lines, layout, options.skip_bad_rows)


def _categories(table: Table) -> dict[str, tuple[str, ...]]:
    columns = [table.columns[name] for name in OF_ITEMS if name in table.columns]
    return (
        dict(zip(table.columns["item_id"], zip(*columns, strict=True), strict=True))
        if columns
        else {}
    )


def _features(table: Table) -> dict[str, dict[str, str]]:
    return {
        feature: dict(zip(table.columns["user_id"], table.columns[name], strict=True))
        for feature, name in OF_USERS.items()
        if name in table.columns
    }
