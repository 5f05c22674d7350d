"""Fixed point for whole arrays: scaling, rounding, checking and copying in one pass."""

from __future__ import annotations

from numba import float32, int32, types

from coterie.kernels.common import Real, kernel, readonly
from coterie.kernels.quantise import round_to_int32
from coterie.types import Floats, Ints


@kernel(types.void(readonly(float32), float32, int32[::1]))
def encode(values: Floats, unit: Real, out: Ints) -> None:
    """out = rint(values * unit), where `unit` is a power of two.

    A value that is not finite or too large becomes one that the server rejects.
    """
    for i in range(len(out)):
        out[i] = round_to_int32(values[i] * unit)
