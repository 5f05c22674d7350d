"""A cohort as PyTorch tensors, for GPUs: step s of all users at once, every user on copies of its own.

The maths is that of `kernels.gmf_batches`, with Adam as `kernels.optimisers` tells it; a model brings only its forward function, and
gradients come from autograd. The same cohort on the same machine gives the same bits; with the kernels they agree within 1e-5 or so
(rounding adds up over thousands of steps).
A step takes about as long for one user as for thousands: what a round costs is the longest history over the batch size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coterie.algorithms.local.learner import Changes, Parameters
from coterie.algorithms.local.samples import Samples
from coterie.errors import ConfigError, MissingExtra
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.types import NOT_FINITE, SCALE, TOO_LARGE, Ints

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Forward: TypeAlias = "Callable[[Tensor, Tensor, Tensor], Tensor]"
"""(user rows (n, width), item rows (n, batch, width), dense (n, size)) -> logits, or ratings (n, batch)"""

DECAY1 = 0.9
DECAY2 = 0.999
EPSILON = 1e-8
STEPS_BEFORE_A_GRAPH = 3  # recording needs everything to be in place
STEPS_WORTH_A_GRAPH = 20


def train(
    forward: Forward,
    world: AnyWorld,
    given: Parameters,
    samples: Samples,
    rated: bool,
    on: str | None = None,
) -> Changes:
    """What a cohort's devices make of their samples; `given` holds the cohort's user rows and all item rows."""
    settings = world.settings
    device = find_device(on or settings.device)
    by_adam = settings.optimizer == "adam"
    batches = Batches.of(samples, settings.batch_size, device)
    before = Parts.copied(given, samples, device)
    users, items, dense = (
        Copy.of(part, by_adam) for part in (before.users, before.items, before.dense)
    )
    lacks = _lacks(batches.steps, device)
    meeting = before.items.new_zeros(before.items.shape)

    def step(s: Tensor) -> None:
        rows, targets, there = batches.at(s)
        at_hand = Parts(users.values, items.values[rows], dense.values)
        gradient = gradients(forward, at_hand, targets, there, rated, settings.reg)
        active = there[:, :1]
        lack = lacks[:, s]
        users.move(gradient.users, active, settings.learning_rate, lack)
        dense.move(gradient.dense, active, settings.learning_rate, lack)
        items.move_rows(rows, together(rows, gradient.items, meeting), settings.learning_rate, lack)

    _repeat(step, batches.steps, device)
    n_rows = len(samples.items)
    return Changes(
        _quantised(users.values, before.users),
        _quantised(items.values[:n_rows], before.items[:n_rows]),
        _quantised(dense.values, before.dense),
    )


def find_device(name: str) -> torch.device:
    """PyTorch's device of that name; where there is none an error says what to do."""
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingExtra(f"setting 'device' is {name!r}, which", "neural") from None
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "setting 'device' is 'cuda', but PyTorch finds no GPU here; expected one. Set device=cpu, or install a PyTorch made for your GPU."
        )
    return torch.device(name)


@dataclass(frozen=True, slots=True)
class Batches:
    """User k's step s is the next `size` samples from starts[k] + s * size on, as far as it has them."""

    starts: Tensor  # (n, 1)
    ends: Tensor  # (n, 1)
    rows: Tensor  # (samples + 1,) row of the cohort's copies; one more, so that every place can be read
    targets: Tensor  # (samples + 1,)
    spare: Tensor  # (n, 1) a row of every user that no item is in: padding moves nothing, and nobody else's
    within: Tensor  # (size,)
    steps: int

    @classmethod
    def of(cls, samples: Samples, batch_size: int, device: torch.device) -> Batches:
        counts = samples.counts
        longest = int(counts.max(initial=1))
        size = min(batch_size, longest)
        rows = samples.places + np.repeat(samples.offsets[:-1], counts)
        spare = samples.offsets[-1] + np.arange(len(counts))
        return cls(
            _tensor(samples.starts[:-1, None], device),
            _tensor(samples.starts[1:, None], device),
            _tensor(np.append(rows, 0), device),
            _tensor(np.append(samples.targets, np.float32(0)), device),
            _tensor(spare[:, None], device),
            _tensor(np.arange(size), device),
            -(-longest // size),
        )

    def at(self, s: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, targets, and whether there is a sample at all; each (n, size)."""
        places = self.starts + s * len(self.within) + self.within
        there = places < self.ends
        places = places.clamp(max=len(self.rows) - 1)
        return self.rows[places].where(there, self.spare), self.targets[places], there


@dataclass(frozen=True, slots=True)
class Parts:
    """What users have, or the gradient by it."""

    users: Tensor  # (n, width)
    items: Tensor  # (rows, width), or those of a step (n, batch, width)
    dense: Tensor  # (n, size)

    @classmethod
    def copied(cls, given: Parameters, samples: Samples, device: torch.device) -> Parts:
        """One user's rows after the other's, then everybody's spare row; gathered there, for a bus is slower than a GPU."""
        users, table, dense = (
            _tensor(a, device) for a in (given.user_rows, given.item_rows, given.dense)
        )
        rows = users.new_zeros((len(samples.items) + len(users), table.shape[1]))
        rows[: len(samples.items)] = table.index_select(0, _tensor(samples.items, device))
        return cls(users, rows, dense.expand(len(users), -1))


@dataclass(frozen=True, slots=True)
class Copy:
    """Parameters that move, and what the optimiser remembers of them: nothing (SGD), or two moments (Adam)."""

    values: Tensor
    moments: tuple[Tensor, ...]

    @classmethod
    def of(cls, values: Tensor, by_adam: bool) -> Copy:
        zeros = values.new_zeros(values.shape)
        return cls(values.clone(), (zeros, zeros.clone()) if by_adam else ())

    def move(self, gradients: Tensor, active: Tensor, rate: float, lack: Tensor) -> None:
        """Of all users that are active; writes."""
        change, moments = one_step(gradients, self.moments, rate, lack)
        self.values.sub_(change.where(active, change.new_zeros(())))
        for moment, new in zip(self.moments, moments, strict=True):
            moment.copy_(new)

    def move_rows(self, rows: Tensor, gradients: Tensor, rate: float, lack: Tensor) -> None:
        """Of some rows; a row that stands there twice has the same slopes twice and moves once. Writes."""
        change, moments = one_step(
            gradients, tuple(moment[rows] for moment in self.moments), rate, lack
        )
        self.values[rows] = self.values[rows] - change
        for moment, new in zip(self.moments, moments, strict=True):
            moment[rows] = new


def gradients(
    forward: Forward, at_hand: Parts, targets: Tensor, there: Tensor, rated: bool, reg: float
) -> Parts:
    """By the mean over every user's batch of the loss, plus reg / 2 (|p|^2 + |q|^2) for each sample."""
    import torch

    loss = (
        torch.nn.functional.mse_loss
        if rated
        else torch.nn.functional.binary_cross_entropy_with_logits
    )
    with torch.enable_grad():
        p, q, h = (
            part.detach().requires_grad_() for part in (at_hand.users, at_hand.items, at_hand.dense)
        )
        fit = loss(forward(p, q, h), targets, reduction="none") * (0.5 if rated else 1.0)
        penalty = (p * p).sum(1, keepdim=True) + (q * q).sum(2)
        share = there / there.sum(1, keepdim=True).clamp(min=1)
        return Parts(*torch.autograd.grad(fit + reg / 2 * penalty, (p, q, h), share))


def together(rows: Tensor, gradients: Tensor, meeting: Tensor) -> Tensor:
    """(n, batch, width) slopes, where an item that is twice in a batch has the sum of both in both places.

    They meet in a table that is zeros, and is so again afterwards.
    """
    if rows.shape[1] == 1:
        return gradients
    where = rows.reshape(-1)
    flat = gradients.reshape(-1, gradients.shape[2])
    if (
        meeting.is_cuda
    ):  # this one sorts before it adds, and index_add_ does not: bits would change from run to run
        meeting.index_put_((where,), flat, accumulate=True)
    else:  # and here it is the other way round
        meeting.index_add_(0, where, flat)
    sums = meeting[rows]
    meeting.index_fill_(0, where, 0)
    return sums


def one_step(
    gradients: Tensor, moments: tuple[Tensor, ...], rate: float, lack: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What is taken off the values, and the moments afterwards."""
    if not moments:
        return rate * gradients, ()
    mean = DECAY1 * moments[0] + (1 - DECAY1) * gradients
    square = DECAY2 * moments[1] + (1 - DECAY2) * gradients * gradients
    return rate * (mean / lack[0]) / ((square / lack[1]).sqrt() + EPSILON), (mean, square)


def _lacks(steps: int, device: torch.device) -> Tensor:
    """(2, steps) what moments that began at zero lack after each step."""
    t = np.arange(1, steps + 1)
    return _tensor(np.stack([1 - DECAY1**t, 1 - DECAY2**t]).astype(np.float32), device)


def _repeat(step: Callable[[Tensor], None], times: int, device: torch.device) -> None:
    """step(0), step(1), ...; a GPU gets a recording of a step, for starting its forty small pieces takes longer than they do."""
    import torch

    s = torch.zeros(1, dtype=torch.int64, device=device)

    def once() -> None:
        step(s)
        s.add_(1)

    recorded = device.type == "cuda" and times >= STEPS_WORTH_A_GRAPH
    for _ in range(STEPS_BEFORE_A_GRAPH if recorded else times):
        once()
    if recorded:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            once()  # written down, not done
        for _ in range(times - STEPS_BEFORE_A_GRAPH):
            graph.replay()
        torch.cuda.synchronize()  # the recording must outlive its last replay


def _quantised(now: Tensor, before: Tensor) -> Ints:
    """Fixed point, as `kernels.quantise` makes it."""
    import torch

    x = torch.round((now - before) * SCALE)
    bad = torch.full_like(x, NOT_FINITE).masked_fill(x.abs() < torch.inf, TOO_LARGE)
    fixed: Ints = x.where(x.abs() < TOO_LARGE, bad).to(torch.int32).cpu().numpy()
    return fixed


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """A copy: the array may be one that must not be written."""
    import torch

    return torch.tensor(array, device=device)
