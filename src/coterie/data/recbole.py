"""Reads RecBole's atomic files: `NAME.inter`, and `NAME.item` and `NAME.user` if they exist.

Headers are typed, such as `user_id:token`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import Layout, read_lookup, read_table

TEXTS = ("movie_title", "title", "name")
CATEGORIES = ("class", "genre", "genres", "categories", "category")


def read(path: Path, options: ReadOptions) -> Interactions:
    name = path.name.removesuffix(".gz")
    return read_member(path if path.suffix == ".zip" else path.parent, name, options)


def read_member(path: Path, name: str, options: ReadOptions, user_prefix: str = "") -> Interactions:
    """Read atomic files in a folder or a zip. Some packages put a prefix before every user id."""
    layout = Layout("\t", columns=options.columns, clean_name=_field, quoting=False)
    with files.open_member(path, name) as lines:
        table = read_table(str(files.path_of(path, name)), lines, layout, options.skip_bad_rows)
    users = np.array([u.removeprefix(user_prefix) for u in table.columns["user_id"]], dtype=object)
    data = options.build(replace(table, columns=table.columns | {"user_id": users}))
    stem = name.removesuffix(".inter")
    return _with_users(_with_items(data, path, f"{stem}.item"), path, f"{stem}.user")


def _with_items(data: Interactions, folder: Path, name: str) -> Interactions:
    table = _side_table(folder, name)
    text = next((table[t] for t in TEXTS if t in table), {})
    category = next((table[c] for c in CATEGORIES if c in table), {})
    categories = {item: tuple(names.split()) for item, names in category.items()}
    return data.describe_items(text, categories)


def _with_users(data: Interactions, folder: Path, name: str) -> Interactions:
    return data.describe_users(_side_table(folder, name))


def _side_table(folder: Path, name: str) -> dict[str, dict[str, str]]:
    """{field: {id: value}} of a side file whose first column is the id; {} if it is missing."""
    if not files.exists(folder, name):
        return {}
    with files.open_member(folder, name) as lines:
        header = [_field(f) for f in next(lines, "").rstrip("\r\n").split("\t")]
        rows = list(read_lookup(lines, "\t", len(header)))
    return {f: {row[0]: row[i] for row in rows} for i, f in enumerate(header) if i}


def _field(name: str) -> str:
    return name.strip().split(":")[0]
