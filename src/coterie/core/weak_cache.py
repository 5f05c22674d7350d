"""A cache of values keyed by arrays; an entry is dropped when its array is garbage-collected.

Arrays that modules exchange are never modified in place, so a value computed from one stays valid.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np


class WeakCache:
    def __init__(self) -> None:
        # The weak reference guards against another array that reuses the id of a dead one.
        self._entries: dict[int, tuple[weakref.ref[np.ndarray], object]] = {}

    def get(self, array: np.ndarray) -> Any:
        entry = self._entries.get(id(array))
        return entry[1] if entry is not None and entry[0]() is array else None

    def put(self, array: np.ndarray, value: object) -> None:
        key = id(array)
        reference = weakref.ref(array, lambda _: self._entries.pop(key, None))
        self._entries[key] = reference, value

    def forget(self, array: np.ndarray) -> None:
        self._entries.pop(id(array), None)
