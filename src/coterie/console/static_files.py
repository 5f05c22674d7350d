"""The files of the pages, read once: a request names an entry of a table, never a path."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources, util
from importlib.resources.abc import Traversable
from pathlib import Path

from coterie.errors import MissingExtra

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
PLOTLY = "plotly.js"
STYLE_ID = re.compile(rb'getElementById\("([0-9a-f]{64})"\)')


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    media_type: str

    @property
    def tag(self) -> str:
        """Changes with the content."""
        return f'"{hashlib.blake2b(self.content, digest_size=12).hexdigest()}"'


def static_files() -> dict[str, StaticFile]:
    """Name -> file: the console's own, and plotly's script of the installed package."""
    root = resources.files("coterie.console").joinpath("static")
    return dict(_files(root, "")) | {PLOTLY: _plotly()}


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, StaticFile]]:
    for entry in folder.iterdir():
        suffix = Path(entry.name).suffix
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        elif suffix in TYPES:
            yield f"{prefix}{entry.name}", StaticFile(entry.read_bytes(), TYPES[suffix])


def _plotly() -> StaticFile:
    if util.find_spec("plotly") is None:
        raise MissingExtra("coterie console", "web,report")
    script = resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return StaticFile(_without_inline_styles(script) + script, TYPES[".js"])


def _without_inline_styles(script: bytes) -> bytes:
    """A statement that keeps plotly from adding the inline styles of its maps.

    The content policy forbids them. Plotly leaves them out where an element has their id already.
    """
    ids = sorted({found.decode() for found in STYLE_ID.findall(script)})
    return (
        f"for (const id of {json.dumps(ids)}) "
        'document.head.append(Object.assign(document.createElement("meta"), { id }));\n'
    ).encode()
