"""Splits delimited text into columns of cells, a chunk at a time, with every row's line number.

A chunk without quotes is split as one string, which is thirteen times faster on ML-1M than row by
row. A chunk with a quote, a blank line or a row of the wrong width goes through the csv module.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from coterie.errors import DataError
from coterie.types import Longs

CHUNK = 100_000


@dataclass(frozen=True, slots=True)
class Chunk:
    columns: list[list[str]]
    """Cells of the rows that have the right number of columns."""
    lines: Longs
    wrong: dict[int, int]
    """line -> number of columns, for rows with a wrong number of columns."""


class LineCounter:
    """Counts lines as they are read, and knows where the last row began."""

    def __init__(self, first: int) -> None:
        self.next_row = first
        self.next_line = first

    def counted(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            self.next_line += 1
            yield line

    def row_began(self) -> int:
        began = self.next_row
        self.next_row = self.next_line
        return began


def chunks(
    source: str, lines: Iterator[str], separator: str, width: int, quoting: bool, first: int
) -> Iterator[Chunk]:
    """All rows from line number `first` on."""
    while block := list(islice(lines, CHUNK)):
        text = "".join(block)
        if quoting and '"' in text:  # a quoted field may run over the block's end
            yield from _by_csv(source, chain(block, lines), separator, width, quoting, first)
            return
        right_width = all(line.count(separator) == width - 1 for line in block)
        if right_width and (width > 1 or all(map(str.strip, block))):
            cells = _split(text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n"), separator)
            columns = [cells[i::width] for i in range(width)]
            yield Chunk(columns, np.arange(first, first + len(block)), {})
        else:
            yield from _by_csv(source, iter(block), separator, width, quoting, first)
        first += len(block)


def _split(text: str, separator: str) -> list[str]:
    if len(separator) == 1:
        return text.replace("\n", separator).split(separator)
    # Joined lines would be ambiguous: a line may end or start with a part of the separator,
    # such as "1::2:" above ":3::4".
    return [cell for line in text.split("\n") for cell in line.split(separator)]


def split_line(line: str, separator: str, quoting: bool) -> list[str]:
    """The cells of one line."""
    return next(_reader(iter([line]), separator, quoting), [])


def _by_csv(
    source: str, lines: Iterator[str], separator: str, width: int, quoting: bool, first: int
) -> Iterator[Chunk]:
    counter = LineCounter(first)
    reader = _reader(counter.counted(lines), separator, quoting)
    try:
        while rows := [(counter.row_began(), row) for row in islice(reader, CHUNK)]:
            filled = [(line, row) for line, row in rows if len(row) > 1 or any(map(str.strip, row))]
            right = [(line, row) for line, row in filled if len(row) == width]
            wrong = {line: len(row) for line, row in filled if len(row) != width}
            columns = [[row[i] for _, row in right] for i in range(width)]
            yield Chunk(columns, np.array([line for line, _ in right], np.int64), wrong)
    except csv.Error as error:
        raise DataError(
            f"{source}:{counter.row_began()}: {error}; "
            f"expected fields separated by {separator!r}. Look for a stray quote."
        ) from None


def _reader(lines: Iterator[str], separator: str, quoting: bool) -> Iterator[list[str]]:
    """Rows of cells; quoting needs a separator of one character."""
    if not quoting or len(separator) > 1:
        return (line.rstrip("\r\n").split(separator) for line in lines)
    return csv.reader(lines, delimiter=separator, strict=True)
