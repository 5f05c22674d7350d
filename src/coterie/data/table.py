"""Turns cells into checked columns; an error names file, line, column, value, rule and remedy.

A column of a chunk is checked as a whole; only if that fails are its values checked one by one.
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
    """role -> column name, if the name is not the role itself."""
    parse_time: Callable[[str], float] | None = None
    """For times that are neither seconds nor ISO 8601."""
    clean_name: Callable[[str], str] = str.strip
    quoting: bool = True
    also: tuple[str, ...] = ()
    """Further columns to keep as texts, if the file has them."""
    other_files: dict[str, str] = field(default_factory=dict)
    """role -> the file of its column, if that is not the table's own file."""


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """Checked columns by role, and further columns by name."""

    source: str
    columns: dict[str, Ids]
    lines: Longs
    """The line number of every row."""
    skipped: dict[str, int]
    """Number of bad rows dropped, by rule."""

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{n:,} bad {'row' if n == 1 else 'rows'} skipped: {rule}"
            for rule, n in self.skipped.items()
        )


@dataclass(frozen=True, slots=True)
class Fault:
    """The first rule that a row breaks."""

    what: str
    rule: str
    source: str = ""
    """The file of the fault, if that is not the table's own file."""


Piece = tuple[Chunk, dict[int, Fault]]
"""A chunk of rows, and line -> fault of the rows that could not be split into cells."""


def read_table(
    source: str, lines: Iterable[str], layout: Layout, skip_bad_rows: bool = False
) -> CheckedTable:
    """Read interactions. The first bad row raises; with `skip_bad_rows` all are dropped."""
    stream = iter(lines)
    names = layout.names or _header(source, stream, layout)
    first = 1 if layout.names else 2
    split = chunks(source, stream, layout.separator, len(names), layout.quoting, first)
    pieces = ((chunk, _width_faults(chunk, len(names))) for chunk in split)
    return check_table(source, pieces, names, layout, skip_bad_rows)


def check_table(
    source: str, pieces: Iterable[Piece], names: Sequence[str], layout: Layout, skip_bad_rows: bool
) -> CheckedTable:
    """Check rows that are already split into cells."""
    by_role = column_positions(source, names, layout.columns)
    also = {name: list(names).index(name) for name in layout.also if name in names}
    positions = by_role | also
    parts: list[dict[str, Ids]] = []
    part_lines: list[Longs] = []
    skipped: Counter[str] = Counter()
    for chunk, unsplit in pieces:
        columns, cell_faults = _check(chunk, positions, names, layout)
        faults = cell_faults | unsplit
        if faults and not skip_bad_rows:
            raise _first_fault(faults, source)
        skipped.update(fault.rule for fault in faults.values())
        good = ~np.isin(chunk.lines, list(faults)) if faults else np.ones(len(chunk.lines), bool)
        parts.append({role: column[good] for role, column in columns.items()})
        part_lines.append(chunk.lines[good])
    if not sum(len(p) for p in part_lines):
        why = "contains no interactions"
        if skipped:
            why = f"all {sum(skipped.values()):,} rows were bad"
        raise DataError(
            f"{source}: {why}; expected at least one row of {', '.join(by_role)}. "
            "Check that it is the right file."
        )
    return CheckedTable(
        source,
        {role: np.concatenate([p[role] for p in parts]) for role in positions},
        np.concatenate(part_lines),
        dict(skipped),
    )


def _first_fault(faults: dict[int, Fault], source: str) -> DataError:
    line = min(faults)
    fault = faults[line]
    return DataError(
        f"{fault.source or source}:{line}: {fault.what}; {fault.rule}. "
        "Fix the row or pass --skip-bad-rows."
    )


def refuse_duplicates(table: CheckedTable) -> None:
    """For the policy `duplicates: error`: reject the first pair that occurs twice."""
    first: dict[tuple[str, str], int] = {}
    users = table.columns["user_id"].tolist()
    items = table.columns["item_id"].tolist()
    for user, item, line in zip(users, items, table.lines.tolist(), strict=True):
        if (user, item) in first:
            raise DataError(
                f"{table.source}:{line}: user {user!r} and item {item!r} are already on line "
                f"{first[user, item]}; "
                "expected distinct pairs. Remove one or set duplicates=newest."
            )
        first[user, item] = line


def read_lookup(lines: Iterable[str], separator: str, n_columns: int) -> Iterator[list[str]]:
    """Rows of a side file (titles, demographics); rows of another width are skipped."""
    for line in lines:
        cells = line.rstrip("\r\n").split(separator)
        if len(cells) == n_columns:
            yield cells


def column_positions(source: str, names: Sequence[str], columns: dict[str, str]) -> dict[str, int]:
    """role -> position. Users, items and all columns named in `columns` are required."""
    if unknown := set(columns) - set(ROLES):
        raise DataError(
            f"--columns names the role {min(unknown)!r}; expected one of {', '.join(ROLES)}. "
            f"{did_you_mean(min(unknown), ROLES)}"
        )
    positions = {}
    for role in ROLES:
        name = columns.get(role, role)
        if name in names:
            positions[role] = list(names).index(name)
        elif role in ("user_id", "item_id") or role in columns:
            raise DataError(
                f"{source}:1: there is no column {name!r} for {role}; "
                f"the file has {', '.join(map(repr, names[:12]))}. "
                f"Pass --columns {role}=NAME. {did_you_mean(name, names)}"
            )
    return positions


def check_ratings(numbers: Doubles) -> tuple[Ids, Bools, str]:
    """(values, mask of bad values, the rule they break)."""
    return numbers, ~(np.abs(numbers) <= np.finfo(np.float32).max), "expected a number"


def check_times(numbers: Doubles) -> tuple[Ids, Bools, str]:
    """(values, mask of bad values, the rule they break)."""
    bad = ~((numbers >= 0) & (numbers <= LATEST))  # also true for NaN
    times = np.where(bad, 0, numbers).astype(np.int64)
    return times, bad, "expected seconds since 1970 (not milliseconds) or ISO 8601, before 2100"


def _header(source: str, lines: Iterator[str], layout: Layout) -> tuple[str, ...]:
    line = next(lines, "")
    if not line.strip():
        raise DataError(
            f"{source}: is empty; expected a header and one interaction per row. "
            "Check that it is the right file."
        )
    if not _is_text(line):
        raise DataError(
            f"{source}:1: the header {shown(line.strip())} is not UTF-8; expected UTF-8 text. "
            "Save the file as UTF-8."
        )
    try:
        cells = split_line(line, layout.separator, layout.quoting)
    except csv.Error as error:
        raise DataError(
            f"{source}:1: the header {shown(line.strip())} cannot be split ({error}); "
            f"expected names separated by {layout.separator!r}. Look for a stray quote."
        ) from None
    return tuple(layout.clean_name(name) for name in cells)


def _check(
    chunk: Chunk, positions: dict[str, int], names: Sequence[str], layout: Layout
) -> tuple[dict[str, Ids], dict[int, Fault]]:
    """Columns by role, and the first fault of every bad line."""
    faults: dict[int, Fault] = {}
    columns: dict[str, Ids] = {}
    for role, position in positions.items():
        cells = chunk.columns[position]
        columns[role], broken, rule = _check_column(role, cells, layout)
        for r in np.flatnonzero(broken):
            what = f"column {names[position]!r} is {shown(cells[r])}"
            why = rule if _is_text(cells[r]) else NOT_TEXT
            fault = Fault(what, why, layout.other_files.get(role, ""))
            faults.setdefault(int(chunk.lines[r]), fault)
    return columns, faults


def _width_faults(chunk: Chunk, width: int) -> dict[int, Fault]:
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
    """Seconds since 1970 from a column of numbers, texts or datetimes; NaN for invalid values."""
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
    if "_" in cell:  # float() accepts 1_000, but in a data file it is a mistake
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
    """A value for a message: quoted, and truncated if it is long."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")
