"""The run folder of a server: its format, and files that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

from coterie.core.plain_files import MOST_JSON_BYTES, read_json_object, read_text
from coterie.core.printable import one_line
from coterie.deployment.enrolment import JsonMessage
from coterie.errors import DataError, RunError
from coterie.experiments import run_folder
from coterie.federated.wire import Malformed
from coterie.types import JsonObject

FORMAT_FILE = "format.json"
FORMAT = 1
"""The format of all files in the folder but the checkpoint, which has its own. Folders of early
versions have no file with the number: they have format 1."""
T = TypeVar("T", bound=JsonMessage)


def write_format(folder: Path) -> None:
    run_folder.write_text(folder, FORMAT_FILE, json.dumps({"format": FORMAT}) + "\n")


def refuse_later_format(folder: Path) -> None:
    """A later version may mean something else by the same files."""
    found = read_json(folder, FORMAT_FILE).get("format", 1)
    if not isinstance(found, int) or found > FORMAT:
        raise RunError(
            f"{folder} has format {found}, of a later Coterie; expected at most {FORMAT}. "
            "Update coterie, or serve into a new folder: coterie serve --config FILE --out FOLDER"
        )


def read_json(folder: Path, name: str) -> JsonObject:
    """The object in a file; empty if there is no file."""
    path = folder / name
    try:
        return read_json_object(path)
    except FileNotFoundError:
        return {}
    except (OSError, DataError) as error:
        raise unreadable(path, error) from None


def read_message(folder: Path, name: str, kind: type[T]) -> T:
    """A message that the server stored in a file."""
    path = folder / name
    try:
        return kind.from_json(read_text(path, MOST_JSON_BYTES))
    except (OSError, Malformed, DataError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, why: object) -> RunError:
    reason = one_line(why).removeprefix(f"{path}: ")
    return RunError(
        f"{path} cannot be read ({reason}); expected the file that a server wrote. "
        "Restore the whole folder from a backup, or serve into a new one: "
        "coterie serve --config FILE --out FOLDER"
    )
