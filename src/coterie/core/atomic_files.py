"""Writes files whole or not at all. Files about users are readable by their owner only."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path

import numpy as np

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


def _owner_only(path: str, flags: int) -> int:
    return os.open(path, flags, OWNER_ONLY)


def packed_arrays(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Arrays as the bytes of an npz file."""
    packed = BytesIO()
    np.savez(packed, **arrays)  # type: ignore[arg-type]
    return packed.getvalue()


def unpacked_arrays(content: bytes) -> dict[str, np.ndarray]:
    with np.load(BytesIO(content), allow_pickle=False) as packed:
        return {key: packed[key] for key in packed.files}


def packed_texts(values: np.ndarray) -> np.ndarray:
    """Strings as the bytes of a JSON list; numbers as they are.

    Object arrays would need pickle, and fixed-width arrays would pad every string to the longest.
    """
    if values.dtype.kind != "O":
        return values
    return np.frombuffer(json.dumps([str(v) for v in values]).encode(), np.uint8)


def unpacked_texts(values: np.ndarray) -> np.ndarray:
    if values.dtype != np.uint8:
        return values
    return np.array(json.loads(values.tobytes()), dtype=object)
