"""Turns cells into checked columns; an error names file, line, column, value, rule and remedy.

A column of a chunk is checked as a whole; only if that fails are its values checked one by one.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from coterie.data.cells import Chunk, chunks, split_line
from coterie.data.coded import CodedColumn
from coterie.data.read_facts import ReadFacts, SkippedReason, UsedColumn
from coterie.errors import DataError, did_you_mean
from coterie.types import Bools, Doubles, Ids, Longs

LATEST = 4_102_444_800  # 2100-01-01
NOT_TEXT = "expected UTF-8 text"
IN_SECONDS = "expected seconds since 1970 (not milliseconds) or ISO 8601, before 2100"
"""The rule for times of datasets with a format of their own, whose unit is known."""
ROLES = ("user_id", "item_id", "rating", "timestamp")
REQUIRED = ("user_id", "item_id")
MOST_LINES_SHOWN = 5


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
    skipped_lines: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """The first lines of bad rows, by rule, if the rows are of one file."""
    coded: dict[str, CodedColumn] = field(default_factory=dict)
    """Columns of ids that were read as codes; they are not in `columns`."""
    reading: tuple[str, ...] = ()
    """How the file was read, for display."""
    used: dict[str, UsedColumn] = field(default_factory=dict)
    """role -> its column, if every row of the table is a row of one file."""

    @property
    def facts(self) -> ReadFacts | None:
        if not self.used:
            return None
        return ReadFacts(
            rows=len(self.lines) + sum(self.skipped.values()),
            skipped=tuple(
                SkippedReason(reason=rule, rows=n, lines=self.skipped_lines.get(rule, ()))
                for rule, n in self.skipped.items()
            ),
            columns=self.used,
        )

    def ids(self, role: str) -> Ids:
        return self.coded[role].cells if role in self.coded else self.columns[role]

    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{n:,} bad {'row' if n == 1 else 'rows'} skipped: {rule}{self._places(rule)}"
            for rule, n in self.skipped.items()
        )

    def _places(self, rule: str) -> str:
        lines = self.skipped_lines.get(rule, ())
        if not lines:
            return ""
        more = ", ..." if self.skipped[rule] > len(lines) else ""
        return f" (line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}{more})"


@dataclass(frozen=True, slots=True)
class Fault:
    """The first rule that a row breaks."""

    what: str
    rule: str
    source: str = ""
    """The file of the fault, if that is not the table's own file."""
    remedy: str = ""
    """What to do, if it is not the usual."""


class SkippedRows:
    """Counts bad rows by rule and remembers the first lines of each."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lines: dict[str, list[int]] = {}

    def add(self, faults: Mapping[int, Fault]) -> None:
        for line in sorted(faults):
            rule = faults[line].rule
            self.counts[rule] += 1
            if self.counts[rule] <= MOST_LINES_SHOWN:
                self.lines.setdefault(rule, []).append(line)

    def first_lines(self) -> dict[str, tuple[int, ...]]:
        return {rule: tuple(lines) for rule, lines in self.lines.items()}


Piece = tuple[Chunk, dict[int, Fault]]
"""A chunk of rows, and line -> fault of the rows that could not be split into cells."""


def read_table(
    source: str, lines: Iterable[str], layout: Layout, skip_bad_rows: bool = False
) -> CheckedTable:
    """Read interactions. The first bad row raises; with `skip_bad_rows` all are dropped."""
    stream = iter(lines)
    names = layout.names or read_header(source, stream, layout)
    first = 1 if layout.names else 2
    split = chunks(source, stream, layout.separator, len(names), layout.quoting, first)
    pieces = ((chunk, width_faults(chunk, len(names))) for chunk in split)
    table = check_table(source, pieces, names, layout, skip_bad_rows)
    positions = column_positions(source, names, layout.columns)
    used = {role: UsedColumn(name=names[at]) for role, at in positions.items()}
    return replace(table, used=used)


def check_table(
    source: str, pieces: Iterable[Piece], names: Sequence[str], layout: Layout, skip_bad_rows: bool
) -> CheckedTable:
    """Check rows that are already split into cells."""
    by_role = column_positions(source, names, layout.columns)
    also = {name: list(names).index(name) for name in layout.also if name in names}
    positions = by_role | also
    parts: list[dict[str, Ids]] = []
    part_lines: list[Longs] = []
    skipped = SkippedRows()
    for chunk, unsplit in pieces:
        columns, cell_faults = _check(chunk, positions, names, layout)
        faults = cell_faults | unsplit
        if faults and not skip_bad_rows:
            raise first_fault(faults, source)
        skipped.add(faults)
        good = ~np.isin(chunk.lines, list(faults)) if faults else np.ones(len(chunk.lines), bool)
        parts.append({role: column[good] for role, column in columns.items()})
        part_lines.append(chunk.lines[good])
    if not sum(len(p) for p in part_lines):
        raise no_rows(source, tuple(by_role), sum(skipped.counts.values()))
    return CheckedTable(
        source,
        {role: np.concatenate([p[role] for p in parts]) for role in positions},
        np.concatenate(part_lines),
        dict(skipped.counts),
        skipped.first_lines(),
    )


def no_rows(source: str, roles: Sequence[str], n_bad: int) -> DataError:
    why = f"all {n_bad:,} rows were bad" if n_bad else "contains no interactions"
    return DataError(
        f"{source}: {why}; expected at least one row of {', '.join(roles)}. "
        "Check that it is the right file."
    )


def first_fault(faults: dict[int, Fault], source: str) -> DataError:
    line = min(faults)
    fault = faults[line]
    return DataError(
        f"{fault.source or source}:{line}: {fault.what}; {fault.rule}. "
        f"{fault.remedy or 'Fix the row or pass --skip-bad-rows.'}"
    )


def refuse_duplicates(table: CheckedTable) -> None:
    """For the policy `duplicates: error`: reject the first pair that occurs twice."""
    first: dict[tuple[str, str], int] = {}
    users = table.ids("user_id").tolist()
    items = table.ids("item_id").tolist()
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
    check_roles(columns)
    positions = {}
    for role in ROLES:
        name = columns.get(role, role)
        if name in names:
            positions[role] = list(names).index(name)
        elif role in REQUIRED or role in columns:
            what = f"no column was recognised as {role}"
            if role in columns:
                what = f"there is no column {name!r} for {role}"
            raise DataError(
                f"{source}:1: {what}; the file has {', '.join(map(repr, names[:12]))}. "
                f"Pass --columns {role}=NAME. {did_you_mean(name, names)}"
            )
    return positions


def check_roles(columns: Mapping[str, str]) -> None:
    if unknown := set(columns) - set(ROLES):
        raise DataError(
            f"--columns names the role {min(unknown)!r}; expected one of {', '.join(ROLES)}. "
            f"{did_you_mean(min(unknown), ROLES)}"
        )


def check_ratings(numbers: Doubles) -> tuple[Ids, Bools, str]:
    """(values, mask of bad values, the rule they break)."""
    return numbers, ~(np.abs(numbers) <= np.finfo(np.float32).max), "expected a number"


def check_times(numbers: Doubles, rule: str = IN_SECONDS) -> tuple[Ids, Bools, str]:
    """(values, mask of bad values, the rule they break)."""
    bad = ~((numbers >= 0) & (numbers <= LATEST))  # also true for NaN
    times = np.where(bad, 0, numbers).astype(np.int64)
    return times, bad, rule


def read_header(source: str, lines: Iterator[str], layout: Layout) -> tuple[str, ...]:
    line = next(lines, "")
    if not line.strip():
        raise DataError(
            f"{source}: is empty; expected a header and one interaction per row. "
            "Check that it is the right file."
        )
    if not is_text(line) or "\0" in line:
        raise DataError(
            f"{source}:1: the header {shown(line.strip())} is not UTF-8; expected UTF-8 text. "
            "Save the file as UTF-8, or pass --encoding, such as latin-1 or utf-16."
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
        columns[role], broken, rule = check_column(role, cells, layout)
        for r in np.flatnonzero(broken):
            what = f"column {names[position]!r} is {shown(cells[r])}"
            why = rule if is_text(cells[r]) else NOT_TEXT
            fault = Fault(what, why, layout.other_files.get(role, ""))
            faults.setdefault(int(chunk.lines[r]), fault)
    return columns, faults


def width_faults(chunk: Chunk, width: int) -> dict[int, Fault]:
    return {
        line: Fault(f"{n} columns", f"expected {width} columns") for line, n in chunk.wrong.items()
    }


def check_column(role: str, cells: list[str], layout: Layout) -> tuple[Ids, Bools, str]:
    if role in ("user_id", "item_id"):
        return _ids(cells)
    if role == "rating":
        return check_ratings(numbers_of(cells, number_of))
    if role in layout.also:
        return _texts(cells)
    return check_times(numbers_of(cells, layout.parse_time or time_of))


def _ids(cells: list[str]) -> tuple[Ids, Bools, str]:
    text = "".join(cells)
    if all(cells) and text.isascii() and not any(space in text for space in " \t\r\n\v\f"):
        return np.array(cells, dtype=object), np.zeros(len(cells), bool), ""
    stripped = np.array([c.strip() for c in cells], dtype=object)
    if is_text(text):
        return stripped, np.array([not c for c in stripped], bool), "expected an id"
    return stripped, np.array([not c or not is_text(c) for c in stripped], bool), "expected an id"


def _texts(cells: list[str]) -> tuple[Ids, Bools, str]:
    bad = np.array([not is_text(c) for c in cells], bool)
    return np.array([c.strip() for c in cells], dtype=object), bad, NOT_TEXT


def numbers_of(cells: list[str], parse: Callable[[str], float]) -> Doubles:
    try:
        if parse not in (number_of, time_of) or "_" in "".join(cells):
            raise ValueError
        return np.array(cells, dtype=np.float64)
    except ValueError:
        return np.array([or_nan(parse, cell) for cell in cells], dtype=np.float64)


def or_nan(parse: Callable[[str], float], cell: str) -> float:
    try:
        return parse(cell)
    except (ValueError, OverflowError, KeyError):
        return math.nan


def number_of(cell: str) -> float:
    if "_" in cell:  # float() accepts 1_000, but in a data file it is a mistake
        raise ValueError
    return float(cell)


def time_of(cell: str) -> float:
    try:
        return number_of(cell)
    except ValueError:
        moment = datetime.fromisoformat(cell.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def is_text(cell: str) -> bool:
    try:
        cell.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(cell: str) -> str:
    """A value for a message: quoted, and truncated if it is long."""
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")
