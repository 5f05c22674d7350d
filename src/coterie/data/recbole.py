"""RecBole's atomic files: `NAME.inter` with typed headers (`user_id:token`), `NAME.item` and `NAME.user` beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.table import Layout, read_lookup, read_table

TEXTS = ("movie_title", "title", "name")
CATEGORIES = ("class", "genre", "genres", "categories", "category")


def read(path: Path, options: Reading) -> Interactions:
    name = path.name.removesuffix(".gz")
    return read_member(path if path.suffix == ".zip" else path.parent, name, options)


def read_member(place: Path, name: str, options: Reading, user_prefix: str = "") -> Interactions:
    """A set of atomic files in a folder or a zip. Some packagings put a word before every user id."""
    layout = Layout("\t", columns=options.columns, clean_name=_field, quoting=False)
    with files.open_member(place, name) as lines:
        table = read_table(str(files.place_of(place, name)), lines, layout, options.skip_bad_rows)
    users = np.array([u.removeprefix(user_prefix) for u in table.columns["user_id"]], dtype=object)
    data = options.build(replace(table, columns=table.columns | {"user_id": users}))
    stem = name.removesuffix(".inter")
    return _with_users(_with_items(data, place, f"{stem}.item"), place, f"{stem}.user")


def _with_items(data: Interactions, folder: Path, name: str) -> Interactions:
    table = _side_table(folder, name)
    text = next((table[t] for t in TEXTS if t in table), {})
    category = next((table[c] for c in CATEGORIES if c in table), {})
    return data.describe_items(
        text, {item: tuple(names.split()) for item, names in category.items()}
    )


def _with_users(data: Interactions, folder: Path, name: str) -> Interactions:
    return data.describe_users(_side_table(folder, name))


def _side_table(folder: Path, name: str) -> dict[str, dict[str, str]]:
    """{field: {id: value}} of a side file whose first column is the id; empty where there is no such file."""
    if not files.exists(folder, name):
        return {}
    with files.open_member(folder, name) as lines:
        header = [_field(f) for f in next(lines, "").rstrip("\r\n").split("\t")]
        rows = list(read_lookup(lines, "\t", len(header)))
    return {f: {row[0]: row[i] for row in rows} for i, f in enumerate(header) if i}


def _field(name: str) -> str:
    return name.strip().split(":")[0]
