"""Opening data files: plain, gzip, or inside a zip or a folder; every failure is one line that names the file."""

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
    """Lines of a text file. Bytes that are not valid text come through as lone surrogates, for the reader to report."""
    with _reported(path), _open_bytes(path, member) as raw:
        yield io.TextIOWrapper(raw, encoding=encoding, errors="surrogateescape", newline="")


def exists(place: Path, name: str) -> bool:
    return _find(place, name) is not None


@contextmanager
def open_member(place: Path, name: str, encoding: str = "utf-8-sig") -> Iterator[IO[str]]:
    """A named file inside a folder or a zip, itself possibly gzipped, at any depth."""
    found = _find(place, name)
    if found is None:
        raise DataError(
            f"{place}: no file {name!r} in it. Point to the folder or zip as it was distributed."
        )
    path, member = found
    with open_text(path, member, encoding) as lines:
        yield lines


def place_of(place: Path, name: str) -> Path:
    """The file that `open_member` opens, for messages."""
    found = _find(place, name)
    return place if found is None else found[0]


def home(place: Path) -> Path:
    """Where a dataset's other files lie: the folder or zip itself, or the folder of the one file that was named."""
    return place if place.is_dir() or place.suffix == ".zip" else place.parent


def _find(place: Path, name: str) -> tuple[Path, str | None] | None:
    names = (name, f"{name}.gz")
    if place.is_dir():
        for wanted in names:
            if (place / wanted).is_file():
                return place / wanted, None
        return None
    if place.suffix == ".zip":
        inside = [m for m in _members(place) if Path(m).name in names]
        return (place, inside[0]) if inside else None
    return (place, None) if place.name in names and place.is_file() else None


def _members(path: Path) -> list[str]:
    with _reported(path), zipfile.ZipFile(path) as archive:
        return [m for m in archive.namelist() if not m.endswith("/")]


@contextmanager
def _open_bytes(path: Path, member: str | None) -> Iterator[IO[bytes]]:
    """Unpacked bytes; everything that was opened on the way to them is closed, whatever happens."""
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
    except (
        RuntimeError,
        NotImplementedError,
    ) as error:  # a password, or a way of packing nobody knows
        raise DataError(
            f"{path}: cannot be unpacked ({error}). Unpack it and name the file inside."
        ) from None


def _unzipped(stream: IO[bytes]) -> IO[bytes]:
    return io.BufferedReader(gzip.GzipFile(fileobj=stream))


def _only_member(path: Path) -> str:
    members = _members(path)
    if len(members) != 1:
        raise DataError(
            f"{path}: holds {len(members)} files ({', '.join(members[:5])}); expected one. Unpack it and name the file."
        )
    return members[0]


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist. Check the path.") from None
    except PermissionError:
        raise DataError(f"{path}: may not be read. Check its permissions.") from None
    except DAMAGED as error:
        raise DataError(
            f"{path}: is damaged or cut short ({error or type(error).__name__}). Fetch or copy it again."
        ) from None
