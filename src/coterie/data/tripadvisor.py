"""TripAdvisor hotel ratings with context (Zheng, Mobasher and Burke 2014), in their original zip.

A user's state and time zone become features; a hotel's city and state become categories. The trip
type is not used: it belongs to a single visit, and aggregated per user or hotel it would leak
held-out visits. There are no times.
"""

from __future__ import annotations

from pathlib import Path

from coterie.data import files
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import CheckedTable, Layout, read_table

ARCHIVE = "Travel_TripAdvisor_v2.zip"
RATINGS = "Data_TripAdvisor_v2.csv"
COLUMNS = {"user_id": "UserID", "item_id": "ItemID", "rating": "Rating"}
OF_USERS = {"state": "UserState", "time_zone": "UserTimeZone"}
OF_ITEMS = ("ItemCity", "ItemState")


def read(path: Path, options: ReadOptions) -> Interactions:
    table = _table(_with_ratings(path), options)
    data = options.build(table)
    return data.describe_items({}, _categories(table)).describe_users(_features(table))


def _with_ratings(path: Path) -> Path:
    """The path that contains the ratings: the given one, or the zip in the given folder."""
    return path / ARCHIVE if path.is_dir() and not files.exists(path, RATINGS) else path


def _table(path: Path, options: ReadOptions) -> CheckedTable:
    layout = Layout(columns=COLUMNS | options.columns, also=(*OF_USERS.values(), *OF_ITEMS))
    with files.open_member(path, RATINGS) as lines:
        return read_table(str(files.path_of(path, RATINGS)), lines, layout, options.skip_bad_rows)


def _categories(table: CheckedTable) -> dict[str, tuple[str, ...]]:
    columns = [table.columns[name] for name in OF_ITEMS if name in table.columns]
    if not columns:
        return {}
    return dict(zip(table.columns["item_id"], zip(*columns, strict=True), strict=True))


def _features(table: CheckedTable) -> dict[str, dict[str, str]]:
    return {
        feature: dict(zip(table.columns["user_id"], table.columns[name], strict=True))
        for feature, name in OF_USERS.items()
        if name in table.columns
    }
