"""Reads delimited files (comma, tab, semicolon, bar), with or without a header, also compressed."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.cells import chunks
from coterie.data.coded import CodedColumn, coded_texts, concatenated
from coterie.data.column_names import NO_COLUMN, ColumnRoles, assign_columns, known_names
from coterie.data.first_line import SEPARATORS, FirstLine
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import (
    NOT_TEXT,
    REQUIRED,
    CheckedTable,
    Fault,
    Layout,
    SkippedRows,
    check_column,
    check_times,
    first_fault,
    is_text,
    no_rows,
    read_header,
    shown,
    width_faults,
)
from coterie.data.text_columns import Shape, SplitRows, lines_of, split_columns
from coterie.data.times import IN_ANY_UNIT, in_seconds, times_of
from coterie.errors import ConfigError, DataError
from coterie.types import Bools, Ids

NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """The text of a file as UTF-8, and how its columns are named and separated."""

    source: str
    text: bytes
    """Without the header."""
    separator: str
    names: tuple[str, ...]
    first_line: FirstLine

    @property
    def has_header(self) -> bool:
        return self.first_line.is_header

    @property
    def line_of_first_row(self) -> int:
        return 2 if self.has_header else 1

    @property
    def names_in_first_row(self) -> list[str]:
        """Names of columns that stand in the first row, which may be a header then."""
        return [] if self.has_header else known_names(self.first_line.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedColumn:
    """A column, the rows whose value is bad, and the rule that those break."""

    cells: CodedColumn
    """As they are in the file."""
    ids: CodedColumn | None = None
    """For users and items: the ids."""
    values: Ids | None = None
    """For ratings and times: the numbers of all rows."""
    bad: Bools
    rule: str
    note: str = ""
    """What was assumed about the values."""


def read(path: Path, options: ReadOptions) -> Interactions:
    return options.build(_table(open_text(path, options), options))


def open_text(path: Path, options: ReadOptions) -> TextFile:
    """The file with its separator and columns; its rows are not split yet."""
    text = _as_utf_8(path, files.read_bytes(path), options.encoding)
    first = next(lines_of(text, 0), b"")
    line = first.decode(errors="surrogateescape")
    separator = _separator(options.delimiter, line)
    layout = Layout(separator, quoting=len(separator) == 1)
    cells = read_header(str(path), iter([line]), layout)
    numbers = tuple(str(n) for n in range(1, len(cells) + 1))
    return TextFile(
        source=str(path),
        text=text[len(first) :] if options.header else text,
        separator=separator,
        names=cells if options.header else numbers,
        first_line=FirstLine(cells=cells, is_header=options.header),
    )


def _as_utf_8(path: Path, raw: bytes, encoding: str | None) -> bytes:
    """Bytes that are invalid in the encoding stay invalid, so that the row can be named."""
    if encoding is None:
        return raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode(encoding, errors="surrogateescape")
    except LookupError:
        raise ConfigError(
            f"--encoding is {encoding!r}; expected the name of a text encoding. "
            "Use for example utf-8, latin-1, cp1252 or utf-16."
        ) from None
    except UnicodeError as error:
        raise DataError(
            f"{path}: is not {encoding} text ({error}). Pass another --encoding."
        ) from None
    return text.removeprefix("\ufeff").encode(errors="surrogateescape")


def _separator(delimiter: str | None, first_line: str) -> str:
    """The given one, or the one that occurs most often in the first line."""
    if delimiter is None:
        found = any(separator in first_line for separator in SEPARATORS)
        return max(SEPARATORS, key=first_line.count) if found else ","
    separator = NAMED_SEPARATORS.get(delimiter, delimiter)
    if not separator or any(letter in separator for letter in '"\r\n'):
        raise ConfigError(
            f"--delimiter is {delimiter!r}; expected letters that separate cells, without quotes "
            "and line ends. Use for example ';' or tab."
        )
    return separator


def _table(file: TextFile, options: ReadOptions) -> CheckedTable:
    roles = assign_columns(f"{file.source}:1: ", file.names, options.columns, file.first_line)
    rows = _split(file, tuple(roles.positions.values()))
    checked = {role: _check(role, rows.columns[at]) for role, at in roles.positions.items()}
    faults = dict(rows.faults)
    for role, column in checked.items():
        bad = np.flatnonzero(column.bad)
        for row in bad if options.skip_bad_rows else bad[:1]:
            cell = str(column.cells.distinct[column.cells.codes[row]])
            line = int(rows.lines[row])
            is_header = line == 1 and bool(file.names_in_first_row)
            faults.setdefault(line, _fault(role, cell, column.rule, roles, is_header))
    if faults and not options.skip_bad_rows:
        raise first_fault(faults, file.source)
    skipped = SkippedRows()
    skipped.add(faults)
    good = ~np.any([column.bad for column in checked.values()], axis=0)
    if not good.any():
        raise no_rows(file.source, tuple(roles.positions), len(faults))
    return CheckedTable(
        source=file.source,
        columns={r: c.values[good] for r, c in checked.items() if c.values is not None},
        lines=rows.lines[good],
        skipped=dict(skipped.counts),
        skipped_lines=skipped.first_lines(),
        coded={r: c.ids.take(good) for r, c in checked.items() if c.ids is not None},
        reading=_described(file, roles, checked, options, len(good) + len(rows.faults)),
        used=roles.used(),
    )


def _described(
    file: TextFile,
    roles: ColumnRoles,
    checked: dict[str, CheckedColumn],
    options: ReadOptions,
    n_rows: int,
) -> tuple[str, ...]:
    """How the file was read, for display."""
    header = "with a header" if file.has_header else "without a header"
    encoding = options.encoding or "utf-8"
    rows = f"{n_rows:,} rows read: separated by {file.separator!r}, {encoding} text, {header}"
    lines = [rows, *roles.described()]
    if names := file.names_in_first_row:
        listed = ", ".join(map(repr, names))
        lines.append(f"the first row looks like a header ({listed}): leave out --no-header if so")
    if "timestamp" in checked:
        lines.append(f"times: {roles.name('timestamp')!r} has {checked['timestamp'].note}")
    return tuple(lines)


def _split(file: TextFile, wanted: tuple[int, ...]) -> SplitRows:
    shape = Shape(separator=file.separator, width=len(file.names), wanted=wanted)
    if len(file.separator) == 1 and file.separator.isascii():
        return split_columns(file.text, shape, file.line_of_first_row)
    lines = (line.decode(errors="surrogateescape") for line in lines_of(file.text, 0))
    quoting = len(file.separator) == 1
    parts = list(
        chunks(file.source, lines, file.separator, shape.width, quoting, file.line_of_first_row)
    )
    return SplitRows(
        columns={at: concatenated([coded_texts(p.columns[at]) for p in parts]) for at in wanted},
        lines=np.concatenate([np.zeros(0, np.int64), *(part.lines for part in parts)]),
        faults={n: f for part in parts for n, f in width_faults(part, shape.width).items()},
    )


def _check(role: str, column: CodedColumn) -> CheckedColumn:
    """Check every distinct cell once."""
    distinct = column.distinct.tolist()
    if role == "timestamp":
        parsed = times_of(distinct)
        times = in_seconds(parsed.numbers[column.codes], parsed.is_number[column.codes])
        values, bad, rule = check_times(times.seconds, IN_ANY_UNIT)
        return CheckedColumn(cells=column, values=values, bad=bad, rule=rule, note=times.note)
    values, is_bad, rule = check_column(role, distinct, Layout())
    bad = is_bad[column.codes]
    if role in REQUIRED:
        ids = CodedColumn(codes=column.codes, distinct=values)
        return CheckedColumn(cells=column, ids=ids, bad=bad, rule=rule)
    return CheckedColumn(cells=column, values=values[column.codes], bad=bad, rule=rule)


def _fault(role: str, cell: str, rule: str, roles: ColumnRoles, may_be_header: bool) -> Fault:
    what = f"column {roles.name(role)!r} is {shown(cell)}"
    if not is_text(cell):
        remedy = "Pass --encoding, such as latin-1, fix the row, or pass --skip-bad-rows."
        return Fault(what, NOT_TEXT, remedy=remedy)
    if may_be_header:
        remedy = "If the line is a header, leave out --no-header; if not, pass --skip-bad-rows."
        return Fault(what, rule, remedy=remedy)
    if role in roles.guessed and role not in REQUIRED:
        remedy = (
            "Fix the row, pass --skip-bad-rows, or leave the column out: "
            f"--columns {role}={NO_COLUMN}"
        )
        return Fault(what, rule, remedy=remedy)
    return Fault(what, rule)
