"""Article clicks on IBM Watson Studio, course data: who opened which article, every article's title, and most articles' bodies.

It stands in for Adressa, the news data of STTFedRec, which is not to be had. There are no times, and people click an article more
than once. Clicks under an empty email are nobody's and are left out. Article numbers stand as `1430.0` with the clicks and
as `1430` with the bodies: here they are whole numbers. Some titles are a data frame's cut-off print (`502    forgetting the
past ...` and `Name: title, dtype: object`); the article's full name takes their place. An article that is described twice is
read as described first.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coterie.data import delimited, files
from coterie.data.cells import Chunk, chunks, split_line
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.table import NOT_TEXT, Fault, Layout, Piece, Table, check_table, places, shown
from coterie.errors import DataError

CLICKS = "user-item-interactions.csv"
ARTICLES = "articles_community.csv"
COLUMNS = {"user_id": "email", "item_id": "article_id"}
TITLE = "title"
ARTICLE_ID = "article_id"
OF_ARTICLES = (ARTICLE_ID, "doc_full_name", "doc_body", "doc_description")
SEPARATOR = ","
LONGEST = 2**31 - 1  # the largest limit that csv takes on every platform
WHOLE = "expected a whole number"
WHOLE_NUMBER = re.compile(r"([0-9]+)(?:\.0*)?")
PRINTED = "\nName: title, dtype: object"
NO_TEXT = re.compile("[\ud800-\udfff]")  # what bytes become that are no UTF-8


@dataclass(frozen=True, slots=True)
class Articles:
    """What there is to read, by article."""

    names: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read(place: Path, options: Reading) -> Interactions:
    if not place.is_dir() and not _is_of_articles(place):
        return delimited.read(place, options)  # somebody's own file: the name alone says little
    table, of_nobody = _clicks(place, options)
    articles = _articles(files.home(place), options.skip_bad_rows)
    data = options.build(table).describe_items(_titles(table, articles.names), {}, articles.bodies)
    clicks = f"{of_nobody:,} {'click' if of_nobody == 1 else 'clicks'} of nobody (an empty email) dropped"
    for note in (clicks, *articles.notes) if of_nobody else articles.notes:
        data = data.note(note)
    return data


def _is_of_articles(place: Path) -> bool:
    with files.open_member(place, CLICKS) as lines:
        header = next(lines, "")
    return any(name in header for name in COLUMNS.values())


# ---- clicks


def _clicks(place: Path, options: Reading) -> tuple[Table, int]:
    """The checked clicks, and how many were nobody's."""
    source = _source(place, CLICKS)
    layout = Layout(columns=COLUMNS | options.columns, also=(TITLE,))
    with files.open_member(place, CLICKS) as lines:
        names, split = _split(source, lines)
        where = places(source, names, layout.columns)
        every = list(split)
    kept = [_of_somebody(chunk, where["user_id"]) for chunk in every]
    pieces = (_numbered(chunk, names, where["item_id"]) for chunk in kept)
    table = check_table(source, pieces, names, layout, options.skip_bad_rows)
    return table, sum(len(chunk.lines) for chunk in every) - sum(len(chunk.lines) for chunk in kept)


def _of_somebody(chunk: Chunk, user: int) -> Chunk:
    kept = [row for row, cell in enumerate(chunk.columns[user]) if cell.strip()]
    columns = [[cells[row] for row in kept] for cells in chunk.columns]
    return Chunk(columns, chunk.lines[np.array(kept, np.int64)], chunk.wrong)


def _titles(table: Table, names: Mapping[str, str]) -> dict[str, str]:
    items = table.columns["item_id"].tolist()
    titles = table.columns[TITLE].tolist() if TITLE in table.columns else [""] * len(items)
    told = {item: title for item, title in zip(items, titles, strict=True) if title}
    better = {
        item: _title(told.get(item, ""), names.get(item, "")) for item in dict.fromkeys(items)
    }
    return {item: title for item, title in better.items() if title}


def _title(told: str, name: str) -> str:
    """The title that stands with the clicks; where it is missing or a print, the name, in lower case like all titles."""
    if told and not told.endswith(PRINTED):
        return told
    return name.lower() or _printed(told)


def _printed(told: str) -> str:
    """What a print shows of a title: after a row number, up to three dots."""
    _, _, start = told.partition("\n")[0].partition(" ")
    return start.strip().removesuffix("...").rstrip()


# ---- articles


def _articles(home: Path, skip_bad_rows: bool) -> Articles:
    if not files.exists(home, ARTICLES):
        return Articles(
            notes=(f"articles come without bodies: there is no {ARTICLES} beside the clicks",)
        )
    source = _source(home, ARTICLES)
    with files.open_member(home, ARTICLES) as lines, _fields_of_any_length():
        names, split = _split(source, lines)
        where = _columns_of_articles(source, names)
        pieces = [_readable(_numbered(chunk, names, where[ARTICLE_ID]), where) for chunk in split]
    skipped = Counter(fault.rule for _, faults in pieces for fault in faults.values())
    if skipped and not skip_bad_rows:
        raise _first(source, [faults for _, faults in pieces])
    return _first_of_each(_good_rows(pieces, where), skipped)


def _columns_of_articles(source: str, names: Sequence[str]) -> dict[str, int]:
    for name in OF_ARTICLES:
        if name not in names:
            raise DataError(
                f"{source}:1: there is no column {name!r}; the file has {', '.join(map(repr, names[:12]))}. "
                "Use the file as it was distributed, or move it away to read the clicks alone."
            )
    return {name: names.index(name) for name in OF_ARTICLES}


def _readable(piece: Piece, where: Mapping[str, int]) -> Piece:
    """The rows, and also which of their texts are none."""
    chunk, faults = piece
    found = dict(faults)
    for name, column in where.items():
        for line, cell in zip(chunk.lines.tolist(), chunk.columns[column], strict=True):
            if NO_TEXT.search(cell):
                found.setdefault(line, Fault(f"column {name!r} is {shown(cell)}", NOT_TEXT))
    return chunk, found


def _first(source: str, faults: Iterable[dict[int, Fault]]) -> DataError:
    line, fault = min(
        (place for found in faults for place in found.items()), key=lambda place: place[0]
    )
    return DataError(
        f"{source}:{line}: {fault.what}; {fault.rule}. Fix the row or pass --skip-bad-rows."
    )


def _good_rows(pieces: Iterable[Piece], where: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Id, name, body and summary of every article that nothing is wrong with."""
    for chunk, faults in pieces:
        rows = zip(*(chunk.columns[where[name]] for name in OF_ARTICLES), strict=True)
        for line, row in zip(chunk.lines.tolist(), rows, strict=True):
            if line not in faults:
                yield tuple(cell.strip() for cell in row)


def _first_of_each(rows: Iterable[tuple[str, ...]], skipped: Mapping[str, int]) -> Articles:
    names: dict[str, str] = {}
    bodies: dict[str, str] = {}
    for item, name, body, summary in rows:
        names.setdefault(item, name)
        bodies.setdefault(item, body or summary)
    notes = (
        f"{n:,} bad {'row' if n == 1 else 'rows'} of {ARTICLES} skipped: {rule}"
        for rule, n in skipped.items()
    )
    return Articles(names, bodies, tuple(notes))


@contextmanager
def _fields_of_any_length() -> Iterator[None]:
    """An article may be longer than the 131,072 characters that csv takes for a stray quote."""
    before = csv.field_size_limit(LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


# ---- both files


def _source(place: Path, name: str) -> str:
    """The file, for messages; inside a zip there are two, so the zip alone would not do."""
    return str(place / name if place.suffix == ".zip" else files.place_of(place, name))


def _split(source: str, lines: Iterable[str]) -> tuple[tuple[str, ...], Iterator[Chunk]]:
    """The names in the header, and the rows below it."""
    stream = iter(lines)
    names = _header(source, next(stream, ""))
    return names, chunks(source, stream, SEPARATOR, len(names), True, 2)


def _header(source: str, line: str) -> tuple[str, ...]:
    if not line.strip():
        raise DataError(
            f"{source}: is empty; expected a header and rows below it. Check that it is the right file."
        )
    try:
        return tuple(name.strip() for name in split_line(line, SEPARATOR, True))
    except csv.Error as error:
        raise DataError(
            f"{source}:1: the header {shown(line.strip())} cannot be split ({error}); expected names parted by {SEPARATOR!r}. "
            "Look for a stray quote."
        ) from None


def _numbered(chunk: Chunk, names: Sequence[str], column: int) -> Piece:
    """The rows under plain whole numbers, and what is wrong with those that have none or too few cells."""
    cells = chunk.columns[column]
    numbers = [WHOLE_NUMBER.fullmatch(cell.strip()) for cell in cells]
    faults = {
        line: Fault(f"{n} columns", f"expected {len(names)} columns")
        for line, n in chunk.wrong.items()
    }
    for line, cell, number in zip(chunk.lines.tolist(), cells, numbers, strict=True):
        if number is None:
            faults[line] = Fault(f"column {names[column]!r} is {shown(cell)}", WHOLE)
    columns = list(chunk.columns)
    columns[column] = [(number[1].lstrip("0") or "0") if number else "" for number in numbers]
    return Chunk(columns, chunk.lines, chunk.wrong), faults
