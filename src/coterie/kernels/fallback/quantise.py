"""Fixed point for updates: q = rint(delta * 2^20)."""

from __future__ import annotations

import numpy as np

from coterie.types import NOT_FINITE, SCALE, TOO_LARGE, Floats, Ints


def quantised_change(now: Floats, before: Floats) -> Ints:
    """Quantise now - before."""
    with np.errstate(invalid="ignore", over="ignore"):
        return rounded_to_int32((now - before) * np.float32(SCALE))


def rounded_to_int32(scaled: Floats) -> Ints:
    """Round. What is not finite or too large becomes a value the server rejects."""
    x = np.rint(scaled)
    bad = np.where(np.abs(x) < np.inf, np.float32(TOO_LARGE), np.float32(NOT_FINITE))
    return np.where(np.abs(x) < TOO_LARGE, x, bad).astype(np.int32)
