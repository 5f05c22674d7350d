"""Local training of a whole cohort as PyTorch tensors, for GPUs: step s of all users at once.

Every user trains on its own copies. The maths is that of `kernels.gmf_batches`, with Adam as in
`kernels.optimisers`. A model supplies its forward function, and autograd the gradients. The same
cohort on the same machine gives the same bits; the kernels agree within about 1e-5, because
rounding differs over thousands of steps. A step takes about as long for one user as for thousands,
so the cost of a round is the longest history divided by the batch size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coterie.algorithms.local.learner import Changes, Parameters
from coterie.algorithms.local.objective import LocalObjective
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
"""(user rows (n, width), item rows (n, batch, width), dense (n, size)) -> predictions (n, batch),
which are logits, or ratings."""

DECAY1 = 0.9
DECAY2 = 0.999
EPSILON = 1e-8
WARM_UP_STEPS = 3
"""Steps before a CUDA graph is captured; they allocate memory and initialise libraries."""
MIN_STEPS_FOR_A_GRAPH = 20
"""With fewer steps, capturing a graph costs more than it saves."""


def train(
    forward: Forward,
    world: AnyWorld,
    given: Parameters,
    samples: Samples,
    rated: bool,
    objective: LocalObjective | None = None,
    on: str | None = None,
) -> Changes:
    """Train a cohort; `given` holds the cohort's user rows and all item rows."""
    settings = world.settings
    device = find_device(on or settings.device)
    by_adam = settings.optimizer == "adam"
    batches = Batches.of(samples, settings.batch_size, device)
    before = Parts.copied(given, samples, device)
    users, items, dense = (
        CohortCopies.of(part, by_adam) for part in (before.users, before.items, before.dense)
    )
    corrections = _bias_corrections(batches.steps, device)
    scratch = before.items.new_zeros(before.items.shape)

    def step(s: Tensor) -> None:
        rows, targets, present = batches.at(s)
        current = Parts(users.values, items.values[rows], dense.values)
        sent = Parts(before.users, before.items[rows], before.dense)
        extra = None if objective is None else partial(_extra_loss, objective, sent)
        gradient = gradients(forward, current, targets, present, rated, settings.reg, extra)
        row_gradients = add_repeats(rows, gradient.items, scratch)
        active = present[:, :1]
        correction = corrections[:, s]
        users.step(gradient.users, active, settings.learning_rate, correction)
        dense.step(gradient.dense, active, settings.learning_rate, correction)
        items.step_rows(rows, row_gradients, settings.learning_rate, correction)

    _repeat(step, batches.steps, device)
    n_rows = len(samples.items)
    return Changes(
        _quantised(users.values, before.users),
        _quantised(items.values[:n_rows], before.items[:n_rows]),
        _quantised(dense.values, before.dense),
    )


def find_device(name: str) -> torch.device:
    """PyTorch's device of that name; raises an error with a remedy if it is missing."""
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingExtra(f"setting 'device' is {name!r}, which", "neural") from None
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "setting 'device' is 'cuda', but PyTorch finds no GPU here; expected one. "
            "Set device=cpu, or install a PyTorch made for your GPU."
        )
    return torch.device(name)


@dataclass(frozen=True, slots=True)
class Batches:
    """Step s of user k is `size` samples from starts[k] + s * size on, but none from ends[k] on."""

    starts: Tensor  # (n, 1)
    ends: Tensor  # (n, 1)
    rows: Tensor  # (samples + 1,) rows of the cohort's copies; the last entry is padding
    targets: Tensor  # (samples + 1,)
    spare: Tensor  # (n, 1) a row per user that holds no item; padded samples read and write it
    within: Tensor  # (size,) 0, 1, ..., size - 1
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
        """Rows, targets, and which samples are present (the rest is padding); each (n, size)."""
        places = self.starts + s * len(self.within) + self.within
        present = places < self.ends
        places = places.clamp(max=len(self.rows) - 1)
        return self.rows[places].where(present, self.spare), self.targets[places], present


@dataclass(frozen=True, slots=True)
class Parts:
    """The parameters of a cohort, or the gradient by them."""

    users: Tensor  # (n, width)
    items: Tensor  # (rows, width), or those of a step (n, batch, width)
    dense: Tensor  # (n, size)

    @classmethod
    def copied(cls, given: Parameters, samples: Samples, device: torch.device) -> Parts:
        """Copy each user's rows, one user after the other, then one spare row per user.

        The rows are gathered on the GPU, because the bus to it is slower than its memory.
        """
        users, table, dense = (
            _tensor(a, device) for a in (given.user_rows, given.item_rows, given.dense)
        )
        rows = users.new_zeros((len(samples.items) + len(users), table.shape[1]))
        rows[: len(samples.items)] = table.index_select(0, _tensor(samples.items, device))
        return cls(users, rows, dense.expand(len(users), -1))


@dataclass(frozen=True, slots=True)
class CohortCopies:
    """The users' copies of a parameter in training, with the state of the optimiser."""

    values: Tensor
    moments: tuple[Tensor, ...]  # none with SGD, two with Adam

    @classmethod
    def of(cls, values: Tensor, by_adam: bool) -> CohortCopies:
        zeros = values.new_zeros(values.shape)
        return cls(values.clone(), (zeros, zeros.clone()) if by_adam else ())

    def step(
        self, gradients: Tensor, active: Tensor, learning_rate: float, correction: Tensor
    ) -> None:
        """One step of all active users. Writes the values and moments."""
        change, moments = one_step(gradients, self.moments, learning_rate, correction)
        self.values.sub_(change.where(active, change.new_zeros(())))
        for moment, new in zip(self.moments, moments, strict=True):
            moment.copy_(new)

    def step_rows(
        self, rows: Tensor, gradients: Tensor, learning_rate: float, correction: Tensor
    ) -> None:
        """One step on some rows. Writes the values and moments.

        A row that occurs twice has the same gradient at both places, so it moves only once.
        """
        before = tuple(moment[rows] for moment in self.moments)
        change, moments = one_step(gradients, before, learning_rate, correction)
        self.values[rows] = self.values[rows] - change
        for moment, new in zip(self.moments, moments, strict=True):
            moment[rows] = new


def _extra_loss(objective: LocalObjective, sent: Parts, p: Tensor, q: Tensor, h: Tensor) -> Tensor:
    return objective(Parts(p, q, h), sent)


def gradients(
    forward: Forward,
    current: Parts,
    targets: Tensor,
    present: Tensor,
    rated: bool,
    reg: float,
    extra: Forward | None = None,
) -> Parts:
    """The gradient of every user's loss: the mean over its batch.

    The loss of a sample includes reg / 2 (|p|^2 + |q|^2) and, where there is one, an extra term.
    """
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

    loss = mse_loss if rated else binary_cross_entropy_with_logits
    with torch.enable_grad():
        p, q, h = (
            part.detach().requires_grad_() for part in (current.users, current.items, current.dense)
        )
        fit = loss(forward(p, q, h), targets, reduction="none") * (0.5 if rated else 1.0)
        penalty = (p * p).sum(1, keepdim=True) + (q * q).sum(2)
        share = present / present.sum(1, keepdim=True).clamp(min=1)
        total = fit + reg / 2 * penalty
        if extra is not None:
            total = total + extra(p, q, h)
        return Parts(*torch.autograd.grad(total, (p, q, h), share))


def add_repeats(rows: Tensor, gradients: Tensor, scratch: Tensor) -> Tensor:
    """(n, batch, width) gradients; an item that occurs twice in a batch gets the sum at both.

    `scratch` (rows, width) must be zero and is zero again afterwards.
    """
    if rows.shape[1] == 1:
        return gradients
    where = rows.reshape(-1)
    flat = gradients.reshape(-1, gradients.shape[2])
    # Each device has one operation that adds in a fixed order, so that runs repeat bit for bit:
    # on a GPU index_put_ sorts first and index_add_ does not; on a CPU only index_add_ is ordered.
    if scratch.is_cuda:
        scratch.index_put_((where,), flat, accumulate=True)
    else:
        scratch.index_add_(0, where, flat)
    sums = scratch[rows]
    scratch.index_fill_(0, where, 0)
    return sums


def one_step(
    gradients: Tensor, moments: tuple[Tensor, ...], learning_rate: float, correction: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """What to subtract from the values, and the new moments."""
    if not moments:
        return learning_rate * gradients, ()
    mean = DECAY1 * moments[0] + (1 - DECAY1) * gradients
    square = DECAY2 * moments[1] + (1 - DECAY2) * gradients * gradients
    return learning_rate * (mean / correction[0]) / ((square / correction[1]).sqrt() + EPSILON), (
        mean,
        square,
    )


def _bias_corrections(steps: int, device: torch.device) -> Tensor:
    """(2, steps) 1 - beta^t of both moments."""
    t = np.arange(1, steps + 1)
    return _tensor(np.stack([1 - DECAY1**t, 1 - DECAY2**t]).astype(np.float32), device)


def _repeat(step: Callable[[Tensor], None], times: int, device: torch.device) -> None:
    """Call step(0), step(1), ...

    A GPU replays a captured graph of a step: launching its forty small kernels one by one would
    take longer than running them.
    """
    import torch

    s = torch.zeros(1, dtype=torch.int64, device=device)

    def once() -> None:
        step(s)
        s.add_(1)

    captured = device.type == "cuda" and times >= MIN_STEPS_FOR_A_GRAPH
    for _ in range(WARM_UP_STEPS if captured else times):
        once()
    if captured:
        graph = torch.cuda.CUDAGraph()
        # Capturing records the step without running it.
        with torch.cuda.graph(graph):
            once()
        for _ in range(times - WARM_UP_STEPS):
            graph.replay()
        # The graph must outlive its last replay.
        torch.cuda.synchronize()


def _quantised(now: Tensor, before: Tensor) -> Ints:
    """The change in fixed point, as in `kernels.quantise`."""
    import torch

    x = torch.round((now - before) * SCALE)
    bad = torch.full_like(x, NOT_FINITE).masked_fill(x.abs() < torch.inf, TOO_LARGE)
    fixed: Ints = x.where(x.abs() < TOO_LARGE, bad).to(torch.int32).cpu().numpy()
    return fixed


def _tensor(array: np.ndarray, device: torch.device) -> Tensor:
    """A copy of the array on the device: the array itself may be read-only."""
    import torch

    return torch.tensor(array, device=device)
