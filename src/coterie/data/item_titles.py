"""Titles of items from any table: csv, tsv, semicolons, bars or parquet, with or without a header.

The column of item ids is the one with the most ids of the model; the column of titles is the one
named so, or the one with the most letters. Both can be named.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.data import parquet
from coterie.data.files import open_text
from coterie.data.first_line import SEPARATORS
from coterie.errors import DataError, UnknownName
from coterie.types import Ids

TITLE_NAMES = ("title", "name", "text", "label", "description")
"""A column whose name has one of these words holds titles; earlier words count first."""


@dataclass(frozen=True, slots=True)
class ItemTable:
    """The cells of a file, as texts."""

    path: Path
    names: list[str]
    rows: list[list[str]]

    def column(self, position: int) -> list[str]:
        return [row[position] if position < len(row) else "" for row in self.rows]

    def position(self, name: str) -> int:
        """Where a column is, by its name or by its number from 1."""
        if name in self.names:
            return self.names.index(name)
        if name.isdigit() and 1 <= int(name) <= len(self.names):
            return int(name) - 1
        raise UnknownName("column", name, self.names, f" in {self.path}")


def read_titles(
    path: Path, item_ids: Ids, item_column: str | None = None, title_column: str | None = None
) -> Ids:
    """The title of every item id; empty for an item that the file does not have."""
    wanted = {str(item) for item in item_ids}
    table = _read(path, wanted)
    ids = table.position(item_column) if item_column else _id_column(table, wanted)
    titles = table.position(title_column) if title_column else _title_column(table, ids)
    known = dict(zip(table.column(ids), table.column(titles), strict=True))
    if not wanted & known.keys():
        raise DataError(
            f"{path}: column {table.names[ids]!r} has none of the run's {len(wanted):,} items; "
            f"expected their ids, such as {item_ids[0]!s}. Name another with --item-column."
        )
    return np.array([known.get(str(item), "") for item in item_ids], dtype=object)


def _read(path: Path, wanted: set[str]) -> ItemTable:
    if path.suffix.lower() == ".parquet":
        return _read_parquet(path)
    rows = _cells(path, "utf-8-sig")
    if any("\udc80" <= letter <= "\udcff" for row in rows for cell in row for letter in cell):
        rows = _cells(path, "latin-1")
    if not rows:
        raise DataError(f"{path}: is empty; expected items and titles. Check the path.")
    # A first line that holds an item is not a header.
    if wanted & set(rows[0]):
        return ItemTable(path, [str(k + 1) for k in range(len(rows[0]))], rows)
    return ItemTable(path, [name.strip() for name in rows[0]], rows[1:])


def _cells(path: Path, encoding: str) -> list[list[str]]:
    with open_text(path, encoding=encoding) as lines:
        text = lines.read()
    first = text[: text.find("\n")] if "\n" in text else text
    separator = max(SEPARATORS, key=first.count)
    try:
        # \r\n and \n both end a line; a quoted cell may hold them.
        table = csv.reader(text.splitlines(keepends=True), delimiter=separator)
        return [row for row in table if row]
    except csv.Error as error:
        raise DataError(
            f"{path}: cannot be split into cells ({error}); expected a table. Convert it to csv."
        ) from None


def _read_parquet(path: Path) -> ItemTable:
    frame = parquet.load(path)
    cells = frame.astype(object).where(frame.notna(), "").astype(str).to_numpy().tolist()
    return ItemTable(path, [str(name) for name in frame.columns], cells)


def _id_column(table: ItemTable, wanted: set[str]) -> int:
    """The column with the most different ids of the model."""
    found = [len(wanted & set(table.column(k))) for k in range(len(table.names))]
    return int(np.argmax(found))


def _title_column(table: ItemTable, ids: int) -> int:
    others = [k for k in range(len(table.names)) if k != ids]
    if not others:
        raise DataError(
            f"{table.path}: has one column, {table.names[0]!r}; expected item ids and titles. "
            "Name a file with both."
        )
    for word in TITLE_NAMES:
        named = [k for k in others if word in table.names[k].lower()]
        if named:
            return named[0]
    return max(others, key=lambda k: _letters(table.column(k)))


def _letters(cells: Sequence[str]) -> int:
    """How many letters different cells have: titles differ, categories repeat. Links are none."""
    titles = {cell for cell in cells if "://" not in cell}
    return sum(letter.isalpha() for cell in titles for letter in cell)
