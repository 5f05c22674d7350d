"""Splitting text into cells: the fast path, the csv module and a plain `str.split` agree."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data import cells
from coterie.data.cells import chunks, split_line
from coterie.errors import DataError

SEPARATORS = (",", "\t", ";", "|", "::")
LETTERS = "ab19.:é世 _-'\x1f\x00"

Rows = list[tuple[int, list[str]]]


def rows_of(
    lines: list[str], separator: str, width: int, quoting: bool, chunk: int
) -> tuple[Rows, dict[int, int]]:
    """All (line, cells) and the lines of another width, read `chunk` lines at a time."""
    rows = []
    wrong = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "CHUNK", chunk)
        for part in chunks("file", iter(lines), separator, width, quoting, first=2):
            assert len({len(column) for column in part.columns} | {len(part.lines)}) == 1, (
                "columns of one length"
            )
            rows += zip(
                part.lines.tolist(), map(list, zip(*part.columns, strict=True)), strict=True
            )
            wrong |= part.wrong
    return rows, wrong


def lines_of(text: str) -> list[str]:
    """Lines as an open file yields them, with their line ends."""
    return list(io.StringIO(text, newline=""))


@st.composite
def unquoted_files(draw: st.DrawFn) -> tuple[str, int, list[str]]:
    """(separator, width, lines) of a file without quotes whose rows all have the right width."""
    separator = draw(st.sampled_from(SEPARATORS))
    width = draw(st.integers(2, 4))
    cell = st.text([c for c in LETTERS if c not in separator or separator == "::"], max_size=3)
    rows = draw(
        st.lists(
            st.lists(cell, min_size=width, max_size=width).map(separator.join),
            min_size=1,
            max_size=9,
        )
    )
    # "a:" and "b" joined by "::" may split elsewhere.
    rows = [row for row in rows if row.count(separator) == width - 1]
    lines = [row + draw(st.sampled_from(["\n", "\r\n"])) for row in rows]
    if lines and draw(st.booleans()):
        lines[-1] = lines[-1].rstrip("\r\n")
    return separator, width, lines


@settings(deadline=None, max_examples=200)
@given(unquoted_files(), st.booleans(), st.integers(1, 10))
def test_the_fast_way_is_a_plain_split_of_every_line(file, quoting: bool, chunk: int) -> None:
    separator, width, lines = file
    plain = [(n, line.rstrip("\r\n").split(separator)) for n, line in enumerate(lines, 2)]
    assert rows_of(lines, separator, width, quoting, chunk) == (plain, {})


@settings(deadline=None, max_examples=200)
@given(unquoted_files(), st.booleans())
def test_the_fast_way_equals_the_way_of_the_csv_module(file, quoting: bool) -> None:
    separator, width, lines = file
    if lines:
        lines[-1] = lines[-1].rstrip("\r\n") + "\n"
    # A blank line sends the chunk to the csv module.
    by_csv = rows_of([*lines, "\n"], separator, width, quoting, 100)
    assert rows_of(lines, separator, width, quoting, 100) == by_csv


@settings(deadline=None, max_examples=100)
@given(
    rows=st.lists(
        st.lists(st.text('ab,;\t"\n\r é', max_size=4), min_size=2, max_size=2),
        min_size=1,
        max_size=8,
    ),
    separator=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n"]),
    chunk=st.integers(1, 9),
)
def test_what_the_csv_module_wrote_is_read_back(rows, separator: str, end: str, chunk: int) -> None:
    text = io.StringIO(newline="")
    # The csv module does not quote a lone carriage return.
    bare = "\r" not in "".join(map("".join, rows))
    csv.writer(
        text,
        delimiter=separator,
        lineterminator=end,
        quoting=csv.QUOTE_MINIMAL if bare else csv.QUOTE_ALL,
    ).writerows(rows)
    found, wrong = rows_of(lines_of(text.getvalue()), separator, 2, True, chunk)
    assert ([row for _, row in found], wrong) == (rows, {})


@settings(deadline=None, max_examples=100)
@given(
    widths=st.lists(st.integers(0, 5), max_size=12),
    separator=st.sampled_from(SEPARATORS),
    quoting=st.booleans(),
    chunk=st.integers(1, 6),
)
def test_rows_of_another_width_are_reported_by_line_and_blank_ones_skipped(
    widths, separator, quoting, chunk
) -> None:
    lines = [separator.join("x" * width) + "\n" for width in widths]
    found, wrong = rows_of(lines, separator, 3, quoting, chunk)
    assert [line for line, _ in found] == [n for n, width in enumerate(widths, 2) if width == 3]
    assert wrong == {n: width for n, width in enumerate(widths, 2) if width not in (0, 3)}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", SEPARATORS)
def test_every_kind_of_line_end_is_one(separator: str, end: str) -> None:
    lines = lines_of(end.join([f"1{separator}2", f"3{separator}4", ""]))
    assert rows_of(lines, separator, 2, True, 10) == ([(2, ["1", "2"]), (3, ["3", "4"])], {})


def test_a_colon_at_the_end_of_a_line_stays_there() -> None:
    lines = ["1::2:\n", ":3::4\n"]
    assert rows_of(lines, "::", 2, False, 10)[0] == [(2, ["1", "2:"]), (3, [":3", "4"])]


def test_quotes_are_letters_where_the_format_has_none() -> None:
    assert rows_of(['1\t"a\n', '2\tb"\n'], "\t", 2, False, 10)[0] == [
        (2, ["1", '"a']),
        (3, ["2", 'b"']),
    ]
    assert split_line('"a\tb"\n', "\t", quoting=False) == ['"a', 'b"']


def test_a_quoted_field_may_run_over_the_end_of_a_chunk() -> None:
    lines = ["1,2\n", '3,"4\n', 'five"\n', "6,7\n"]
    rows, wrong = rows_of(lines, ",", 2, True, 2)
    assert [row for _, row in rows] == [["1", "2"], ["3", "4\nfive"], ["6", "7"]]
    assert wrong == {}


def test_a_header_is_split_like_any_line() -> None:
    assert split_line('"a,b",c\r\n', ",", quoting=True) == ["a,b", "c"]
    assert split_line("a::b\n", "::", quoting=False) == ["a", "b"]
    assert split_line("", ",", quoting=True) == []


def test_a_stray_quote_is_reported_by_file_and_line() -> None:
    with pytest.raises(
        DataError, match=r"^file:3: .*expected fields separated by ','\. Look for a stray quote\.$"
    ):
        rows_of(["1,2\n", '3,"4"x\n'], ",", 2, True, 10)
