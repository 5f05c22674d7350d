"""Reads MovieLens 100K and 1M as GroupLens distributes them (folder or zip) or as RecBole does."""

from __future__ import annotations

from pathlib import Path

from coterie.data import files, recbole
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import Layout, read_lookup, read_table

COLUMNS = ("user_id", "item_id", "rating", "timestamp")
SIDE_ENCODING = "latin-1"  # titles are older than UTF-8
N_GENRES = 19


def read_100k(path: Path, options: ReadOptions) -> Interactions:
    if files.exists(path, "ml-100k.inter"):
        return recbole.read_member(files.home(path), "ml-100k.inter", options)
    data = _ratings(path, "u.data", "\t", options)
    home = files.home(path)
    genres = [row[0] for row in _side_rows(home, "u.genre", "|", 2)]
    items = _side_rows(home, "u.item", "|", 5 + N_GENRES)
    titles = {row[0]: row[1] for row in items}
    categories = {
        row[0]: tuple(g for g, flag in zip(genres, row[5:], strict=False) if flag == "1")
        for row in items
    }
    users = _side_rows(home, "u.user", "|", 5)
    features = _features(users, ("age", "gender", "occupation", "zip_code"))
    return data.describe_items(titles, categories).describe_users(features)


def read_1m(path: Path, options: ReadOptions) -> Interactions:
    if files.exists(path, "ml-1m.inter"):
        # This package uses titles as item ids; the interactions are the same.
        return recbole.read_member(files.home(path), "ml-1m.inter", options, user_prefix="1m_")
    data = _ratings(path, "ratings.dat", "::", options)
    home = files.home(path)
    items = _side_rows(home, "movies.dat", "::", 3)
    titles = {row[0]: row[1] for row in items}
    categories = {row[0]: tuple(row[2].split("|")) for row in items}
    users = _side_rows(home, "users.dat", "::", 5)
    features = _features(users, ("gender", "age", "occupation", "zip_code"))
    return data.describe_items(titles, categories).describe_users(features)


def _features(users: list[list[str]], names: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """{feature: {user id: value}}; the id is the first column, the features follow."""
    return {name: {row[0]: row[i] for row in users} for i, name in enumerate(names, 1)}


def _ratings(path: Path, name: str, separator: str, options: ReadOptions) -> Interactions:
    layout = Layout(separator, names=COLUMNS, columns=options.columns, quoting=False)
    source = str(files.path_of(path, name))
    with files.open_member(path, name) as lines:
        return options.build(read_table(source, lines, layout, options.skip_bad_rows))


def _side_rows(path: Path, name: str, separator: str, width: int) -> list[list[str]]:
    if not files.exists(path, name):
        return []
    with files.open_member(path, name, SIDE_ENCODING) as lines:
        return list(read_lookup(lines, separator, width))
