"""Reads JSON and YAML from elsewhere: files of limited size, without deep nesting."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coterie.core.file_limits import MIB, most_bytes
from coterie.core.printable import one_line
from coterie.errors import DataError
from coterie.types import JsonObject

if TYPE_CHECKING:
    import yaml

MOST_JSON_BYTES = 256 * MIB
"""A list of a million users with their keys has 100 MiB. Python needs up to 25 times as much."""
MOST_YAML_BYTES = MIB
"""An experiment has 2 KiB. PyYAML reads 1 MiB in about a second."""
MOST_YAML_DEPTH = 20
"""Settings have 2 levels."""


def read_text(path: Path, most: int) -> str:
    """The text of a file of at most so many bytes."""
    most = min(most, most_bytes())
    with path.open("rb") as file:
        # A read allocates as much as it asks for. A pipe or a device has no size.
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, most) + 1)
    if len(content) > most:
        raise DataError(
            f"{path}: has more than {most:,} bytes; expected at most that many. Check the path."
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text ({error}). Write it again.") from None


def read_json(path: Path) -> object:
    """The value in a JSON file."""
    return cast(object, parse_json(read_text(path, MOST_JSON_BYTES), path))


def read_json_object(path: Path) -> JsonObject:
    """The object in a JSON file."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise DataError(
            f"{path}: is a JSON {type(found).__name__}; expected an object. Write it again."
        )
    return found


def parse_json(text: str | bytes, source: object) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{source}: is not valid JSON ({one_line(error)}). Write it again."
        ) from None


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; a fault is a yaml.YAMLError.

    Aliases are refused: nested ones, of a few lines, stand for billions of values.
    """
    import yaml

    try:
        return yaml.load(text, _loader())
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        # Values that a tag or a form promises and that are none, such as 2001-99-99.
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None


@cache
def _loader() -> type[yaml.SafeLoader]:
    """PyYAML's safe loader without aliases, and of limited depth."""
    import yaml

    class PlainLoader(yaml.SafeLoader):
        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                raise yaml.YAMLError("it has an alias; write the value itself")
            if self.depth == MOST_YAML_DEPTH:
                raise yaml.YAMLError(f"it has more than {MOST_YAML_DEPTH} levels")
            self.depth += 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            return node

    return PlainLoader
