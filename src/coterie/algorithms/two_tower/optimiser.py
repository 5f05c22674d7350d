"""The server's optimiser: FedAdam (Reddi et al. 2021), as in Eqs. 13 and 15 of STTFedRec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.algorithms.two_tower.device_arrays import computing_on, to_device, to_host_together
from coterie.algorithms.two_tower.gradients import mean_gradient
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.types import Floats

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TowerState:
    """A tower and Adam's moments of its gradient, all flat."""

    parameters: Floats
    mean: Floats
    square: Floats


def fedadam(
    before: TowerState,
    gradients: np.ndarray | Tensor,
    n: int,
    settings: TwoTowers,
    learning_rate: float,
) -> TowerState:
    """One step of a tower. `gradients` is the sum over n users, as floats or in fixed point."""
    (after,) = fedadam_together([(before, gradients)], n, settings, learning_rate)
    return after


def fedadam_together(
    towers: Sequence[tuple[TowerState, np.ndarray | Tensor]],
    n: int,
    settings: TwoTowers,
    learning_rate: float,
) -> list[TowerState]:
    """One step of every tower, by its gradients."""
    with computing_on(settings.device) as device:
        moved = [
            part
            for before, gradients in towers
            for part in _step(before, to_device(gradients, device), n, settings, learning_rate)
        ]
        arrays = to_host_together(moved)
    return [TowerState(*arrays[first : first + 3]) for first in range(0, len(arrays), 3)]


def _step(
    before: TowerState, total: Tensor, n: int, settings: TwoTowers, learning_rate: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The next parameters, mean and square.

    Deviation: the equations add the step; here it is subtracted, since it must descend. The
    denominator is sqrt(v) + tau, as in Eq. 15.
    """
    device: torch.device = total.device
    g = total / n if total.is_floating_point() else mean_gradient(total, n)
    mean = to_device(before.mean, device).mul(settings.beta1)
    mean.add_(g, alpha=1 - settings.beta1)
    square = to_device(before.square, device).mul(settings.beta2)
    square.addcmul_(g, g, value=1 - settings.beta2)
    denominator = square.sqrt().add_(settings.tau)
    parameters = to_device(before.parameters, device).addcdiv(
        mean, denominator, value=-learning_rate
    )
    return parameters, mean, square
