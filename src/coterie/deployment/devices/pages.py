"""The device page and its modules: files of the package, read once, served by exact name."""

from __future__ import annotations

from pathlib import Path

import coterie
from coterie.core.page_files import PageFile, page_files

STATIC = Path(coterie.__file__).parent / "device" / "static"
INDEX = "index.html"


def read_pages(folder: Path = STATIC) -> dict[str, PageFile]:
    """Name -> file, of all files in a folder; INDEX also under ""."""
    found = dict(page_files(folder))
    if INDEX in found:
        found[""] = found[INDEX]
    return found
