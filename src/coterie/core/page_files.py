"""Files of a web page, read once: a request names an entry of a table, never a path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Files of other kinds are not served."""


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    media_type: str
    tag: str = field(init=False)
    """Changes with the content."""

    def __post_init__(self) -> None:
        digest = hashlib.blake2b(self.content, digest_size=12).hexdigest()
        object.__setattr__(self, "tag", f'"{digest}"')


def page_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, PageFile]]:
    """(name, file) of all files in a folder and in those below it."""
    for entry in folder.iterdir():
        suffix = Path(entry.name).suffix
        if entry.is_dir():
            yield from page_files(entry, f"{prefix}{entry.name}/")
        elif suffix in MEDIA_TYPES:
            yield f"{prefix}{entry.name}", PageFile(entry.read_bytes(), MEDIA_TYPES[suffix])
