"""Opens zip archives from elsewhere: the directory is checked before any member is unpacked."""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath, PureWindowsPath
from typing import IO

from coterie.core.file_limits import MIB, most_unpacked, refuse_large, size_of
from coterie.core.printable import one_line
from coterie.errors import DataError

MOST_DIRECTORY_BYTES = MIB
"""The list of members. It has about 80 bytes per member; Python needs 10 times as much memory."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""LZMA would allocate as much as its header asks for."""
ENCRYPTED = 0x1
DAMAGED_CONTENT = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)
"""What reading packed bytes raises."""
DAMAGED_STRUCTURE = (
    *DAMAGED_CONTENT,
    struct.error,
    OverflowError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    OSError,
)
"""What wrong offsets, versions and names in a directory or a header raise as well."""


@contextmanager
def naming_damage(
    source: object, faults: tuple[type[Exception], ...] = DAMAGED_CONTENT
) -> Iterator[None]:
    """Name the file in errors about its content."""
    try:
        yield
    except faults as error:
        reason = one_line(error) or type(error).__name__
        raise DataError(
            f"{source}: is damaged or cut short ({reason}). Fetch or copy it again."
        ) from None


@contextmanager
def open_archive(stream: IO[bytes], source: object) -> Iterator[zipfile.ZipFile]:
    """The archive in a stream, if its directory is small and no member leaves the archive."""
    with naming_damage(source, DAMAGED_STRUCTURE):
        archive = zipfile.ZipFile(_Directory(stream, source))
    with archive:
        _refuse_names(archive.namelist(), source)
        yield archive


def open_member(archive: zipfile.ZipFile, name: str, source: object) -> IO[bytes]:
    """The unpacked bytes of a member: at most as many as the directory declares."""
    member = archive.getinfo(name)
    if member.flag_bits & ENCRYPTED or member.compress_type not in METHODS:
        why = f"compression {member.compress_type}"
        if member.flag_bits & ENCRYPTED:
            why = "a password"
        raise DataError(
            f"{source}: cannot be unpacked ({one_line(name)} has {why}). "
            "Unpack it and name the file inside."
        )
    refuse_unpacked(archive, [name], source)
    with naming_damage(source, DAMAGED_STRUCTURE):
        return archive.open(member)


def refuse_unpacked(archive: zipfile.ZipFile, names: Sequence[str], source: object) -> None:
    """Refuse members that unpack to more than the limit together."""
    assert archive.fp is not None
    packed = size_of(archive.fp)
    size = sum(archive.getinfo(name).file_size for name in names)
    refuse_large(source, size, most_unpacked(packed), packed)


class _Directory:
    """A stream whose reads are small: zipfile reads the whole directory at once."""

    def __init__(self, stream: IO[bytes], source: object) -> None:
        self.stream = stream
        self.source = source
        self.seek = stream.seek
        self.tell = stream.tell
        self.seekable = stream.seekable

    def read(self, size: int = -1) -> bytes:
        if size > MOST_DIRECTORY_BYTES:
            raise DataError(
                f"{self.source}: the list of its members has {size:,} bytes; expected at most "
                f"{MOST_DIRECTORY_BYTES:,}. Unpack it and name the file inside."
            )
        return self.stream.read(size)


def _refuse_names(names: Sequence[str], source: object) -> None:
    for name in names:
        if _leaves(name):
            raise DataError(
                f"{source}: member {one_line(name)!r} lies outside of the archive; expected a "
                "relative path without '..'. Do not use the file."
            )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{source}: member {one_line(twice[0])!r} is in it twice; expected distinct names. "
            "Fetch or copy it again."
        )


def _leaves(name: str) -> bool:
    windows = PureWindowsPath(name)
    parts = {*PurePosixPath(name).parts, *windows.parts}
    return ".." in parts or name.startswith("/") or bool(windows.drive or windows.root)
