"""Splits delimited text into columns of coded cells, with every row's line number.

A line is plain if its quotes enclose whole cells and it has the right number of columns. numpy
finds the plain lines of a block and the places of their cells, and only distinct cells become
strings. Every other line goes through the csv module on its own: first as it stands, then with
backslashes before quotes (`"\\"0210";`), then together with the lines after it, because a quoted
cell may contain line ends. If none gives the right width, the line alone is bad.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from coterie.data.coded import CodedColumn, coded_bytes, coded_texts, concatenated
from coterie.data.table import Fault, shown
from coterie.types import Bools, Longs

BLOCK = 32 * 2**20
"""Bytes that are split at once."""
MOST_LINES = 1_000
"""Lines of one row. A longer cell is a stray quote that pairs with another one far below."""
QUOTE = ord('"')
LF = ord("\n")
CR = ord("\r")
NULL = 0
"""Cells are compared padded with zeros, so that a zero in a cell would count for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRows:
    """Rows of the right width, and the faults of all others."""

    columns: dict[int, CodedColumn]
    """Position -> column, for the wanted positions."""
    lines: Longs
    faults: dict[int, Fault]
    """Line -> why it is not a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the splitter must know of a file."""

    separator: str
    """One ASCII character."""
    width: int
    """Number of columns."""
    wanted: tuple[int, ...]
    """Positions of the columns to return."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The lines of a block: where each begins and ends, and whether it is plain."""

    text: np.ndarray
    """The bytes of the block."""
    first: int
    """The position of the block in the file."""
    separators: Longs
    starts: Longs
    ends: Longs
    plain: Bools


@dataclass(frozen=True, slots=True, kw_only=True)
class OddRow:
    """A row that the csv module split, or the fault of its first line."""

    cells: list[str] | None
    n_lines: int
    fault: Fault | None


def split_columns(raw: bytes, shape: Shape, first_line: int) -> SplitRows:
    """Split UTF-8 text. `first_line` is the line number at which it begins."""
    pieces = []
    position = 0
    line = first_line
    while position < len(raw):
        block = _block(raw, position, shape)
        piece = _split_block(raw, block, shape, line)
        pieces.append(piece.rows)
        position = piece.next_position
        line = piece.next_line
    return _joined(pieces, shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBlock:
    rows: SplitRows
    next_position: int
    next_line: int


def _block(raw: bytes, position: int, shape: Shape) -> Block:
    """The lines from a position on: as many as fit into a block, and at least one."""
    end = len(raw)
    if position + BLOCK < end:
        end = raw.rfind(b"\n", position, position + BLOCK) + 1
        if not end:
            end = raw.find(b"\n", position) + 1 or len(raw)
    text = np.frombuffer(raw, np.uint8, end - position, position)
    separators = np.flatnonzero(text == ord(shape.separator))
    ends = _line_ends(text)
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    plain = np.diff(np.searchsorted(separators, ends), prepend=0) == shape.width - 1
    for odd in (_misplaced_quotes(text, shape), np.flatnonzero(text == NULL)):
        plain[np.searchsorted(ends, odd, side="right")] = False
    return Block(
        text=text, first=position, separators=separators, starts=starts, ends=ends, plain=plain
    )


def _line_ends(text: np.ndarray) -> Longs:
    """The position after each line. A line ends with LF, CR or both, as in Python's text files."""
    is_end = text == LF
    returns = np.flatnonzero(text == CR)
    if len(returns):
        following = _next_bytes(text, returns)
        is_end[returns[following != LF]] = True
    ends = np.flatnonzero(is_end) + 1
    if not len(ends) or ends[-1] < len(text):
        ends = np.append(ends, len(text))
    return ends


def _misplaced_quotes(text: np.ndarray, shape: Shape) -> Longs:
    """Positions of quotes that do not enclose a whole cell.

    Between two edges of cells there must be no quote, or two: one at either edge.
    """
    is_quote = text == QUOTE
    if not is_quote.any():
        return np.zeros(0, np.int64)
    is_edge = (text == ord(shape.separator)) | (text == LF) | (text == CR)
    # The beginning and the end of the text are edges too.
    inside = np.flatnonzero(is_quote | is_edge)
    places = np.concatenate([[-1], inside, [len(text)]])
    quote = np.concatenate([[False], is_quote[inside], [False]])
    adjacent = np.diff(places) == 1
    before = quote[:-2]
    here = quote[1:-1]
    after = quote[2:]
    opens = here & ~before & after & adjacent[:-1]
    closes = here & before & ~after & adjacent[1:]
    closes &= np.concatenate([[False], opens[:-1]])
    is_paired = closes | (opens & np.append(closes[1:], False))
    misplaced: Longs = inside[here & ~is_paired]
    return misplaced


def _next_bytes(text: np.ndarray, positions: Longs) -> np.ndarray:
    """The byte after each position; the end of the text counts as a line end."""
    following = text[np.minimum(positions + 1, len(text) - 1)]
    if len(positions) and positions[-1] == len(text) - 1:
        following[-1] = LF
    return following


def _split_block(raw: bytes, block: Block, shape: Shape, first_line: int) -> SplitBlock:
    plain = block.plain.copy()
    odd_lines: list[int] = []
    odd_cells: list[list[str]] = []
    faults: dict[int, Fault] = {}
    n_lines = len(plain)
    consumed = 0  # lines of this block and the next ones that belong to an odd row
    for index in np.flatnonzero(~block.plain).tolist():
        if index < consumed:
            continue
        row = _odd_row(raw, block.first + int(block.starts[index]), shape)
        consumed = index + row.n_lines
        plain[index:consumed] = False
        if row.cells is not None:
            odd_lines.append(first_line + index)
            odd_cells.append(row.cells)
        elif row.fault is not None:
            faults[first_line + index] = row.fault
    columns = {
        position: concatenated(
            [column, coded_texts([row[position] for row in odd_cells])] if odd_cells else [column]
        )
        for position, column in _plain_columns(block, plain, shape).items()
    }
    lines = np.concatenate([np.flatnonzero(plain) + first_line, np.array(odd_lines, np.int64)])
    beyond = max(consumed - n_lines, 0)
    end = block.first + int(block.ends[-1])
    skipped = sum(len(line) for line in islice(lines_of(raw, end), beyond))
    return SplitBlock(
        rows=SplitRows(columns=columns, lines=lines, faults=faults),
        next_position=end + skipped,
        next_line=first_line + n_lines + beyond,
    )


def _plain_columns(block: Block, plain: Bools, shape: Shape) -> dict[int, CodedColumn]:
    """The cells between separators, without the quotes around them."""
    text = block.text
    line_of = np.searchsorted(block.ends, block.separators, side="right")
    inner = block.separators[plain[line_of]].reshape(-1, shape.width - 1)
    starts = np.column_stack([block.starts[plain], inner + 1])
    ends = np.column_stack([inner, _content_ends(text, block.ends[plain])])
    columns = {}
    for position in shape.wanted:
        begin = starts[:, position].copy()
        end = ends[:, position].copy()
        is_quoted = (begin < end) & (text[np.minimum(begin, len(text) - 1)] == QUOTE)
        begin[is_quoted] += 1
        end[is_quoted] -= 1
        columns[position] = coded_bytes(text, begin, end)
    return columns


def _content_ends(text: np.ndarray, ends: Longs) -> Longs:
    """Where each line ends, without LF, CR or both. A plain line is never empty."""
    content: Longs = ends - (text[ends - 1] == LF)
    content -= text[content - 1] == CR
    return content


def _joined(pieces: Sequence[SplitRows], shape: Shape) -> SplitRows:
    """All rows in the order of their lines."""
    lines = np.concatenate([np.zeros(0, np.int64), *(piece.lines for piece in pieces)])
    columns = {
        position: concatenated([piece.columns[position] for piece in pieces])
        for position in shape.wanted
    }
    faults = {line: fault for piece in pieces for line, fault in piece.faults.items()}
    order = np.argsort(lines, kind="stable")
    return SplitRows(
        columns={position: column.take(order) for position, column in columns.items()},
        lines=lines[order],
        faults=faults,
    )


# ---- odd rows


def _odd_row(raw: bytes, position: int, shape: Shape) -> OddRow:
    """The row that begins at a position, or its fault; a blank line is neither."""
    line = next(lines_of(raw, position))
    if not line.strip():
        return OddRow(cells=None, n_lines=1, fault=None)
    text = line.decode(errors="surrogateescape")
    as_it_stands = _parsed(iter([text]), shape, escaped=False)
    if as_it_stands is not None and len(as_it_stands.cells) == shape.width:
        return OddRow(cells=as_it_stands.cells, n_lines=1, fault=None)
    # A line whose quotes are in order does not go on below.
    is_open = as_it_stands is None
    for row in _other_readings(raw, position, text, is_open, shape):
        if row is not None and len(row.cells) == shape.width:
            return OddRow(cells=row.cells, n_lines=row.n_lines, fault=None)
    return OddRow(cells=None, n_lines=1, fault=_fault(text, as_it_stands, shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRow:
    cells: list[str]
    n_lines: int


def _other_readings(
    raw: bytes, position: int, line: str, is_open: bool, shape: Shape
) -> Iterator[ParsedRow | None]:
    """With escaped quotes, then with the lines after it, then with both."""
    if '"' not in line:
        return
    if "\\" in line:
        yield _parsed(iter([line]), shape, escaped=True)
    for escaped in (False, True) if is_open else ():
        following = islice(lines_of(raw, position), MOST_LINES)
        decoded = (each.decode(errors="surrogateescape") for each in following)
        yield _parsed(decoded, shape, escaped)


def _parsed(lines: Iterator[str], shape: Shape, escaped: bool) -> ParsedRow | None:
    """The first row of some lines; None if its quotes are not in order."""
    reader = csv.reader(
        lines, delimiter=shape.separator, strict=True, escapechar="\\" if escaped else None
    )
    try:
        cells = next(reader, [])
    except csv.Error:
        return None
    return ParsedRow(cells=cells, n_lines=reader.line_num)


def _fault(text: str, row: ParsedRow | None, shape: Shape) -> Fault:
    if row is not None:
        return Fault(f"{len(row.cells)} columns", f"expected {shape.width} columns")
    return Fault(
        f"{shown(text.strip())} has a stray quote",
        f"expected fields separated by {shape.separator!r}, with quotes around whole fields",
    )


def lines_of(raw: bytes, position: int) -> Iterator[bytes]:
    """The lines from a position on, with their line ends."""
    while position < len(raw):
        end = raw.find(b"\n", position) + 1 or len(raw)
        yield from raw[position:end].splitlines(keepends=True)
        position = end
