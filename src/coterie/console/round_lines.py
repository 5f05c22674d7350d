"""Reads rounds.jsonl as it grows. What was read once is not read again."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from coterie.core.plain_files import parse_json
from coterie.errors import DataError
from coterie.types import JsonObject

MOST_BLOCK = 1 << 24
"""Bytes that are read at once."""
HEAD = 1 << 14
TAIL = 1 << 16


@dataclass(frozen=True, slots=True)
class RoundLine:
    """One line, and the byte after it: the place from which a reader goes on."""

    end: int
    line: JsonObject

    @property
    def is_begin(self) -> bool:
        return "begin" in self.line

    @property
    def is_measured(self) -> bool:
        return "metrics" in self.line


def read_lines(path: Path, start: int = 0, most: int = MOST_BLOCK) -> tuple[list[RoundLine], int]:
    """(the complete lines from a byte on, the byte to go on from).

    What is not a line of a round log is passed over: a file may be anything.
    """
    with path.open("rb") as file:
        file.seek(start)
        block = file.read(most)
    end = block.rfind(b"\n") + 1
    if not end:
        # A line that fills the whole block is not from a round log.
        return [], start + (len(block) if len(block) == most else 0)
    lines = []
    at = start
    for text in block[:end].splitlines(keepends=True):
        at += len(text)
        line = _parsed(text, path)
        if line is not None:
            lines.append(RoundLine(at, line))
    return lines, start + end


def first_and_last(path: Path) -> tuple[JsonObject, JsonObject]:
    """(the first line, the last line), read without what is between; empty if there are none."""
    with path.open("rb") as file:
        head = file.read(HEAD)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        tail = file.read(TAIL)
    return _first_of(_complete(head), path), _first_of(reversed(_complete(tail)), path)


def _complete(block: bytes) -> list[bytes]:
    """The lines of a block that have an end."""
    return block[: block.rfind(b"\n") + 1].splitlines()


def _first_of(texts: Iterable[bytes], path: Path) -> JsonObject:
    """The first text that is a line of a log; the others are not parsed."""
    parsed = (_parsed(text, path) for text in texts)
    return next((line for line in parsed if line is not None), {})


def _parsed(text: bytes, path: Path) -> JsonObject | None:
    try:
        line = parse_json(text, path)
    except (DataError, UnicodeDecodeError):
        return None
    if not isinstance(line, dict):
        return None
    is_begin = isinstance(line.get("begin"), dict) and _is_count(line.get("after"))
    is_round = _is_count(line.get("round")) and isinstance(line.get("metrics", {}), dict)
    return line if (is_begin or is_round) and _is_plain(line) else None


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_plain(line: JsonObject) -> bool:
    """Whether browsers can read it: JSON has no NaN, and Python's has."""
    try:
        json.dumps(line, allow_nan=False)
    except ValueError:
        return False
    return True
