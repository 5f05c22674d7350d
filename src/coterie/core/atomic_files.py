"""Writes files whole or not at all. Files about users are readable by their owner only."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

OWNER_ONLY = 0o600
OWNER_ONLY_FOLDER = 0o700


def write_file(path: Path, content: bytes, *, owner_only: bool) -> None:
    """Write a file at once; see `replacing`."""
    with replacing(path, owner_only=owner_only) as scratch, scratch.open("ab") as out:
        out.write(content)


@contextlib.contextmanager
def replacing(path: Path, *, owner_only: bool) -> Iterator[Path]:
    """An empty temporary file, renamed at the end: readers never see a partial file.

    `owner_only` is for all that tells what single users did: ids, interactions, metrics of users.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(scratch, "wb", opener=_owner_only if owner_only else None) as out:
            yield scratch
            os.fsync(out.fileno())
        scratch.replace(path)
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def link_file(origin: Path, path: Path) -> None:
    """Give a file that is never changed, only replaced, a second name; at once, as `replacing`.

    It is a hard link, or a copy for its owner only where the file system has no links.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(origin, scratch)
        scratch.replace(path)
    except OSError:
        write_file(path, origin.read_bytes(), owner_only=True)
    finally:
        # A link that replaces a link to the same file stays.
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, OWNER_ONLY)
