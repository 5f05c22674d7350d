"""JSON that every browser reads: files from elsewhere may hold NaN."""

from __future__ import annotations

import math
from typing import TypeVar, cast

T = TypeVar("T")


def finite(value: T) -> T:
    """The same value with None in place of numbers that are not finite."""
    return cast(T, _finite(value))


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return value
