"""A look at a data file before a run: its first rows, its columns, and what a run would read."""

from __future__ import annotations

import csv
import threading
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from coterie.console.experiment_request import FileRequest, refuse_outside
from coterie.console.folders import Folders
from coterie.core.printable import one_line
from coterie.data import datasets
from coterie.data.column_names import assign_columns
from coterie.data.delimited import open_text
from coterie.data.description import describe, table_of
from coterie.data.fetch import is_local
from coterie.data.filters import Filters
from coterie.data.interactions import Interactions
from coterie.data.table import REQUIRED, ROLES
from coterie.errors import ConfigError, UserError
from coterie.types import JsonObject

ROWS = 8
LONGEST_CELL = 80
TEXT_ENDINGS = (".csv", ".tsv", ".txt")
_one_at_a_time = threading.Lock()
"""A file may take all memory once, not several times."""


def preview(request: FileRequest, folders: Folders) -> JsonObject:
    """What is in a dataset; an error of the reader is part of the reply, with the columns."""
    refuse_outside(request, folders)
    found: JsonObject = {"roles": list(ROLES), "required": list(REQUIRED), "error": ""}
    with _one_at_a_time:
        try:
            found |= _first_rows(request)
            data = _load(request)
        except UserError as error:
            return found | {"error": str(error)}
        facts = describe(data)
        return found | {
            "facts": [list(row) for row in table_of(facts)],
            "reading": [one_line(line) for line in (*facts["reading"], *facts["notes"])],
        }


def _load(request: FileRequest) -> Interactions:
    if not request.is_named:
        return datasets.load(request.dataset, Filters(), request.options())
    dataset = datasets.dataset(request.dataset)
    if not (dataset.made_up or is_local(dataset.name, dataset.signature)):
        raise ConfigError(
            f"{dataset.name} is not on this machine; expected it in the data folder for a preview. "
            f"Run: coterie data fetch {dataset.name}"
        )
    return datasets.load(request.dataset)


def _first_rows(request: FileRequest) -> JsonObject:
    """Columns, their roles and the first rows of a text file; nothing of other formats."""
    path = Path(request.dataset)
    is_text = path.suffix.lower() in TEXT_ENDINGS
    if request.is_named or not (is_text and path.is_file()):
        return {}
    file = open_text(path, request.options())
    lines = islice(file.text.splitlines(), ROWS)
    texts = (line.decode(errors="replace") for line in lines)
    split = csv.reader(texts, delimiter=file.separator) if len(file.separator) == 1 else ()
    return {
        "names": [one_line(name) for name in file.names],
        "rows": [[one_line(cell)[:LONGEST_CELL] for cell in row] for row in split],
        "columns": _roles(file.names, request),
    }


def _roles(names: Sequence[str], request: FileRequest) -> dict[str, str]:
    """The column of each role, as far as it is known or guessed."""
    try:
        roles = assign_columns("", names, request.columns)
    except UserError:
        return dict(request.columns)
    return {role: roles.name(role) for role in roles.positions}
