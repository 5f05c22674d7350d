"""The device page and its modules: files of the package, read once, served by exact name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import coterie

STATIC = Path(coterie.__file__).parent / "device" / "static"
INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
}
"""Files of other kinds are not served."""
CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


@dataclass(frozen=True, slots=True)
class StaticFile:
    content: bytes
    kind: str


def read_pages(folder: Path = STATIC) -> dict[str, StaticFile]:
    """Name -> file, of all files in a folder; INDEX also under "". Requests choose among these, so
    that no request can name another file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            name = path.relative_to(folder).as_posix()
            found[name] = StaticFile(path.read_bytes(), TYPES[path.suffix])
    if INDEX in found:
        found[""] = found[INDEX]
    return found
