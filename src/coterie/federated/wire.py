"""The binary wire format: named arrays behind a short header. Reading it is safe on arbitrary bytes.

    "COT1"  round u32  exchange u8  count u8      then per array  name u8  dtype u8  ndim u8  shape u32 each
    then the arrays, each from a multiple of eight bytes on, so that they can be used where they are

Nothing is pickled and nothing is trusted: every length is checked against what is there before anything is made of it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from coterie.types import Message, Updates

MAGIC = b"COT1"
HEAD = struct.Struct("<4sIBB")
ENTRY = struct.Struct("<BBB")
NAMES = (
    "users",
    "samples",
    "offsets",
    "items",
    "item_rows",
    "user_rows",
    "dense",
    "cluster",
    "item_bias",
    "tower",
    "item_tower",
    "embeddings",
    "slots",
    "cut",
    "ring",
    "rows",
    "key",
    "touched",
    "attempt",
    "predecessor",
    "predecessor_key",
    "successor",
    "successor_key",
    "share_ciphertext",
    "self_mask_ciphertext",
    "vector",
    "predecessor_uploaded",
    "successor_uploaded",
    "self_mask",
    "stage",
    "accepted",
    "kind",
    "output",
    "bias",
    "groups",
    "units",
    "sizes",
    "user_tower",
)
"""Append only: a name is its place."""
DTYPES = tuple(np.dtype(d) for d in ("<i4", "<i8", "<f4", "<f8", "<u1", "<u8", "<f2", "<i1"))
"""Append only, too."""
COMMON = 64  # added to the name of an array that is for all users of a message
MOST_DIMENSIONS = 3
ALIGNED = 8


class Malformed(ValueError):
    """Bytes that are no message."""


def encode(
    t: int,
    arrays: Mapping[str, np.ndarray],
    common: Mapping[str, np.ndarray] | None = None,
    exchange: int = 0,
) -> bytes:
    """The bytes of a message."""
    named = [(NAMES.index(name), a) for name, a in arrays.items()]
    named += [(NAMES.index(name) + COMMON, a) for name, a in (common or {}).items()]
    parts = [HEAD.pack(MAGIC, t, exchange, len(named))]
    for number, array in named:
        parts.append(ENTRY.pack(number, DTYPES.index(array.dtype), array.ndim))
        parts.append(struct.pack(f"<{array.ndim}I", *array.shape))
    head = b"".join(parts)
    body = [np.ascontiguousarray(array).tobytes() for _, array in named]
    return b"".join(part + bytes(-len(part) % ALIGNED) for part in (head, *body))


class Decoded(NamedTuple):
    """What bytes say; the arrays are read-only views of them."""

    round: int
    arrays: dict[str, np.ndarray]
    common: dict[str, np.ndarray]
    exchange: int


def decode(data: bytes | memoryview) -> Decoded:
    """Read a message, or raise Malformed."""
    if len(data) < HEAD.size:
        raise Malformed(f"{len(data)} bytes are too few for a message")
    magic, t, exchange, count = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Malformed("the bytes do not begin as a message does")
    entries = []
    at = HEAD.size
    for _ in range(count):
        entry, at = _entry(data, at)
        entries.append(entry)
    own: dict[str, np.ndarray] = {}
    common: dict[str, np.ndarray] = {}
    at += -at % ALIGNED
    for number, dtype, shape in entries:
        size = dtype.itemsize * math.prod(shape)
        if size + -size % ALIGNED > len(data) - at or (
            not size and max(shape, default=0) > len(data)
        ):
            raise Malformed("an array is longer than the message")
        where, name = (common, NAMES[number - COMMON]) if number >= COMMON else (own, NAMES[number])
        where[name] = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
        at += size + -size % ALIGNED
    if at != len(data) or len(own) + len(common) != count:
        raise Malformed("the message is longer than its arrays, or names one twice")
    return Decoded(t, own, common, exchange)


def message_size(message: Message) -> int:
    """Bytes of the message that one user alone would get: tested equal to what `encode` makes."""
    rows = (message.users, *message.own.values())
    common = sum(int(padded(a.nbytes)) for a in message.common.values())
    own = sum(int(padded(a.dtype.itemsize * math.prod(a.shape[1:]))) for a in rows)
    return head_size((*rows, *message.common.values())) + common + own


def reply_sizes(updates: Updates) -> np.ndarray:
    """Bytes of the reply of every user, were it alone on its node: tested equal to what `encode` makes."""
    columns = updates.columns()
    n_rows = np.diff(updates.offsets)
    width = updates.item_rows.shape[1]
    fixed = (
        4,
        8,
        16,
        4 * updates.user_rows.shape[1],
        4 * updates.dense.shape[1],
    )  # user, samples, two offsets, ...
    sizes: np.ndarray = (
        sum(int(padded(size)) for size in fixed) + padded(4 * n_rows) + padded(4 * width * n_rows)
    )
    return sizes + head_size(tuple(columns.values()))


def head_size(arrays: tuple[np.ndarray, ...]) -> int:
    return int(padded(HEAD.size + sum(ENTRY.size + 4 * a.ndim for a in arrays)))


def padded(size: Any) -> Any:
    """A number of bytes (or an array of them) up to the next multiple of eight."""
    return size + -size % ALIGNED


def _entry(data: bytes | memoryview, at: int) -> tuple[tuple[int, np.dtype, tuple[int, ...]], int]:
    """One line of the header, and where the next one begins."""
    if at + ENTRY.size > len(data):
        raise Malformed("the header is cut off")
    number, code, ndim = ENTRY.unpack_from(data, at)
    at += ENTRY.size
    if (
        number % COMMON >= len(NAMES)
        or number >= 2 * COMMON
        or code >= len(DTYPES)
        or ndim > MOST_DIMENSIONS
    ):
        raise Malformed("the header names an array that there is not")
    if at + 4 * ndim > len(data):
        raise Malformed("the header is cut off")
    return (number, DTYPES[code], struct.unpack_from(f"<{ndim}I", data, at)), at + 4 * ndim
