"""GMF on a client: w[N] is the output layer, then the bias."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coterie import kernels
from coterie.algorithms.local import batched
from coterie.algorithms.local.learner import Changes, Learner, Parameters, SummedChanges
from coterie.algorithms.local.objective import LocalObjective
from coterie.algorithms.local.samples import Samples
from coterie.algorithms.local.settings import Federated
from coterie.core import parallel
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.models.gmf import GMF
from coterie.types import TOO_LARGE, Ints, Longs

if TYPE_CHECKING:
    from torch import Tensor


NO_FAULTS = np.empty(0, np.int8)


def start(world: AnyWorld) -> Parameters:
    settings = world.settings
    if settings.device == "cuda":
        # Report a missing GPU now and not in the middle of a round.
        batched.find_device(settings.device)
    model = GMF.start(
        world.n_users, world.n_items, settings.embedding_size, world.seed, settings.start_scale
    )
    parameters = Parameters(
        model.user_rows, model.item_rows, np.concatenate([model.output, model.bias])
    )
    return parameters if settings.moments == "fresh" else parameters.with_moments()


def train(
    world: AnyWorld,
    given: Parameters,
    samples: Samples,
    rated: bool,
    objective: LocalObjective | None = None,
) -> Changes:
    settings = world.settings
    if settings.device == "cuda" or objective is not None:
        return batched.train(forward, world, given, samples, rated, objective)
    changes = Changes.room_for(given, samples)
    parallel.over(kernel_call(world, given, samples, rated, changes), samples.starts)
    return changes


def train_and_sum(
    world: AnyWorld, given: Parameters, samples: Samples, rated: bool
) -> SummedChanges | None:
    """Where `sums_up` holds: no update is ever written as a whole."""
    n, width = given.user_rows.shape
    none = np.empty((0, width), np.int32)
    changes = Changes(np.empty((n, width), np.int32), none, np.empty((n, width + 1), np.int32))
    total = np.zeros(given.item_rows.shape, np.int64)
    lock = Lock()

    def add(part: Longs) -> None:
        with lock:
            np.add(total, part, out=total)

    faults = np.zeros(n, np.int8)
    work = kernel_call(world, given, samples, rated, changes, faults, add)
    parallel.over(work, samples.starts)
    if faults.any() or too_large(changes.user_rows) or too_large(changes.dense):
        return None
    return SummedChanges(changes.user_rows, total, changes.dense)


def sums_up(settings: Federated) -> bool:
    """The kernel adds up by itself in batches with SGD."""
    by_kernel = settings.device == "cpu" and family(settings) == "gmf_batches"
    return by_kernel and settings.optimizer == "sgd"


def too_large(changes: Ints) -> bool:
    """Whether validation would refuse one of them."""
    return bool((changes >= TOO_LARGE).any() or (changes <= -TOO_LARGE).any())


def kernel_call(
    world: AnyWorld,
    given: Parameters,
    samples: Samples,
    rated: bool,
    changes: Changes,
    faults: NDArray[np.int8] = NO_FAULTS,
    add: Callable[[Longs], None] | None = None,
) -> Callable[[int, int], None]:
    """Work for threads: trains users first..last of the cohort, and writes their changes.

    With `add`, changes of item rows are summed instead, and `add` gets the sums of every range.
    """
    settings = world.settings
    kernel = kernels.load(family(settings))
    options = kernel_options(settings)

    def part(first: int, last: int) -> None:
        total = np.zeros(given.item_rows.shape if add else (0, 0), np.int64)
        kernel.train(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            given.user_rows,
            given.item_rows,
            given.dense,
            rated,
            settings.learning_rate,
            settings.reg,
            *options,
            first,
            last,
            *changes,
            *((total, faults) if family(settings) == "gmf_batches" else ()),
        )
        if add:
            add(total)

    return part


def family(settings: Federated) -> str:
    """The kernel family that trains with these settings."""
    if settings.moments == "averaged":
        return "gmf_moments"
    return "gmf_users" if settings.sample_by_sample else "gmf_batches"


def kernel_options(settings: Federated) -> tuple[int, ...]:
    """The arguments of that family after learning rate and regularisation."""
    if settings.moments == "averaged":
        return (settings.batch_size,)
    return () if settings.sample_by_sample else (settings.batch_size, settings.optimizer == "adam")


def forward(p: Tensor, q: Tensor, dense: Tensor) -> Tensor:
    """h . (p * q) + b for a batch of every user, in PyTorch.

    Shapes as in `batched.Forward`.
    """
    return (q * (p * dense[:, :-1])[:, None, :]).sum(2) + dense[:, -1:]


def model(world: AnyWorld, parameters: Parameters) -> GMF:
    if world.settings.moments == "averaged":
        parameters = parameters.without_moments()
    return GMF(
        parameters.user_rows, parameters.item_rows, parameters.dense[:-1], parameters.dense[-1:]
    )


def kernel_families(settings: Federated) -> tuple[str, ...]:
    if settings.device == "cuda":
        return "samples", "sums"
    return "samples", family(settings), "sums"


LEARNER = Learner(start, train, model, kernel_families, sums_up, train_and_sum)
