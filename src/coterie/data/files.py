"""Opens data files: plain, gzipped, or inside a zip or a folder. Every error names the file."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coterie.errors import DataError

DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile)


@contextmanager
def open_text(
    path: Path, member: str | None = None, encoding: str = "utf-8-sig"
) -> Iterator[IO[str]]:
    """Lines of a text file. Invalid bytes become lone surrogates, which the reader reports."""
    with _as_data_error(path), _open_bytes(path, member) as raw:
        yield io.TextIOWrapper(raw, encoding=encoding, errors="surrogateescape", newline="")


def read_bytes(path: Path) -> bytes:
    """The unpacked content of a file."""
    with _as_data_error(path), _open_bytes(path, None) as raw:
        return raw.read()


def exists(path: Path, name: str) -> bool:
    return _find(path, name) is not None


@contextmanager
def open_member(path: Path, name: str, encoding: str = "utf-8-sig") -> Iterator[IO[str]]:
    """Open a named file in a folder, or at any depth in a zip; it may be gzipped."""
    location = _find(path, name)
    if location is None:
        raise DataError(
            f"{path}: no file {name!r} in it. Point to the folder or zip as it was distributed."
        )
    file, member = location
    with open_text(file, member, encoding) as lines:
        yield lines


def path_of(path: Path, name: str) -> Path:
    """The file that `open_member` opens, for messages."""
    location = _find(path, name)
    return path if location is None else location[0]


def home(path: Path) -> Path:
    """The folder or zip of a dataset's files; for the path of a single file, its folder."""
    return path if path.is_dir() or path.suffix == ".zip" else path.parent


def _find(path: Path, name: str) -> tuple[Path, str | None] | None:
    names = (name, f"{name}.gz")
    if path.is_dir():
        for wanted in names:
            if (path / wanted).is_file():
                return path / wanted, None
        return None
    if path.suffix == ".zip":
        inside = [m for m in _members(path) if Path(m).name in names]
        return (path, inside[0]) if inside else None
    return (path, None) if path.name in names and path.is_file() else None


def _members(path: Path) -> list[str]:
    with _as_data_error(path), zipfile.ZipFile(path) as archive:
        return [m for m in archive.namelist() if not m.endswith("/")]


@contextmanager
def _open_bytes(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    """Unpacked bytes. All streams are closed on exit, also after an error."""
    if path.is_dir():
        raise DataError(
            f"{path}: is a folder; expected a file of interactions. Name the file inside it."
        )
    if path.suffix == ".zip":
        member = member or _only_member(path)
        with zipfile.ZipFile(path) as archive, _open_packed(archive, member, path) as stream:
            yield _unzipped(stream) if member.endswith(".gz") else stream
    else:
        with path.open("rb") as stream:
            yield _unzipped(stream) if path.suffix.lower() == ".gz" else stream


def _open_packed(archive: zipfile.ZipFile, member: str, path: Path) -> IO[bytes]:
    try:
        return archive.open(member)
    except (RuntimeError, NotImplementedError) as error:  # a password, or an unknown compression
        raise DataError(
            f"{path}: cannot be unpacked ({error}). Unpack it and name the file inside."
        ) from None


def _unzipped(stream: IO[bytes]) -> IO[bytes]:
    return io.BufferedReader(gzip.GzipFile(fileobj=stream))


def _only_member(path: Path) -> str:
    members = _members(path)
    if len(members) != 1:
        raise DataError(
            f"{path}: contains {len(members)} files ({', '.join(members[:5])}); expected one. "
            "Unpack it and name the file."
        )
    return members[0]


@contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist. Check the path.") from None
    except PermissionError:
        raise DataError(f"{path}: is not readable. Check its permissions.") from None
    except DAMAGED as error:
        raise DataError(
            f"{path}: is damaged or cut short ({error or type(error).__name__}). "
            "Fetch or copy it again."
        ) from None
