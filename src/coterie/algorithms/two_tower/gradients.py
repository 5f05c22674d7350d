"""Gradients of towers in fixed point, and their sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie import kernels
from coterie.algorithms.two_tower.device_arrays import computing_on, to_device
from coterie.core.parallel import one_torch_thread
from coterie.types import SCALE, Ints, Longs

if TYPE_CHECKING:
    from torch import Tensor

UNIT = 16 * SCALE
"""The value 1 in the fixed point of gradients, finer than that of updates: entries are small."""
NON_FINITE = 1 << 62
"""Stands for NaN and infinities in fixed point. It is far out of range."""


class Units(NamedTuple):
    """Gradients by two arrays as multiples of 1 / UNIT, in 64 bits, for sums over a cohort."""

    first: Tensor
    second: Tensor
    largest: Tensor  # (2,) the largest absolute entry of each

    @classmethod
    def of(cls, first: Tensor, second: Tensor) -> Units:
        import torch

        first = to_fixed_point(first)
        second = to_fixed_point(second)
        return cls(first, second, torch.stack([first.abs().max(), second.abs().max()]))


def to_fixed_point(gradients: Tensor) -> Tensor:
    """Gradients as multiples of 1 / UNIT, in 64 bits."""
    import torch

    units = (gradients.double() * UNIT).round_()
    # The largest floats exceed 64 bits, where a conversion would give an arbitrary number.
    units.clamp_(-NON_FINITE, NON_FINITE)
    return torch.nan_to_num(units, NON_FINITE).long()


@dataclass(frozen=True, slots=True)
class PairOfGradients:
    """Gradients by two arrays, as floats where they were computed.

    A cohort and a single device convert them to fixed point in different ways. The floats of a GPU
    are overwritten by the next gradients that it computes.
    """

    first: Tensor
    second: Tensor
    units: Units | None = None
    """The same in fixed point, where a GPU computed it in one go."""

    def in_fixed_point(self) -> Units:
        """In 64 bits, for sums over a cohort."""
        if self.units is not None:
            return self.units
        with one_torch_thread():
            return Units.of(self.first, self.second)

    def encode(self, first: Ints, second: Ints) -> None:
        """Write them as one device sends them, in 32 bits."""
        encode(self.first, first)
        encode(self.second, second)


def encode(gradients: Tensor, out: Ints) -> None:
    """Write gradients as multiples of 1 / UNIT, in 32 bits.

    Entries that are not finite or too large become values that the server refuses.
    """
    values = gradients.contiguous().cpu().numpy()
    # `reshape` would copy an array with gaps and leave `out` unwritten.
    assert out.flags.c_contiguous
    kernels.load("fixed_point").encode(values.reshape(-1), UNIT, out.reshape(-1))


def sum_rows_at(at: Ints | Longs, rows: np.ndarray | Tensor, n: int, device_name: str) -> Tensor:
    """(n, k) the sums of the integer rows (..., k) by their positions `at` (...).

    Rows at the position -1 are left out.
    """
    with computing_on(device_name) as device:
        import torch

        total = torch.zeros((n + 1, rows.shape[-1]), dtype=torch.int64, device=device)
        # The position -1 is the last row, which is not returned.
        places = to_device(np.where(at < 0, n, at).reshape(-1), device)
        values = to_device(rows, device).reshape(-1, rows.shape[-1])
        return total.index_add_(0, places.long(), values.long())[:n]


def mean_gradients_at(at: Longs, gradients: Longs, n: int, device_name: str) -> Tensor:
    """(m, k) the mean over n users of the rows at some positions, summed in fixed point."""
    with computing_on(device_name) as device:
        return mean_gradient(to_device(gradients, device)[to_device(at, device)], n)


def mean_gradient(gradients: Tensor, n: int) -> Tensor:
    """The mean over n users, as floats, of gradients summed in fixed point."""
    return gradients.double().mul_(1 / (UNIT * n)).float()
