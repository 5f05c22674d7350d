"""Reads delimited files with a header: comma, tab, semicolon or bar, plain or compressed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

from coterie.data.files import open_text
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import Layout, read_table

SEPARATORS = ("\t", ";", ",", "|")


def read(path: Path, options: ReadOptions) -> Interactions:
    with open_text(path) as lines:
        first, rest = _peek(lines)
        layout = Layout(separator=_separator(first), columns=options.columns)
        return options.build(read_table(str(path), rest, layout, options.skip_bad_rows))


def _peek(lines: IO[str]) -> tuple[str, Iterator[str]]:
    first = next(lines, "")
    return first, chain([first] if first else [], lines)


def _separator(header: str) -> str:
    """The separator that occurs most often in the header."""
    return max(SEPARATORS, key=header.count) if any(s in header for s in SEPARATORS) else ","
