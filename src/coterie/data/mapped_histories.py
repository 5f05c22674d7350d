"""Histories in files that are mapped into memory, for more users than fit into it.

    histories.json     numbers of users, items and interactions
    offsets.int64      (users + 1,) where the items of every user begin
    items.int32        (interactions,) the items of all users, ascending within a user

Training reads the items of a round's cohort alone: the operating system loads their pages, and
drops them when memory is short. The offsets, 8 bytes a user, are in memory.
"""

from __future__ import annotations

import json
import mmap
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from coterie.core.atomic_files import replacing, write_file
from coterie.core.file_limits import most_bytes, refuse_large
from coterie.core.plain_files import read_json_object
from coterie.data.training_set import TrainingSet
from coterie.errors import DataError
from coterie.types import Ints, Longs, Rows

ABOUT = "histories.json"
OFFSETS = "offsets.int64"
ITEMS = "items.int32"
FORMAT = 1
LITTLE_INT32 = np.dtype("<i4")
LITTLE_INT64 = np.dtype("<i8")
BLOCK = 1 << 22
"""Items that are checked at a time."""
MOST_USERS = (1 << 31) - 1
"""User and item indices are 32-bit integers."""


class _Size(NamedTuple):
    users: int
    items: int
    interactions: int


def write(folder: Path, n_items: int, blocks: Iterable[Rows]) -> None:
    """Write the histories of blocks of users, one block in memory at a time."""
    n_users = 0
    written = 0
    with (
        replacing(folder / OFFSETS, owner_only=True) as offsets_path,
        replacing(folder / ITEMS, owner_only=True) as items_path,
        offsets_path.open("ab") as offsets,
        items_path.open("ab") as items,
    ):
        offsets.write(np.zeros(1, LITTLE_INT64).tobytes())
        for block in blocks:
            offsets.write((block.offsets[1:] + written).astype(LITTLE_INT64).tobytes())
            items.write(block.items.astype(LITTLE_INT32).tobytes())
            n_users += len(block.offsets) - 1
            written += len(block.items)
    about = {"format": FORMAT, "users": n_users, "items": n_items, "interactions": written}
    write_file(folder / ABOUT, json.dumps(about).encode(), owner_only=True)


def training_set(folder: Path) -> TrainingSet:
    """The histories of a folder as the input of training. The files are checked first."""
    size = _read_size(folder / ABOUT)
    offsets = _read_offsets(folder / OFFSETS, size)
    path = folder / ITEMS
    _refuse_other_length(path, size.interactions * LITTLE_INT32.itemsize)
    _check_items(path, offsets, size)
    histories = Rows(offsets, _mapped(path))
    return TrainingSet(size.users, size.items, histories, histories, ratings=None)


def _read_size(path: Path) -> _Size:
    about = read_json_object(path)
    if about.get("format") != FORMAT:
        raise DataError(
            f"{path}: format is {about.get('format')!r}; expected {FORMAT}. "
            "Write the histories again."
        )
    for name in _Size._fields:
        number = about.get(name)
        if type(number) is not int or number < 1:
            raise DataError(
                f"{path}: {name} is {number!r}; expected a whole number from 1. "
                "Write the histories again."
            )
    size = _Size(about["users"], about["items"], about["interactions"])
    if max(size.users, size.items) > MOST_USERS:
        raise DataError(
            f"{path}: there are {size.users:,} users and {size.items:,} items; expected at most "
            f"{MOST_USERS:,} of each. Write fewer."
        )
    return size


def _read_offsets(path: Path, size: _Size) -> Longs:
    n_bytes = (size.users + 1) * LITTLE_INT64.itemsize
    _refuse_other_length(path, n_bytes)
    refuse_large(path, n_bytes, most_bytes())
    offsets = np.fromfile(path, LITTLE_INT64).astype(np.int64, copy=False)
    ends = (int(offsets[0]), int(offsets[-1]))
    # Compared without a difference, which wraps for hostile numbers.
    if ends != (0, size.interactions) or (offsets[1:] < offsets[:-1]).any():
        raise DataError(
            f"{path}: offsets do not ascend from 0 to {size.interactions:,}; expected where the "
            "items of every user begin. Write the histories again."
        )
    return offsets


def _refuse_other_length(path: Path, expected: int) -> None:
    found = path.stat().st_size
    if found != expected:
        raise DataError(
            f"{path}: has {found:,} bytes; expected {expected:,} by {ABOUT}. "
            "Write the histories again."
        )


def _check_items(path: Path, offsets: Longs, size: _Size) -> None:
    """Refuse items out of range or order: kernels do not check indices.

    The file is read in blocks and not through the map, which would count as memory in use.
    """
    before = -1
    with path.open("rb") as file:
        for start in range(0, size.interactions, BLOCK):
            items = np.fromfile(file, LITTLE_INT32, BLOCK)
            if items.min() < 0 or items.max() >= size.items:
                raise DataError(
                    f"{path}: items are not all from 0 to {size.items - 1:,}; expected indices of "
                    "items. Write the histories again."
                )
            ascends = np.diff(items, prepend=np.int32(before)) > 0
            first, last = np.searchsorted(offsets, (start, start + len(items)))
            # The first item of a user follows the last one of another.
            ascends[offsets[first:last] - start] = True
            if not ascends.all():
                at = start + int(np.argmin(ascends))
                user = int(np.searchsorted(offsets, at, side="right")) - 1
                raise DataError(
                    f"{path}: the items of user {user:,} do not ascend; expected every item once, "
                    "in ascending order. Write the histories again."
                )
            before = int(items[-1])


def _mapped(path: Path) -> Ints:
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if sys.platform != "win32":
        # A cohort's histories lie far apart: reading ahead would load those of other users.
        pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, LITTLE_INT32)
