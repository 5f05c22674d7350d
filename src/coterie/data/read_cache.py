"""The cache of large files that were read: the same content with the same options is read once.

A reading is a file in the cache folder, named by a hash of the file's content, the options and the
code that reads. It contains interactions, so only its owner may read it. Small files are not
cached: reading them takes no time, and every copy of users' data is one more to protect.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np

from coterie.core import npz
from coterie.core.atomic_files import OWNER_ONLY_FOLDER, write_file
from coterie.core.npz import packed_texts, unpacked_texts
from coterie.core.paths import cache_folder
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.read_facts import ReadFacts
from coterie.errors import DataError

LEAST_BYTES = 2**20
"""Smaller files are read again."""
MOST_READINGS = 16
"""The cache keeps as many; those not used for longest are removed."""

PlainReader = Callable[[Path, ReadOptions], Interactions]
"""A reader of a single file that gives nothing but interactions."""


def read_once(path: Path, options: ReadOptions, read: PlainReader) -> Interactions:
    """What `read` returns, from the cache if it is there."""
    if not options.cache or not path.is_file() or path.stat().st_size < LEAST_BYTES:
        return read(path, options)
    place = folder() / f"{_key(path, options)}.npz"
    cached = _load(place)
    if cached is not None:
        return cached
    data = read(path, options)
    # Without a writable cache the file is read again, which is slower and no error.
    with contextlib.suppress(OSError):
        _store(place, data)
    return data


def folder() -> Path:
    return cache_folder() / "readings"


def _key(path: Path, options: ReadOptions) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with contextlib.suppress(OSError), path.open("rb") as file:
        while content := file.read(2**24):
            digest.update(content)
    chosen = {name: value for name, value in asdict(options).items() if name != "cache"}
    # The suffix decides how the content is unpacked and which reader reads it.
    about = {"suffixes": path.suffixes, "options": chosen, "code": _code()}
    digest.update(json.dumps(about, sort_keys=True).encode())
    return digest.hexdigest()


@cache
def _code() -> str:
    """A hash of the modules that read: a reading of other code is not used."""
    digest = hashlib.blake2b(digest_size=16)
    for module in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()


def _store(place: Path, data: Interactions) -> None:
    facts = None if data.read_facts is None else data.read_facts.to_json()
    arrays = {
        "users": data.users,
        "items": data.items,
        "user_ids": packed_texts(data.user_ids),
        "item_ids": packed_texts(data.item_ids),
        "item_order": data.item_order,
        "about": packed_texts(_objects([json.dumps([data.notes, data.reading, facts])])),
    }
    optional = {"ratings": data.ratings, "times": data.times, "user_records": data.user_records}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    place.parent.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY_FOLDER)
    write_file(place, npz.packed(arrays), owner_only=True)
    _remove_old(place.parent)


def _remove_old(place: Path) -> None:
    readings = sorted(place.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in readings[MOST_READINGS:]:
        path.unlink(missing_ok=True)


def _load(place: Path) -> Interactions | None:
    """The reading, or None if there is none or it is damaged."""
    try:
        arrays = npz.read_file(place)
        os.utime(place)
        notes, reading, facts = json.loads(unpacked_texts(arrays["about"])[0])
        return Interactions(
            users=arrays["users"],
            items=arrays["items"],
            ratings=arrays.get("ratings"),
            times=arrays.get("times"),
            user_ids=unpacked_texts(arrays["user_ids"]),
            item_ids=unpacked_texts(arrays["item_ids"]),
            item_order=arrays["item_order"],
            user_records=arrays.get("user_records"),
            notes=tuple(notes),
            reading=tuple(reading),
            read_facts=None if facts is None else ReadFacts.of_json(facts),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, DataError):
        return None


def _objects(values: list[str]) -> np.ndarray:
    return np.array(values, dtype=object)
