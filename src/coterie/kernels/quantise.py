"""Fixed point for updates: q = rint(delta * 2^20).

Sums over users are then sums of integers, which do not depend on the order of the users.
"""

from __future__ import annotations

import numpy as np

from coterie.kernels.common import Real, helper
from coterie.types import NOT_FINITE, SCALE, TOO_LARGE, Floats, Ints

SCALE32 = np.float32(SCALE)
LIMIT = np.float32(TOO_LARGE)
INFINITE = np.float32(np.inf)


@helper
def round_to_int32(scaled: Real) -> np.int32:
    """Round to int32. A value that is not finite or too large becomes one the server rejects."""
    x = np.rint(scaled)
    bad = np.int32(TOO_LARGE) if abs(x) < INFINITE else np.int32(NOT_FINITE)
    return np.int32(x) if abs(x) < LIMIT else bad


@helper
def quantise(delta: Real) -> np.int32:
    """Convert to int32 in units of 2^-20."""
    # A product with a power of two is exact.
    return round_to_int32(delta * SCALE32)


@helper
def quantise_change(now: Floats, before: Floats, out: Ints) -> None:
    """Quantise now - before. Arrays are flat: long loops are vectorised, short rows not."""
    for i in range(len(out)):
        out[i] = quantise(now[i] - before[i])
