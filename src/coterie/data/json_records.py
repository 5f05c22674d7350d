"""Reads JSON: one object per line (JSON lines), or a list of objects.

The content decides, not the name: many files named `.json` have one object per line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from coterie.data import files
from coterie.data.frames import FrameOfFile, check_frame
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import NOT_TEXT, REQUIRED, Fault, first_fault, is_text, no_rows, shown
from coterie.errors import DataError

AN_OBJECT = 'expected one object per line, such as {"user_id": 1, "item_id": 2}, or a list of them'


def read(path: Path, options: ReadOptions) -> Interactions:
    with files.open_text(path) as lines:
        text = lines.read()
    return options.build(check_frame(_frame(str(path), text), options))


def _frame(source: str, text: str) -> FrameOfFile:
    import pandas as pd

    is_list = text.lstrip().startswith("[")
    entries = _list_of(source, text) if is_list else (_parsed(line) for line in text.split("\n"))
    good, faults = _objects_among(entries)
    if not good:
        raise first_fault(faults, source) if faults else no_rows(source, REQUIRED, 0)
    return FrameOfFile(
        source=source,
        # As objects: a missing value must not turn a column of large whole numbers into floats.
        frame=pd.DataFrame(list(good.values()), dtype=object),
        lines=np.array(list(good), np.int64),
        faults=faults,
    )


Entry = dict[str, object] | Fault | None
"""An object, why there is none, or None for a blank line."""


def _list_of(source: str, text: str) -> list[Entry]:
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{source}: is not valid JSON ({error}); {AN_OBJECT}. Write it again."
        ) from None
    return [_entry(entry, json.dumps(entry, ensure_ascii=False)) for entry in entries]


def _parsed(line: str) -> Entry:
    if not line.strip():
        return None
    try:
        return _entry(json.loads(line), line)
    except (ValueError, RecursionError):
        return Fault(f"{shown(line.strip())} is not JSON", AN_OBJECT)


def _entry(value: object, text: str) -> Entry:
    if not isinstance(value, dict):
        return Fault(f"{shown(text.strip())} is not an object", AN_OBJECT)
    # An escape such as \ud800 is half a character: valid JSON, but no text.
    if not is_text(text) or ("\\u" in text and not is_text(json.dumps(value, ensure_ascii=False))):
        return Fault("the object has characters that are no text", NOT_TEXT)
    return {name: _flat(cell) for name, cell in value.items()}


def _flat(cell: object) -> object:
    """Lists and objects as their text: an id such as {"$oid": "5f"} is an id too."""
    return json.dumps(cell) if isinstance(cell, (list, dict)) else cell


def _objects_among(
    entries: Iterable[Entry],
) -> tuple[dict[int, dict[str, object]], dict[int, Fault]]:
    """Objects and faults by line, or by their number in a list."""
    good: dict[int, dict[str, object]] = {}
    faults: dict[int, Fault] = {}
    for line, entry in enumerate(entries, start=1):
        if isinstance(entry, Fault):
            faults[line] = entry
        elif entry is not None:
            good[line] = entry
    return good, faults
