"""Arrays as npz files. When a file is read, every header is checked before an array is allocated.

`numpy.load` allocates what a header asks for. Here the shape and the type of an array must give
exactly the size that the archive declares, and the sum of all sizes is limited.
"""

from __future__ import annotations

import ast
import json
import math
import struct
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from coterie.core import archives
from coterie.core.file_limits import MIB, most_bytes, refuse_large, size_of
from coterie.core.printable import one_line
from coterie.errors import DataError

SUFFIX = ".npy"
MAGIC = b"\x93NUMPY"
LENGTHS = {1: "<H", 2: "<I"}
"""Version of a header -> how its length is written. Version 3 is for named columns."""
MOST_HEADER_BYTES = 4096
"""A header of plain arrays has 128 bytes."""
KINDS = "biufU"
"""Bools, numbers and texts. Objects would need pickle, which runs code of whoever wrote it."""
MOST_ITEM_BYTES = 4096
"""A text of fixed width has up to 1,000 characters."""
MOST_DIMENSIONS = 8
MOST_MEMBERS = 1_000
LAST_CHARACTER = 0x10FFFF
BLOCK = MIB


@dataclass(frozen=True, slots=True)
class Header:
    dtype: np.dtype
    shape: tuple[int, ...]
    is_fortran: bool
    n_bytes: int
    """Of the content."""


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of an npz file."""
    out = BytesIO()
    np.savez(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def packed_texts(values: np.ndarray) -> np.ndarray:
    """Strings as the bytes of a JSON list; numbers as they are.

    Object arrays would need pickle, and fixed-width arrays would pad every string to the longest.
    """
    if values.dtype.kind != "O":
        return values
    return np.frombuffer(json.dumps([str(v) for v in values]).encode(), np.uint8)


def unpacked_texts(values: np.ndarray) -> np.ndarray:
    if values.ndim != 1:
        raise ValueError(f"texts or ids have {values.ndim} dimensions; expected 1")
    if values.dtype != np.uint8:
        return values
    texts = json.loads(values.tobytes())
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError("texts are not a list of strings")
    return np.array(texts, dtype=object)


def read_file(path: Path, wanted: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz file; `wanted` leaves all others out."""
    with path.open("rb") as stream:
        return read(stream, path, wanted)


def read_bytes(content: bytes, source: object) -> dict[str, np.ndarray]:
    """The arrays in the bytes of an npz file."""
    return read(BytesIO(content), source)


def read(
    stream: IO[bytes], source: object, wanted: Collection[str] | None = None
) -> dict[str, np.ndarray]:
    """The arrays by name. Anything that is not a plain array is a DataError of one line."""
    refuse_large(source, size_of(stream), most_bytes())
    with archives.open_archive(stream, source) as archive:
        members = [name for name in archive.namelist() if _is_wanted(name, wanted)]
        if len(members) > MOST_MEMBERS:
            raise DataError(
                f"{source}: has {len(members):,} arrays; expected at most {MOST_MEMBERS:,}. "
                "Write it again."
            )
        archives.refuse_unpacked(archive, members, source)
        return {name.removesuffix(SUFFIX): _array(archive, name, source) for name in members}


def _is_wanted(name: str, wanted: Collection[str] | None) -> bool:
    return name.endswith(SUFFIX) and (wanted is None or name.removesuffix(SUFFIX) in wanted)


def _array(archive: zipfile.ZipFile, name: str, source: object) -> np.ndarray:
    with (
        archives.open_member(archive, name, source) as stream,
        archives.naming_damage(source, archives.DAMAGED_STRUCTURE),
    ):
        try:
            header = _header(stream)
        except _Invalid as why:
            raise DataError(
                f"{source}: array {one_line(name)!r} {why}. Write the file again with numpy.savez."
            ) from None
        size = archive.getinfo(name).file_size - stream.tell()
        if header.n_bytes != size:
            raise DataError(
                f"{source}: array {one_line(name)!r} has shape {header.shape} of {header.dtype}, "
                f"which takes {header.n_bytes:,} bytes; expected the {size:,} bytes in the file. "
                "Fetch or copy it again."
            )
        return _content(stream, header)


class _Invalid(Exception):
    """Why a header is not one of a plain array."""


def _header(stream: IO[bytes]) -> Header:
    start = stream.read(len(MAGIC) + 2)
    version = start[-2] if len(start) == len(MAGIC) + 2 else 0
    if not start.startswith(MAGIC) or version not in LENGTHS:
        raise _Invalid("is not in the npy format; expected version 1 or 2")
    packed = struct.Struct(LENGTHS[version])
    (length,) = packed.unpack(stream.read(packed.size))
    if length > MOST_HEADER_BYTES:
        raise _Invalid(f"has a header of {length:,} bytes; expected at most {MOST_HEADER_BYTES:,}")
    return _parsed(stream.read(length).decode("latin-1"))


def _parsed(text: str) -> Header:
    try:
        about = ast.literal_eval(text.strip())
        descr = about["descr"]
        shape = about["shape"]
        is_fortran = about["fortran_order"]
        if not isinstance(descr, str):
            raise TypeError("named columns")
        dtype = np.dtype(descr)
    except (SyntaxError, ValueError, TypeError, KeyError, MemoryError, RecursionError) as error:
        raise _Invalid(f"has a header that cannot be read ({one_line(error)[:80]})") from None
    if dtype.kind not in KINDS or not 0 < dtype.itemsize <= MOST_ITEM_BYTES or not dtype.isnative:
        raise _Invalid(f"is of type {one_line(dtype)}; expected numbers or short texts")
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or len(shape) > MOST_DIMENSIONS or type(is_fortran) is not bool:
        raise _Invalid(
            f"has shape {one_line(shape)[:80]}; expected at most {MOST_DIMENSIONS} whole numbers"
        )
    return Header(dtype, shape, is_fortran, math.prod(shape) * dtype.itemsize)


def _content(stream: IO[bytes], header: Header) -> np.ndarray:
    raw = np.empty(header.n_bytes, np.uint8)
    for start in range(0, header.n_bytes, BLOCK):
        block = stream.read(min(BLOCK, header.n_bytes - start))
        if len(block) < min(BLOCK, header.n_bytes - start):
            raise EOFError("an array ends early")
        raw[start : start + len(block)] = np.frombuffer(block, np.uint8)
    flat = raw.view(header.dtype)
    if header.dtype.kind == "b" and (raw > 1).any():
        raise ValueError("a bool is neither 0 nor 1")
    if header.dtype.kind == "U" and (raw.view(np.uint32) > LAST_CHARACTER).any():
        raise ValueError("a character is above U+10FFFF")
    if header.is_fortran:
        return flat.reshape(header.shape[::-1]).T
    return flat.reshape(header.shape)
