"""Opens data files: plain, gzipped, or inside a zip or a folder. Every error names the file.

Files are limited in size (`core.file_limits`), also while they are unpacked.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coterie.core.archives import naming_damage, open_archive
from coterie.core.archives import open_member as open_packed
from coterie.core.file_limits import (
    bounded,
    is_regular,
    most_bytes,
    most_unpacked,
    refuse_large,
    size_of,
)
from coterie.core.printable import one_line
from coterie.errors import DataError


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
    with _as_data_error(path), path.open("rb") as file, open_archive(file, path) as archive:
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
        with (
            path.open("rb") as file,
            open_archive(file, path) as archive,
            open_packed(archive, member, path) as stream,
        ):
            yield _unzipped(stream, path) if member.endswith(".gz") else stream
    else:
        with path.open("rb") as stream:
            yield (
                _unzipped(stream, path) if path.suffix.lower() == ".gz" else _bounded(stream, path)
            )


def _bounded(stream: IO[bytes], path: Path) -> IO[bytes]:
    if not is_regular(stream):
        return bounded(stream, path, most_bytes(), packed=0)
    refuse_large(path, size_of(stream), most_bytes())
    return stream


def _unzipped(stream: IO[bytes], path: Path) -> IO[bytes]:
    packed = path.stat().st_size
    return bounded(gzip.GzipFile(fileobj=stream), path, most_unpacked(packed), packed)


def _only_member(path: Path) -> str:
    members = _members(path)
    if len(members) != 1:
        raise DataError(
            f"{path}: contains {len(members)} files ({one_line(', '.join(members[:5]))}); "
            "expected one. Unpack it and name the file."
        )
    return members[0]


@contextmanager
def _as_data_error(path: Path) -> Iterator[None]:
    try:
        with naming_damage(path):
            yield
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist. Check the path.") from None
    except PermissionError:
        raise DataError(f"{path}: is not readable. Check its permissions.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({one_line(error)}). Check the path.") from None
