"""Reads small CSV or TSV files about users or items; every error names the line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.core.missing_files import refuse_missing
from coterie.core.progress import Progress
from coterie.errors import DataError
from coterie.types import Bools, Doubles, Ids, Longs


@dataclass(frozen=True, slots=True)
class TextTable:
    """A small file as columns of texts, with the line number of every row."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def numbers(self, column: str, rule: str, fits: Callable[[Doubles], Bools]) -> Doubles:
        import pandas as pd

        cells = pd.Series(self.columns[column], dtype=object)
        values = pd.to_numeric(cells, errors="coerce").to_numpy(np.float64)
        with np.errstate(invalid="ignore"):
            bad = np.flatnonzero(~fits(values))
        if bad.size:
            line = self.lines[bad[0]]
            value = self.columns[column][bad[0]]
            raise DataError(
                f"{self.path}: line {line}, column {column!r} is {value!r}; expected {rule}. "
                "Change it."
            )
        return values


def small_table(path: Path, needed: tuple[str, ...], expected: str) -> TextTable:
    rows = [
        (line, [cell.strip() for cell in cells])
        for line, cells in _rows(path)
        if any(map(str.strip, cells))
    ]
    if not rows:
        raise DataError(f"{path}: is empty; expected a header and rows of {expected}. Fill it.")
    _, names = rows[0]
    rest = rows[1:]
    if missing := [name for name in needed if name not in names]:
        raise DataError(
            f"{path}: has the header {', '.join(names)}; "
            f"expected {expected}, separated by commas or tabs. Add {missing[0]}."
        )
    if not rest:
        raise DataError(
            f"{path}: has a header and no rows; expected {expected} of at least one user. Fill it."
        )
    for line, cells in rest:
        if len(cells) != len(names):
            raise DataError(
                f"{path}: line {line} has {len(cells)} cells; "
                f"expected {len(names)} as in the header. Fix it."
            )
    columns = {name: [cells[n] for _, cells in rest] for n, name in enumerate(names)}
    return TextTable(path, columns, [line for line, _ in rest])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells); the separator is a tab if the header contains one, else a comma."""
    refuse_missing(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            tabs = "\t" in file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter="\t" if tabs else ",")
            for cells in reader:
                yield reader.line_num, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). Expected a CSV or TSV file of UTF-8 text."
        ) from None


def known_ids(table: TextTable, column: str, ids: Ids, progress: Progress) -> Longs:
    """The indices of the ids in a column; -1 for ids that are not in the data, which is logged."""
    import pandas as pd

    named = table.columns[column]
    known = pd.Index(ids.astype(str))
    indices: Longs = known.get_indexer(pd.Index(named, dtype=object)).astype(np.int64)
    unknown = np.flatnonzero(indices < 0)
    if len(unknown) == len(indices):
        raise DataError(
            f"{table.path}: no value of column {column!r} is in the data (first: {named[0]}). "
            "Check the ids."
        )
    if unknown.size:
        progress.log(
            f"{table.path}: {unknown.size:,} of {len(indices):,} values of column {column!r} "
            f"are not in the data, such as {named[unknown[0]]}"
        )
    return indices
