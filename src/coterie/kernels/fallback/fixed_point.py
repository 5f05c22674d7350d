"""Fixed point for whole arrays: scaling, rounding, checking and copying."""

from __future__ import annotations

import numpy as np

from coterie.kernels.fallback.quantise import rounded_to_int32
from coterie.types import Floats, Ints


def encode(values: Floats, unit: float, out: Ints) -> None:
    """out = rint(values * unit), where `unit` is a power of two."""
    with np.errstate(invalid="ignore", over="ignore"):
        out[:] = rounded_to_int32(values * np.float32(unit))
