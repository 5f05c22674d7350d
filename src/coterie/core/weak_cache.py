"""Something beside an array, for as long as the array lives: what was made of it, or what goes with it and is nobody else's.

Arrays that cross module borders are never written into, so that what was made of one stays true.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np


class WeakCache:
    def __init__(self) -> None:
        self._kept: dict[int, tuple[weakref.ref[np.ndarray], Any]] = {}

    def get(self, array: np.ndarray) -> Any:
        known = self._kept.get(id(array))
        return known[1] if known is not None and known[0]() is array else None

    def put(self, array: np.ndarray, value: Any) -> None:
        key = id(array)
        self._kept[key] = weakref.ref(array, lambda _: self._kept.pop(key, None)), value

    def forget(self, array: np.ndarray) -> None:
        self._kept.pop(id(array), None)
