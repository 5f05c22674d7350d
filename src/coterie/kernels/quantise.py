"""Fixed point for updates: q = rint(delta * 2^20), so that sums over users are integers and do not depend on their order."""

from __future__ import annotations

import numpy as np

from coterie.kernels.common import Scalar, helper
from coterie.types import NOT_FINITE, SCALE, TOO_LARGE, Floats, Ints

SCALE32 = np.float32(SCALE)
LIMIT = np.float32(TOO_LARGE)
INFINITE = np.float32(np.inf)


@helper
def quantise(delta: Scalar) -> Scalar:
    """An int32; what is not finite or too large becomes a value that the server refuses."""
    x = np.rint(delta * SCALE32)  # the product by a power of two is exact
    bad = np.int32(TOO_LARGE) if abs(x) < INFINITE else np.int32(NOT_FINITE)
    return np.int32(x) if abs(x) < LIMIT else bad


@helper
def quantise_change(now: Floats, before: Floats, out: Ints) -> None:
    """Whole flat arrays: the compiler makes vectors of it, which it does not of rows of ten."""
    for i in range(len(out)):
        out[i] = quantise(now[i] - before[i])
