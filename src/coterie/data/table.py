"""Cells to checked columns. A bad row is named by file, line, column, value, rule and remedy.

A column of a chunk is checked at once; only where it fails is it looked at value by value.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.cells import Chunk, chunks, split_line
from coterie.errors import DataError, did_you_mean
from coterie.types import Bools, Doubles, Ids, Longs

if TYPE_CHECKING:
    import pandas as pd

LATEST = 4_102_444_800  # 2100-01-01
NOT_TEXT = "expected UTF-8 text"
ROLES = ("user_id", "item_id", "rating", "timestamp")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is laid out."""

    separator: str = ","
    names: tuple[str, ...] | None = None
    """Column names of a file without a header."""
    columns: dict[str, str] = field(default_factory=dict)
    """role -> column name, where the name is not the role itself."""
    parse_time: Callable[[str], float] | None = None
    """For times that are neither seconds nor ISO 8601."""
    clean_name: Callable[[str], str] = str.strip
    quoting: bool = True
    also: tuple[str, ...] = ()
    """Further columns to keep as texts, where the file has them."""
    beside: dict[str, str] = field(default_factory=dict)
    """role -> the file its column stands in, where that is another than the table's own."""


@dataclass(frozen=True, slots=True)
class Table:
    """Checked columns by role (further ones by name); `lines` says where each row stood."""

    source: str
    columns: dict[str, Ids]
    lines: Longs
    skipped: dict[str, int]
    """Bad rows dropped, by rule."""

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{n:,} bad {'row' if n == 1 else 'rows'} skipped: {rule}"
            for rule, n in self.skipped.items()
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one row."""

    what: str
    rule: str
    source: str = ""
    """The file it stands in, where that is another than the table's own."""


Piece = tuple[Chunk, dict[int, Fault]]
"""Some rows, and by line what is wrong with those that could not even be split into cells."""


def read_table(
    source: str, lines: Iterable[str], layout: Layout, skip_bad_rows: bool = False
) -> Table:
    """Read interactions; the first bad row raises, or all are counted and dropped."""
    stream = iter(lines)
    names = layout.names or _header(source, stream, layout)
    split = chunks(
        source, stream, layout.separator, len(names), layout.quoting, 1 if layout.names else 2
    )
    return check_table(
        source, ((c, _of_wrong_width(c, len(names))) for c in split), names, layout, skip_bad_rows
    )


def check_table(
    source: str, pieces: Iterable[Piece], names: Sequence[str], layout: Layout, skip_bad_rows: bool
) -> Table:
    """A table of rows that are split into cells already."""
    where = places(source, names, layout.columns)
    kept = where | {name: list(names).index(name) for name in layout.also if name in names}
    parts: list[dict[str, Ids]] = []
    part_lines: list[Longs] = []
    skipped: Counter[str] = Counter()
    for chunk, unsplit in pieces:
        columns, found = _check(chunk, kept, names, layout)
        faults = found | unsplit
        if faults and not skip_bad_rows:
            raise _first(faults, source)
        skipped.update(fault.rule for fault in faults.values())
        good = ~np.isin(chunk.lines, list(faults)) if faults else np.ones(len(chunk.lines), bool)
        parts.append({role: column[good] for role, column in columns.items()})
        part_lines.append(chunk.lines[good])
    if not sum(len(p) for p in part_lines):
        why = f"all {sum(skipped.values()):,} rows were bad" if skipped else "holds no interactions"
        raise DataError(
            f"{source}: {why}; expected at least one row of {', '.join(where)}. Check that it is the right file."
        )
    return Table(
        source,
        {role: np.concatenate([p[role] for p in parts]) for role in kept},
        np.concatenate(part_lines),
        dict(skipped),
    )


def _first(faults: dict[int, Fault], source: str) -> DataError:
    line = min(faults)
    place = f"{faults[line].source or source}:{line}"
    return DataError(
        f"{place}: {faults[line].what}; {faults[line].rule}. Fix the row or pass --skip-bad-rows."
    )


def refuse_duplicates(table: Table) -> None:
    """For the policy `duplicates: error`: name the first pair that stands twice."""
    first: dict[tuple[str, str], int] = {}
    pairs = table.columns["user_id"].tolist(), table.columns["item_id"].tolist()
    for user, item, line in zip(*pairs, table.lines.tolist(), strict=True):
        if (user, item) in first:
            raise DataError(
                f"{table.source}:{line}: user {user!r} and item {item!r} stood on line {first[user, item]} already; "
                "expected distinct pairs. Remove one or set duplicates=newest."
            )
        first[user, item] = line


def read_lookup(lines: Iterable[str], separator: str, n_columns: int) -> Iterator[list[str]]:
    """Rows of a side file (titles, demographics); rows of another width are passed over."""
    for line in lines:
        cells = line.rstrip("\r\n").split(separator)
        if len(cells) == n_columns:
            yield cells


def places(source: str, names: Sequence[str], columns: dict[str, str]) -> dict[str, int]:
    """role -> position. Users and items are required; a column that is asked for by name must exist."""
    if unknown := set(columns) - set(ROLES):
        raise DataError(
            f"--columns names the role {min(unknown)!r}; expected one of {', '.join(ROLES)}. {did_you_mean(min(unknown), ROLES)}"
        )
    found = {}
    for role in ROLES:
        name = columns.get(role, role)
        if name in names:
            found[role] = list(names).index(name)
        elif role in ("user_id", "item_id") or role in columns:
            raise DataError(
                f"{source}:1: there is no column {name!r} for {role}; the file has {', '.join(map(repr, names[:12]))}. "
                f"Pass --columns {role}=NAME. {did_you_mean(name, names)}"
            )
    return found


def check_ratings(numbers: Doubles) -> tuple[Ids, Bools, str]:
    """(values, which are bad, the rule they break)."""
    return numbers, ~(np.abs(numbers) <= np.finfo(np.float32).max), "expected a number"


def check_times(numbers: Doubles) -> tuple[Ids, Bools, str]:
    absurd = ~((numbers >= 0) & (numbers <= LATEST))  # NaN is absurd too
    return (
        np.where(absurd, 0, numbers).astype(np.int64),
        absurd,
        "expected seconds since 1970 (not milliseconds) or ISO 8601, before 2100",
    )


def _header(source: str, lines: Iterator[str], layout: Layout) -> tuple[str, ...]:
    line = next(lines, "")
    if not line.strip():
        raise DataError(
            f"{source}: is empty; expected a header and one interaction a row. Check that it is the right file."
        )
    if not _is_text(line):
        raise DataError(
            f"{source}:1: the header {shown(line.strip())} is not UTF-8; expected UTF-8 text. Save the file as UTF-8."
        )
    try:
        return tuple(
            layout.clean_name(name) for name in split_line(line, layout.separator, layout.quoting)
        )
    except csv.Error as error:
        raise DataError(
            f"{source}:1: the header {shown(line.strip())} cannot be split ({error}); expected names parted by {layout.separator!r}. Look for a stray quote."
        ) from None


def _check(
    chunk: Chunk, where: dict[str, int], names: Sequence[str], layout: Layout
) -> tuple[dict[str, Ids], dict[int, Fault]]:
    """Columns by role, and the first fault of every bad line."""
    faults: dict[int, Fault] = {}
    columns: dict[str, Ids] = {}
    for role, place in where.items():
        cells = chunk.columns[place]
        columns[role], broken, rule = _check_column(role, cells, layout)
        for r in np.flatnonzero(broken):
            why = rule if _is_text(cells[r]) else NOT_TEXT
            fault = Fault(
                f"column {names[place]!r} is {shown(cells[r])}", why, layout.beside.get(role, "")
            )
            faults.setdefault(int(chunk.lines[r]), fault)
    return columns, faults


def _of_wrong_width(chunk: Chunk, width: int) -> dict[int, Fault]:
    return {
        line: Fault(f"{n} columns", f"expected {width} columns") for line, n in chunk.wrong.items()
    }


def _check_column(role: str, cells: list[str], layout: Layout) -> tuple[Ids, Bools, str]:
    if role in ("user_id", "item_id"):
        return _ids(cells)
    if role == "rating":
        return check_ratings(_numbers(cells, _number))
    if role in layout.also:
        return _texts(cells)
    return check_times(_numbers(cells, layout.parse_time or time_of))


def _ids(cells: list[str]) -> tuple[Ids, Bools, str]:
    text = "".join(cells)
    if all(cells) and text.isascii() and not any(space in text for space in " \t\r\n\v\f"):
        return np.array(cells, dtype=object), np.zeros(len(cells), bool), ""
    stripped = np.array([c.strip() for c in cells], dtype=object)
    return stripped, np.array([not c or not _is_text(c) for c in stripped], bool), "expected an id"


def _texts(cells: list[str]) -> tuple[Ids, Bools, str]:
    bad = np.array([not _is_text(c) for c in cells], bool)
    return np.array([c.strip() for c in cells], dtype=object), bad, NOT_TEXT


def _numbers(cells: list[str], parse: Callable[[str], float]) -> Doubles:
    try:
        if parse not in (_number, time_of) or "_" in "".join(cells):
            raise ValueError
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array([or_nan(parse, cell) for cell in cells], dtype=np.float64)


def seconds_of(column: pd.Series) -> Doubles:
    """Seconds since 1970 of numbers, texts or moments of a data frame; NaN where there is none."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        moments = pd.to_datetime(column, utc=True).dt.tz_localize(None).astype("datetime64[s]")
        return np.where(column.isna(), np.nan, moments.astype("int64").to_numpy(np.float64))
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64).copy()
    for r in np.flatnonzero(np.isnan(numbers)):
        numbers[r] = or_nan(time_of, str(column.iloc[r]))
    return numbers


def or_nan(parse: Callable[[str], float], cell: str) -> float:
    try:
        return parse(cell)
    except (ValueError, OverflowError, KeyError):
        return math.nan


def _number(cell: str) -> float:
    if "_" in cell:  # Python reads 1_000 as a number; a data file that holds it is odd
        raise ValueError
    return float(cell)


def time_of(cell: str) -> float:
    try:
        return _number(cell)
    except ValueError:
        moment = datetime.fromisoformat(cell.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _is_text(cell: str) -> bool:
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(cell: str) -> str:
    """A value in a message: quoted, and cut where it is long."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")
