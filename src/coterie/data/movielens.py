"""MovieLens 100K and 1M as GroupLens distributes them (folder or zip), or as RecBole packages them."""

from __future__ import annotations

from pathlib import Path

from coterie.data import files, recbole
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.table import Layout, read_lookup, read_table

COLUMNS = ("user_id", "item_id", "rating", "timestamp")
SIDE_ENCODING = "latin-1"  # titles are older than UTF-8
N_GENRES = 19


def read_100k(place: Path, options: Reading) -> Interactions:
    if files.exists(place, "ml-100k.inter"):
        return recbole.read_member(files.home(place), "ml-100k.inter", options)
    data = _ratings(place, "u.data", "\t", options)
    home = files.home(place)
    genres = [row[0] for row in _side(home, "u.genre", "|", 2)]
    items = _side(home, "u.item", "|", 5 + N_GENRES)
    categories = {
        row[0]: tuple(g for g, flag in zip(genres, row[5:], strict=False) if flag == "1")
        for row in items
    }
    users = _side(home, "u.user", "|", 5)
    return data.describe_items({row[0]: row[1] for row in items}, categories).describe_users(
        {
            name: {row[0]: row[i] for row in users}
            for i, name in enumerate(("age", "gender", "occupation", "zip_code"), 1)
        }
    )


def read_1m(place: Path, options: Reading) -> Interactions:
    if files.exists(place, "ml-1m.inter"):
        # this packaging names items by their titles; the interactions are the same
        return recbole.read_member(files.home(place), "ml-1m.inter", options, user_prefix="1m_")
    data = _ratings(place, "ratings.dat", "::", options)
    home = files.home(place)
    items = _side(home, "movies.dat", "::", 3)
    users = _side(home, "users.dat", "::", 5)
    return data.describe_items(
        {row[0]: row[1] for row in items}, {row[0]: tuple(row[2].split("|")) for row in items}
    ).describe_users(
        {
            name: {row[0]: row[i] for row in users}
            for i, name in enumerate(("gender", "age", "occupation", "zip_code"), 1)
        }
    )


def _ratings(place: Path, name: str, separator: str, options: Reading) -> Interactions:
    layout = Layout(separator, names=COLUMNS, columns=options.columns, quoting=False)
    source = str(files.place_of(place, name))
    with files.open_member(place, name) as lines:
        return options.build(read_table(source, lines, layout, options.skip_bad_rows))


def _side(place: Path, name: str, separator: str, width: int) -> list[list[str]]:
    if not files.exists(place, name):
        return []
    with files.open_member(place, name, SIDE_ENCODING) as lines:
        return list(read_lookup(lines, separator, width))
