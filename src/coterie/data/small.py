"""Small files that say something about people or items: CSV or TSV with a header, every fault named by its line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.core.progress import Progress
from coterie.errors import DataError
from coterie.types import Bools, Doubles, Ids, Longs


@dataclass(frozen=True, slots=True)
class Texts:
    """A small file as columns of texts, each with the line it stood on."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def numbers(self, column: str, rule: str, fits: Callable[[Doubles], Bools]) -> Doubles:
        import pandas as pd

        values = pd.to_numeric(
            pd.Series(self.columns[column], dtype=object), errors="coerce"
        ).to_numpy(np.float64)
        with np.errstate(invalid="ignore"):
            bad = np.flatnonzero(~fits(values))
        if bad.size:
            where = self.lines[bad[0]]
            what = self.columns[column][bad[0]]
            raise DataError(
                f"{self.path}: line {where}, column {column!r} is {what!r}; expected {rule}. Change it."
            )
        return values


def small_table(path: Path, needed: tuple[str, ...], expected: str) -> Texts:
    rows = [
        (number, [cell.strip() for cell in cells])
        for number, cells in _rows(path)
        if any(map(str.strip, cells))
    ]
    if not rows:
        raise DataError(f"{path}: is empty; expected a header and rows of {expected}. Fill it.")
    (_, names) = rows[0]
    rest = rows[1:]
    if missing := [name for name in needed if name not in names]:
        raise DataError(
            f"{path}: has the header {', '.join(names)}; expected {expected}, separated by commas or tabs. Add {missing[0]}."
        )
    if not rest:
        raise DataError(
            f"{path}: has a header and no rows; expected {expected} of at least one user. Fill it."
        )
    for number, cells in rest:
        if len(cells) != len(names):
            raise DataError(
                f"{path}: line {number} has {len(cells)} cells; expected {len(names)} as in the header. Fix it."
            )
    columns = {name: [cells[n] for _, cells in rest] for n, name in enumerate(names)}
    return Texts(path, columns, [number for number, _ in rest])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells); tabs separate where the header has one."""
    if not path.exists():
        raise DataError(f"{path}: does not exist. Check the path.")
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


def known_ids(table: Texts, column: str, ids: Ids, progress: Progress) -> Longs:
    """The numbers of ids; -1 of those that are not in the data, which is said once."""
    import pandas as pd

    named = table.columns[column]
    places: Longs = (
        pd.Index(ids.astype(str)).get_indexer(pd.Index(named, dtype=object)).astype(np.int64)
    )
    strange = np.flatnonzero(places < 0)
    if len(strange) == len(places):
        raise DataError(
            f"{table.path}: nothing in column {column!r} is in the data (first: {named[0]}). Check the ids."
        )
    if strange.size:
        progress.log(
            f"{table.path}: {strange.size:,} of {len(places):,} in column {column!r} are not in the data, such as {named[strange[0]]}"
        )
    return places
