"""How large a file from elsewhere may be, and how far it may unpack, before memory is allocated.

Every size that a file declares comes from whoever made the file. It is compared with these limits
first.
"""

from __future__ import annotations

import io
import os
import stat
from typing import IO, Protocol

from coterie.errors import ConfigError, DataError

GIB = 2**30
MIB = 2**20
VARIABLE = "COTERIE_FILE_LIMIT"
USUAL_GIB = 8.0
"""The largest content of a file. The weights of EASE on 40,000 items have 6 GiB."""
MOST_RATIO = 100
"""Unpacked bytes per packed byte. Tables of interactions have 3 to 10; deflate allows 1,032."""
ANY_RATIO = 64 * MIB
"""Content of up to this size may have any ratio: it fits into the memory of every machine."""
BLOCK = MIB


def most_bytes() -> int:
    """The largest content of a file: COTERIE_FILE_LIMIT in GiB, by default 8."""
    given = os.environ.get(VARIABLE) or str(USUAL_GIB)
    try:
        limit = int(float(given) * GIB)
    except (ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise ConfigError(
            f"{VARIABLE} is {given!r}; expected a number of GiB above 0. Set for example 16."
        )
    return limit


def most_unpacked(packed: int) -> int:
    """The largest content of a compressed file of so many bytes."""
    return min(most_bytes(), max(ANY_RATIO, MOST_RATIO * packed))


def refuse_large(source: object, size: int, most: int, packed: int | None = None) -> None:
    """Refuse content above `most`; `packed` is the size of the compressed file."""
    if size <= most:
        return
    if packed is not None and most < most_bytes():
        raise DataError(
            f"{source}: unpacks to {size:,} bytes or more from {packed:,}; expected at most "
            f"{MOST_RATIO} times its size. If you trust it, unpack it yourself."
        )
    raise DataError(
        f"{source}: has {size:,} bytes or more of content; expected at most {most:,}. "
        f"If you trust it, raise the limit: set {VARIABLE} to a number of GiB."
    )


def size_of(stream: IO[bytes]) -> int:
    """The number of bytes of a stream; it is at its beginning afterwards."""
    size = stream.seek(0, io.SEEK_END)
    stream.seek(0)
    return size


def is_regular(stream: IO[bytes]) -> bool:
    """Whether a stream is a plain file: a pipe or a device has no size."""
    return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def bounded(stream: Readable, source: object, most: int, packed: int) -> IO[bytes]:
    """A stream that is refused once it has given more than `most` bytes."""
    return io.BufferedReader(_BoundedStream(stream, source, most, packed), BLOCK)


class _BoundedStream(io.RawIOBase):
    def __init__(self, stream: Readable, source: object, most: int, packed: int) -> None:
        self.stream = stream
        self.source = source
        self.most = most
        self.packed = packed
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        view = memoryview(buffer)
        block = self.stream.read(len(view))
        self.given += len(block)
        refuse_large(self.source, self.given, self.most, self.packed)
        view[: len(block)] = block
        return len(block)
