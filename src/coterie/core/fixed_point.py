"""Fixed point for updates: integers whose sums do not depend on the order of clients."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from coterie.types import NOT_FINITE, SCALE, TOO_LARGE, Doubles, Ints


def quantise(change: ArrayLike) -> Ints:
    """A change of parameters as it travels: q = rint(change * 2^20) in int32.

    An entry that is not finite, or not below 8 in absolute value, becomes a value that the server's
    validation refuses: an update is sent exactly or not at all.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(np.asarray(change, np.float64) * SCALE)
        refused = np.where(np.isfinite(scaled), TOO_LARGE, NOT_FINITE)
        return np.where(np.abs(scaled) < TOO_LARGE, scaled, refused).astype(np.int32)


def dequantise(total: ArrayLike) -> Doubles:
    """Sums of quantised changes as numbers again."""
    return np.asarray(total, np.float64) / SCALE
