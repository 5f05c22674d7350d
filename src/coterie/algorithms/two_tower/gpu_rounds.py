"""A round of both towers on a GPU as one recorded step: from towers to towers, without messages.

For a simulation in which one node hosts all clients and nothing protects their updates. Such a
round needs no message and no slot: its sums are those of the exchanges, in the same fixed point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from coterie.algorithms.two_tower.batches import InputRows
from coterie.algorithms.two_tower.both_towers import BothTowers
from coterie.algorithms.two_tower.device_arrays import (
    computing_on,
    rows_of,
    to_device,
    to_host_together,
)
from coterie.algorithms.two_tower.gpu_steps import arrays_of, embed_both, texts_on_gpu
from coterie.algorithms.two_tower.gradients import UNIT, Units
from coterie.algorithms.two_tower.matching import loss_gradients
from coterie.algorithms.two_tower.network import Network
from coterie.algorithms.two_tower.recorded_steps import run_step
from coterie.algorithms.two_tower.requests import Requests
from coterie.algorithms.two_tower.settings import FederatedTowers
from coterie.data.content import Content
from coterie.types import Floats, Longs

if TYPE_CHECKING:
    from torch import Tensor

RoundStep: TypeAlias = "Callable[..., tuple[Tensor, Tensor]]"
"""A recorded step that returns what `Running` has."""


@dataclass(frozen=True, slots=True)
class DrawnRound:
    """What the cohort of a round compares."""

    requests: Requests
    users: InputRows
    items: InputRows
    places: Longs  # (n, T) the row of `items` that a user compares as its j-th
    of_users: Content
    of_items: Content


class Running(NamedTuple):
    """What a GPU is computing."""

    towers: Tensor  # (6, size) the fields of `BothTensors` after the round
    largest: Tensor  # (2,) the largest entries of the two sums


class Moved(NamedTuple):
    """The towers after a round, and the largest entries of its two sums."""

    towers: BothTowers
    largest: Longs  # (2,)


def start(
    step: RoundStep,
    settings: FederatedTowers,
    network: Network,
    before: BothTowers,
    drawn: DrawnRound,
    learning_rate: float,
) -> Running:
    """Start to compute the towers after a round."""
    arrays = (
        *arrays_of(drawn.users),
        *arrays_of(drawn.items),
        drawn.places,
        drawn.requests.clicked,
        drawn.requests.valid,
        constants(settings, len(drawn.places), learning_rate),
    )
    with computing_on(settings.device) as device:
        tensors = (
            *(to_device(getattr(before, name), device) for name in FIELDS),
            *texts_on_gpu(network, drawn.users, drawn.of_users, device),
            *texts_on_gpu(network, drawn.items, drawn.of_items, device),
        )
        towers, largest = run_step(step, network, arrays, (), tensors)
        # The next round overwrites what the step returned.
        return Running(towers.clone(), largest.clone())


def finish(running: Running) -> Moved:
    """Wait for the towers."""
    largest, towers = to_host_together([running.largest, running.towers])
    return Moved(BothTowers(*rows_of(towers, running.towers)), largest)


# Recorded


class Constants(NamedTuple):
    """Numbers that the step of a round reads from a tensor: some differ between rounds."""

    learning_rate: Tensor
    unit: Tensor
    """1 as a sum of gradients in fixed point, in the mean over users."""
    beta1: Tensor
    rest1: Tensor  # 1 - beta1
    beta2: Tensor
    rest2: Tensor  # 1 - beta2
    tau: Tensor

    @classmethod
    def read(cls, numbers: Tensor) -> Constants:
        """From what `constants` wrote, and padding."""
        return cls(*numbers[: len(cls._fields)].unbind())


def constants(settings: FederatedTowers, n: int, learning_rate: float) -> Floats:
    """`Constants` of a round with n users, as an array."""
    s = settings
    unit = 1 / (UNIT * n)
    numbers = (learning_rate, unit, s.beta1, 1 - s.beta1, s.beta2, 1 - s.beta2, s.tau)
    return np.array(numbers, np.float32)


def split_step(
    network: Network,
    user_rows: Tensor,
    user_keys: Tensor,
    item_rows: Tensor,
    item_keys: Tensor,
    places: Tensor,
    clicked: Tensor,
    valid: Tensor,
    numbers: Tensor,
    *tensors: Tensor,
) -> tuple[Tensor, Tensor]:
    """A round of STTFedRec. The largest entries are those of all users' sum, and of one user's."""
    import torch
    from torch.nn.functional import embedding

    before = BothTensors(*tensors[:6])
    towers = before.with_gradients()
    u, v = embed_both(network, towers, user_rows, user_keys, item_rows, item_keys, tensors[6:])
    compared = embedding(places, v.detach())
    by_u, by_compared = loss_gradients(u.detach(), compared, clicked, valid, network.smoothing)
    (by_user,) = torch.autograd.grad(u, (towers[0],), by_u)
    units = Units.of(by_user, by_compared)
    known = Constants.read(numbers)
    cut = sum_by_place(units.second, places, len(v)) * known.unit
    (by_item,) = torch.autograd.grad(v, (towers[1],), cut)
    return before.moved(units.first * known.unit, by_item, known), units.largest


def naive_step(
    network: Network,
    user_rows: Tensor,
    user_keys: Tensor,
    item_rows: Tensor,
    item_keys: Tensor,
    places: Tensor,
    clicked: Tensor,
    valid: Tensor,
    numbers: Tensor,
    *tensors: Tensor,
) -> tuple[Tensor, Tensor]:
    """A round in which clients train both towers. The largest entries are those of both sums."""
    import torch
    from torch.nn.functional import embedding

    before = BothTensors(*tensors[:6])
    towers = before.with_gradients()
    u, v = embed_both(network, towers, user_rows, user_keys, item_rows, item_keys, tensors[6:])
    compared = embedding(places, v)
    by_vectors = loss_gradients(u.detach(), compared.detach(), clicked, valid, network.smoothing)
    units = Units.of(*torch.autograd.grad((u, compared), towers, by_vectors))
    known = Constants.read(numbers)
    by_user = units.first * known.unit
    by_item = units.second * known.unit
    return before.moved(by_user, by_item, known), units.largest


class BothTensors(NamedTuple):
    """The fields of `BothTowers` as tensors."""

    user_tower: Tensor
    user_mean: Tensor
    user_square: Tensor
    item_tower: Tensor
    item_mean: Tensor
    item_square: Tensor

    def with_gradients(self) -> tuple[Tensor, Tensor]:
        """Both towers, for autograd."""
        user_tower = self.user_tower.detach().requires_grad_()
        return user_tower, self.item_tower.detach().requires_grad_()

    def moved(self, by_user: Tensor, by_item: Tensor, known: Constants) -> Tensor:
        """(6, size) the fields after a step of FedAdam by the mean gradients of both towers."""
        import torch

        user = fedadam(*self[:3], by_user, known)
        item = fedadam(*self[3:], by_item, known)
        return torch.stack([*user, *item])


FIELDS = BothTensors._fields


def fedadam(
    parameters: Tensor, mean: Tensor, square: Tensor, g: Tensor, known: Constants
) -> tuple[Tensor, Tensor, Tensor]:
    """The same step as `optimiser.fedadam`, with numbers that are tensors."""
    mean = mean * known.beta1 + g * known.rest1
    square = square * known.beta2 + g * g * known.rest2
    move = mean / (square.sqrt() + known.tau)
    return parameters - move * known.learning_rate, mean, square


def sum_by_place(units: Tensor, places: Tensor, n: int) -> Tensor:
    """(n, k) the sums of fixed-point rows by their places. Integers add up in any order."""
    import torch

    total = torch.zeros((n, units.shape[-1]), dtype=units.dtype, device=units.device)
    return total.index_add_(0, places.reshape(-1), units.reshape(-1, units.shape[-1]))
