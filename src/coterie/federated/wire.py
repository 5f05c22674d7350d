"""The binary wire format: named arrays behind a short header. Decoding is safe on arbitrary bytes.

    "COT1"  round u32  exchange u8  count u8
    then per array   name u8  dtype u8  ndim u8  [length u8  name in ASCII]  shape u32 each
    then the arrays, each starting at a multiple of eight bytes, so that they can be used in place

The names of Coterie's own columns are one byte. Any other name is spelled out, so that a new
algorithm needs no change here. Nothing is pickled and nothing is trusted: every length is checked
against the bytes that are there before anything is made of it.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from coterie.types import Longs, Message, Updates

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
"""Names with a code of their own, which is their place here. Append only."""
DTYPES = tuple(np.dtype(d) for d in ("<i4", "<i8", "<f4", "<f8", "<u1", "<u8", "<f2", "<i1", "<u4"))
"""Append only, too."""
COMMON = 64
"""Added to the code of an array that is for all clients of a message."""
SPELLED_OUT = COMMON - 1
"""The code of an array whose name follows in ASCII."""
NAME = re.compile(r"[a-z][a-z0-9_ ]{0,62}")
"""What a name may be: short, and safe to print."""
MOST_DIMENSIONS = 3
ALIGNED = 8


class Malformed(ValueError):
    """Bytes that are not a message, or arrays that cannot be sent as one."""


def encode(
    t: int,
    arrays: Mapping[str, np.ndarray],
    common: Mapping[str, np.ndarray] | None = None,
    exchange: int = 0,
) -> bytes:
    """The bytes of a message."""
    named = [(name, 0, array) for name, array in arrays.items()]
    named += [(name, COMMON, array) for name, array in (common or {}).items()]
    parts = [HEAD.pack(MAGIC, t, exchange, len(named))]
    for name, offset, array in named:
        code, spelled = _name(name)
        if array.dtype not in DTYPES:
            known = ", ".join(dtype.str for dtype in DTYPES)
            raise Malformed(f"array {name!r} has dtype {array.dtype.str}; expected one of {known}")
        parts.append(ENTRY.pack(code + offset, DTYPES.index(array.dtype), array.ndim))
        parts.append(spelled)
        parts.append(struct.pack(f"<{array.ndim}I", *array.shape))
    head = b"".join(parts)
    body = [np.ascontiguousarray(array).tobytes() for _, _, array in named]
    return b"".join(part + bytes(-len(part) % ALIGNED) for part in (head, *body))


def _name(name: str) -> tuple[int, bytes]:
    """The code of a name, and what follows it: nothing, or the name spelled out."""
    if name in NAMES:
        return NAMES.index(name), b""
    if not NAME.fullmatch(name):
        raise Malformed(
            f"array name {name!r} cannot be sent; expected lower-case letters, digits, spaces and "
            "underscores, at most 63 of them, starting with a letter. Rename it."
        )
    return SPELLED_OUT, bytes([len(name)]) + name.encode("ascii")


class Decoded(NamedTuple):
    """A decoded message. Its arrays are read-only views of the bytes."""

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
        raise Malformed(f"the bytes begin with {magic!r}; expected {MAGIC!r}")
    entries = []
    at = HEAD.size
    for _ in range(count):
        entry, at = _entry(data, at)
        entries.append(entry)
    own: dict[str, np.ndarray] = {}
    common: dict[str, np.ndarray] = {}
    at += -at % ALIGNED
    for name, is_common, dtype, shape in entries:
        size = dtype.itemsize * math.prod(shape)
        if size + -size % ALIGNED > len(data) - at or (
            not size and max(shape, default=0) > len(data)
        ):
            raise Malformed(f"array {name!r} is longer than the message")
        target = common if is_common else own
        target[name] = np.frombuffer(data, dtype, math.prod(shape), at).reshape(shape)
        at += size + -size % ALIGNED
    if at != len(data) or len(own) + len(common) != count:
        raise Malformed("the message is longer than its arrays, or two arrays share a name")
    return Decoded(t, own, common, exchange)


def message_size(message: Message) -> int:
    """Bytes of the message to a single client: tested equal to what `encode` makes."""
    own = {"users": message.users, **message.own}
    rows = sum(int(padded(a.dtype.itemsize * math.prod(a.shape[1:]))) for a in own.values())
    common = sum(int(padded(a.nbytes)) for a in message.common.values())
    return head_size([*own.items(), *message.common.items()]) + common + rows


def reply_sizes(updates: Updates) -> Longs:
    """(n,) bytes of every client's reply, were it alone on its node: tested equal to `encode`."""
    widths = (updates.item_rows.shape[1], updates.user_rows.shape[1], updates.dense.shape[1])
    return sizes_of_replies(np.diff(updates.offsets), *widths)


def sizes_of_replies(n_rows: Longs, item_width: int, user_width: int, dense: int) -> Longs:
    """(n,) bytes of the replies of clients who send `n_rows` item rows each."""
    user = 4
    samples = 8
    two_offsets = 16
    fixed = sum(
        int(padded(size)) for size in (user, samples, two_offsets, 4 * user_width, 4 * dense)
    )
    sizes: Longs = padded(4 * n_rows) + padded(4 * item_width * n_rows)
    return sizes + (fixed + _reply_head())


@cache
def _reply_head() -> int:
    """Bytes of the header of a reply. It does not depend on the lengths of the columns."""
    none = np.empty(0, np.int32)
    no_rows = np.empty((0, 0), np.int32)
    counts = np.empty(0, np.int64)
    return head_size(
        Updates(none, counts, counts, none, no_rows, no_rows, no_rows).columns().items()
    )


def head_size(arrays: Iterable[tuple[str, np.ndarray]]) -> int:
    """Bytes of the header of a message with these named arrays."""
    entries = sum(ENTRY.size + len(_name(name)[1]) + 4 * array.ndim for name, array in arrays)
    return int(padded(HEAD.size + entries))


def padded(size: Any) -> Any:
    """A number of bytes (or an array of them) rounded up to a multiple of eight."""
    return size + -size % ALIGNED


class _Entry(NamedTuple):
    """One line of the header."""

    name: str
    is_common: bool
    dtype: np.dtype
    shape: tuple[int, ...]


def _entry(data: bytes | memoryview, at: int) -> tuple[_Entry, int]:
    """One line of the header, and where the next one begins."""
    if at + ENTRY.size > len(data):
        raise Malformed("the header is cut off")
    code, dtype, ndim = ENTRY.unpack_from(data, at)
    at += ENTRY.size
    if code >= 2 * COMMON or dtype >= len(DTYPES) or ndim > MOST_DIMENSIONS:
        raise Malformed(f"the header has an array of code {code}, dtype {dtype}, {ndim} dimensions")
    name, at = _read_name(data, at, code % COMMON)
    if at + 4 * ndim > len(data):
        raise Malformed("the header is cut off")
    shape = struct.unpack_from(f"<{ndim}I", data, at)
    return _Entry(name, code >= COMMON, DTYPES[dtype], shape), at + 4 * ndim


def _read_name(data: bytes | memoryview, at: int, code: int) -> tuple[str, int]:
    """The name of an array, and where its shape begins."""
    if code < len(NAMES):
        return NAMES[code], at
    if code != SPELLED_OUT:
        raise Malformed(f"the header has an array of the unknown code {code}")
    if at >= len(data) or at + 1 + data[at] > len(data):
        raise Malformed("the header is cut off")
    end = at + 1 + data[at]
    name = bytes(data[at + 1 : end]).decode("ascii", errors="replace")
    # A name with a code of its own is never spelled out: every message has one encoding.
    if not NAME.fullmatch(name) or name in NAMES:
        raise Malformed(f"the header spells out {name!r}, which is not a name of an array")
    return name, end
