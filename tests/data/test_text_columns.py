"""The columnar splitter: it equals the row-by-row reader, and reads what that one refuses."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coterie.data import text_columns
from coterie.data.cells import chunks
from coterie.data.coded import CodedColumn, coded_bytes, coded_texts
from coterie.data.text_columns import Shape, split_columns
from coterie.errors import DataError

Row = tuple[int, list[str]]


def split(text: str, width: int, separator: str = ",", block: int = 10**6) -> list[Row]:
    """All (line, cells), split `block` bytes at a time."""
    shape = Shape(separator=separator, width=width, wanted=tuple(range(width)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_columns, "BLOCK", block)
        rows = split_columns(text.encode(errors="surrogateescape"), shape, first_line=2)
    columns = [rows.columns[position].cells.tolist() for position in range(width)]
    return list(zip(rows.lines.tolist(), map(list, zip(*columns, strict=True)), strict=True))


def twin(text: str, width: int, separator: str) -> list[Row]:
    """Row by row, as named datasets are read."""
    lines = iter(io.StringIO(text, newline=""))
    return [
        (line, list(cells))
        for chunk in chunks("file", lines, separator, width, True, first=2)
        for line, cells in zip(chunk.lines.tolist(), zip(*chunk.columns, strict=True), strict=True)
    ]


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(
        st.lists(st.text('ab,;"\n\r é\x00', max_size=4), min_size=2, max_size=2),
        min_size=1,
        max_size=8,
    ),
    separator=st.sampled_from([",", ";", "\t"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    block=st.sampled_from([1, 5, 20, 10**6]),
)
def test_it_equals_the_reader_that_goes_row_by_row(rows, separator, quoting, end, block) -> None:
    """For rows of the right width: a row over several lines with another one is a stray quote."""
    out = io.StringIO(newline="")
    if "\r" in "".join(map("".join, rows)):
        quoting = csv.QUOTE_ALL  # the csv module does not quote a lone carriage return
    csv.writer(out, delimiter=separator, quoting=quoting, lineterminator=end).writerows(rows)
    assert split(out.getvalue(), 2, separator, block) == twin(out.getvalue(), 2, separator)


@settings(deadline=None, max_examples=100)
@given(st.text('ab1,"\\\n', max_size=30), st.sampled_from([1, 7, 10**6]))
@example('1"\\\n,', 1)
def test_what_the_other_reader_accepts_it_reads_alike(text: str, block: int) -> None:
    """Any text at all: an error of the row-by-row reader is the only licence to differ."""
    try:
        expected = twin(text, 2, ",")
    except DataError:
        split(text, 2, ",", block)  # never an exception
        return
    found = split(text, 2, ",", block)
    assert [row for row in expected if "\n" not in "".join(row[1])] == [
        row for row in found if row in expected and "\n" not in "".join(row[1])
    ]


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (r'"4377";"\"0210000010";"8"', ["4377", '"0210000010', "8"]),
        (r'"1";"a\";b";"8"', ["1", 'a";b', "8"]),
        ('"1";"say ""hi""";"8"', ["1", 'say "hi"', "8"]),
        (r'"1";"C:\";"8"', ["1", "C:\\", "8"]),
        ("1;'a;8", ["1", "'a", "8"]),
        ('1;a"b;8', ["1", 'a"b', "8"]),
        ('"";"";""', ["", "", ""]),
    ],
)
def test_quotes_are_read_as_their_writers_meant_them(line: str, cells: list[str]) -> None:
    rows = split(f'"9";"9";"9"\n{line}\n"9";"9";"9"\n', 3, ";")
    assert rows == [(2, ["9"] * 3), (3, cells), (4, ["9"] * 3)]


def test_a_stray_quote_costs_its_own_line_only() -> None:
    text = '1,2\n3,"4\n5,6\n"7",8\n"9"x,1\n1,"two\nlines"\n'
    rows = split(text, 2)
    assert rows == [(2, ["1", "2"]), (4, ["5", "6"]), (5, ["7", "8"]), (7, ["1", "two\nlines"])]
    shape = Shape(separator=",", width=2, wanted=(0,))
    assert sorted(split_columns(text.encode(), shape, 2).faults) == [3, 6]


@given(st.lists(st.text("aé\n世12", max_size=40), min_size=1, max_size=30))
def test_cells_of_any_length_are_told_apart(cells: list[str]) -> None:
    raw = [cell.encode() for cell in cells]
    ends = np.cumsum([len(cell) for cell in raw])
    text = np.frombuffer(b"".join(raw) or b"x", np.uint8)
    column = coded_bytes(text, np.concatenate([[0], ends[:-1]]), ends)
    assert column.cells.tolist() == cells
    assert len(set(column.distinct)) == len(column.distinct)


def test_a_normalised_column_has_each_text_once_in_the_order_of_appearance() -> None:
    column = CodedColumn(
        codes=np.array([3, 0, 2, 3]), distinct=np.array(["a", "b", "a", "c"], dtype=object)
    )
    once = column.normalised()
    assert (once.codes.tolist(), once.distinct.tolist()) == ([0, 1, 1, 0], ["c", "a"])
    assert coded_texts([]).normalised().cells.tolist() == []
