"""Article clicks on IBM Watson Studio (course data), with the articles' titles and most bodies.

The dataset replaces Adressa, the news data of STTFedRec, which is not available. It has no times,
and users click an article more than once. Clicks with an empty email have no user and are dropped.

Article ids are written `1430.0` with the clicks and `1430` with the bodies; the reader makes both
whole numbers. Some titles are the truncated output of a data frame (`502    forgetting the past
...` and `Name: title, dtype: object`); the article's full name replaces them. If an article is
described twice, the first description counts.
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
from coterie.data.options import ReadOptions
from coterie.data.table import (
    NOT_TEXT,
    CheckedTable,
    Fault,
    Layout,
    Piece,
    check_table,
    column_positions,
    shown,
)
from coterie.errors import DataError

CLICKS = "user-item-interactions.csv"
ARTICLES = "articles_community.csv"
COLUMNS = {"user_id": "email", "item_id": "article_id"}
TITLE = "title"
ARTICLE_ID = "article_id"
ARTICLE_COLUMNS = (ARTICLE_ID, "doc_full_name", "doc_body", "doc_description")
SEPARATOR = ","
FIELD_SIZE_LIMIT = 2**31 - 1  # the largest limit that csv accepts on every platform
NOT_WHOLE = "expected a whole number"
WHOLE_NUMBER = re.compile(r"([0-9]+)(?:\.0*)?")
PRINT_SUFFIX = "\nName: title, dtype: object"
NOT_UTF8 = re.compile("[\ud800-\udfff]")  # bytes that are not UTF-8 are decoded to surrogates


@dataclass(frozen=True, slots=True)
class Articles:
    """Names and bodies by article id."""

    names: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read(path: Path, options: ReadOptions) -> Interactions:
    if not path.is_dir() and not _has_click_columns(path):
        # The file name alone is not proof: another delimited file may have the same name.
        return delimited.read(path, options)
    table, n_dropped = _clicks(path, options)
    articles = _articles(files.home(path), options.skip_bad_rows)
    titles = _titles(table, articles.names)
    data = options.build(table).describe_items(titles, {}, articles.bodies)
    if n_dropped:
        clicks = "click" if n_dropped == 1 else "clicks"
        data = data.note(f"{n_dropped:,} {clicks} without a user (empty email) dropped")
    for note in articles.notes:
        data = data.note(note)
    return data


def _has_click_columns(path: Path) -> bool:
    with files.open_member(path, CLICKS) as lines:
        header = next(lines, "")
    return any(name in header for name in COLUMNS.values())


# ---- clicks


def _clicks(path: Path, options: ReadOptions) -> tuple[CheckedTable, int]:
    """The checked clicks, and the number of clicks dropped for lack of a user."""
    source = _source(path, CLICKS)
    layout = Layout(columns=COLUMNS | options.columns, also=(TITLE,))
    with files.open_member(path, CLICKS) as lines:
        names, split = _split(source, lines)
        positions = column_positions(source, names, layout.columns)
        every = list(split)
    with_user = [_rows_with_user(chunk, positions["user_id"]) for chunk in every]
    pieces = (_with_whole_ids(chunk, names, positions["item_id"]) for chunk in with_user)
    table = check_table(source, pieces, names, layout, options.skip_bad_rows)
    n_rows = sum(len(chunk.lines) for chunk in every)
    n_with_user = sum(len(chunk.lines) for chunk in with_user)
    return table, n_rows - n_with_user


def _rows_with_user(chunk: Chunk, user: int) -> Chunk:
    rows = [row for row, cell in enumerate(chunk.columns[user]) if cell.strip()]
    columns = [[cells[row] for row in rows] for cells in chunk.columns]
    return Chunk(columns, chunk.lines[np.array(rows, np.int64)], chunk.wrong)


def _titles(table: CheckedTable, names: Mapping[str, str]) -> dict[str, str]:
    items = table.columns["item_id"].tolist()
    titles = table.columns[TITLE].tolist() if TITLE in table.columns else [""] * len(items)
    of_clicks = {item: title for item, title in zip(items, titles, strict=True) if title}
    best = {
        item: _title(of_clicks.get(item, ""), names.get(item, "")) for item in dict.fromkeys(items)
    }
    return {item: title for item, title in best.items() if title}


def _title(of_clicks: str, name: str) -> str:
    """The title given with the clicks; if it is missing or a print, the article's name.

    Names are lower-cased, as all titles given with the clicks are.
    """
    if of_clicks and not of_clicks.endswith(PRINT_SUFFIX):
        return of_clicks
    return name.lower() or _title_in_print(of_clicks)


def _title_in_print(text: str) -> str:
    """The part of a title that a data frame's print shows: after a row number, up to `...`."""
    _, _, start = text.partition("\n")[0].partition(" ")
    return start.strip().removesuffix("...").rstrip()


# ---- articles


def _articles(home: Path, skip_bad_rows: bool) -> Articles:
    if not files.exists(home, ARTICLES):
        return Articles(notes=(f"articles have no bodies: {ARTICLES} is not next to the clicks",))
    source = _source(home, ARTICLES)
    with files.open_member(home, ARTICLES) as lines, _fields_of_any_length():
        names, split = _split(source, lines)
        positions = _article_columns(source, names)
        pieces = []
        for chunk in split:
            piece = _with_whole_ids(chunk, names, positions[ARTICLE_ID])
            pieces.append(_with_text_faults(piece, positions))
    skipped = Counter(fault.rule for _, faults in pieces for fault in faults.values())
    if skipped and not skip_bad_rows:
        raise _first_fault(source, [faults for _, faults in pieces])
    return _first_of_each(_good_rows(pieces, positions), skipped)


def _article_columns(source: str, names: Sequence[str]) -> dict[str, int]:
    for name in ARTICLE_COLUMNS:
        if name not in names:
            raise DataError(
                f"{source}:1: there is no column {name!r}; "
                f"the file has {', '.join(map(repr, names[:12]))}. "
                "Use the file as it was distributed, or move it away to read the clicks alone."
            )
    return {name: names.index(name) for name in ARTICLE_COLUMNS}


def _with_text_faults(piece: Piece, positions: Mapping[str, int]) -> Piece:
    """The piece with a fault for every row that has a cell that is not UTF-8."""
    chunk, faults = piece
    all_faults = dict(faults)
    for name, column in positions.items():
        for line, cell in zip(chunk.lines.tolist(), chunk.columns[column], strict=True):
            if NOT_UTF8.search(cell):
                all_faults.setdefault(line, Fault(f"column {name!r} is {shown(cell)}", NOT_TEXT))
    return chunk, all_faults


def _first_fault(source: str, pieces: Iterable[dict[int, Fault]]) -> DataError:
    by_line = (entry for faults in pieces for entry in faults.items())
    line, fault = min(by_line, key=lambda entry: entry[0])
    return DataError(
        f"{source}:{line}: {fault.what}; {fault.rule}. Fix the row or pass --skip-bad-rows."
    )


def _good_rows(pieces: Iterable[Piece], positions: Mapping[str, int]) -> Iterator[tuple[str, ...]]:
    """Id, name, body and summary of every article without a fault."""
    for chunk, faults in pieces:
        rows = zip(*(chunk.columns[positions[name]] for name in ARTICLE_COLUMNS), strict=True)
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
    """Lift csv's limit of 131,072 characters per field: articles may be longer."""
    before = csv.field_size_limit(FIELD_SIZE_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(before)


# ---- both files


def _source(path: Path, name: str) -> str:
    """The file's name for messages. A zip holds both files, so its path alone is ambiguous."""
    return str(path / name if path.suffix == ".zip" else files.path_of(path, name))


def _split(source: str, lines: Iterable[str]) -> tuple[tuple[str, ...], Iterator[Chunk]]:
    """The names in the header, and the rows below it."""
    stream = iter(lines)
    names = _header(source, next(stream, ""))
    return names, chunks(source, stream, SEPARATOR, len(names), True, 2)


def _header(source: str, line: str) -> tuple[str, ...]:
    if not line.strip():
        raise DataError(
            f"{source}: is empty; expected a header and rows below it. "
            "Check that it is the right file."
        )
    try:
        return tuple(name.strip() for name in split_line(line, SEPARATOR, True))
    except csv.Error as error:
        raise DataError(
            f"{source}:1: the header {shown(line.strip())} cannot be split ({error}); "
            f"expected names separated by {SEPARATOR!r}. Look for a stray quote."
        ) from None


def _with_whole_ids(chunk: Chunk, names: Sequence[str], column: int) -> Piece:
    """The rows with ids as plain whole numbers, and the faults of rows where that fails."""
    cells = chunk.columns[column]
    numbers = [WHOLE_NUMBER.fullmatch(cell.strip()) for cell in cells]
    faults = {
        line: Fault(f"{n} columns", f"expected {len(names)} columns")
        for line, n in chunk.wrong.items()
    }
    for line, cell, number in zip(chunk.lines.tolist(), cells, numbers, strict=True):
        if number is None:
            faults[line] = Fault(f"column {names[column]!r} is {shown(cell)}", NOT_WHOLE)
    columns = list(chunk.columns)
    columns[column] = [(number[1].lstrip("0") or "0") if number else "" for number in numbers]
    return Chunk(columns, chunk.lines, chunk.wrong), faults
