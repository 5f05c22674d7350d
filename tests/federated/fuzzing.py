"""Corrupted bytes: a real message with a random change, or random bytes."""

from __future__ import annotations

import struct

import numpy as np

from coterie.federated.wire import COMMON, ENTRY, HEAD, MAGIC, NAMES

GIGABYTES = HEAD.pack(MAGIC, 0, 0, 1) + ENTRY.pack(0, 1, 2) + struct.pack("<2I", 1 << 20, 1 << 12)


BEYOND_DOUBT = (0, 1, 2, 5)
"""Changes after which the bytes can never be a valid message."""


def mangled(
    data: bytes, rng: np.random.Generator, ways: tuple[int, ...] = tuple(range(9))
) -> bytes:
    """The message with one random kind of change."""
    way = rng.choice(ways)
    made = bytearray(data)
    if way == 0:
        return rng.bytes(int(rng.integers(0, 300)))
    if way == 1:
        return data[: rng.integers(len(data))]
    if way == 2:
        return data + rng.bytes(int(rng.integers(1, 64)))
    if way == 3:  # the header: number of arrays, their names and shapes
        made[int(rng.integers(4, min(80, len(made))))] = int(rng.integers(256))
    elif way == 4:  # anywhere
        for _ in range(rng.integers(1, 20)):
            made[rng.integers(len(made))] ^= 1 << int(rng.integers(8))
    elif way == 5:
        return GIGABYTES + rng.bytes(int(rng.integers(0, 64)))
    elif way == 6:  # a random header
        entries = [
            ENTRY.pack(
                int(rng.integers(len(NAMES))) + int(rng.integers(2)) * COMMON,
                int(rng.integers(9)),
                2,
            )
            + struct.pack(
                "<2I", *rng.choice([0, 1, 3, 1 << 16, 1 << 31, (1 << 32) - 1], 2).tolist()
            )
            for _ in range(rng.integers(1, 5))
        ]
        return (
            HEAD.pack(MAGIC, 1, 0, len(entries))
            + b"".join(entries)
            + rng.bytes(int(rng.integers(0, 200)))
        )
    elif way == 7:  # a piece of the message twice
        at = int(rng.integers(len(data)))
        n = int(rng.integers(1, 100))
        return data[:at] + data[at : at + n] + data[at:]
    else:  # a run of zeros or ones
        at = int(rng.integers(len(data)))
        n = int(rng.integers(1, 64))
        made[at : at + n] = (b"\0", b"\xff")[rng.integers(2)] * len(made[at : at + n])
    return bytes(made)
