"""Local training of a NeuMF cohort: our kernel against a PyTorch loop over users. Prints JSON.

    python benchmarks/neumf_vs_torch.py [--dataset ml-100k] [--repeats 20] [--quick]

Both train the same users on the same samples from the same parameters, and return every user's
update. The loop does what published federated recommenders do: each user has a module with a copy
of the parameters, an optimiser, and batches of 256 samples. Unlike published code, which copies and
updates the whole item table, the loop gets only the item rows that a user touches, as the kernel
does.

The kernel takes a step after every sample. Unless --quick is given, the loop also runs with batch
size 1, which is the same arithmetic and takes a minute or more. The printed differences are between
the updates of the two. They can be large for a user with thousands of samples, because rounding can
switch a ReLU on or off.

PyTorch runs with one thread or with all, whichever is faster; the choice is printed. `ms` and
`ratio` are wall-clock time. `core_ms` and `core_ratio` are CPU time of all threads, which does not
depend on other load on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from coterie.algorithms import fedavg
from coterie.algorithms.local import learner
from coterie.algorithms.local.learner import Changes, Parameters
from coterie.algorithms.local.samples import Samples, draw
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.federation import Federation, NodeData, World
from coterie.federated.trainer import Context
from coterie.models.neumf import tower_sizes, unpack_dense
from coterie.types import SCALE, Floats, Longs

PUBLISHED_BATCH = 256
SETTINGS = {
    "model": "neumf",
    "embedding_size": 10,
    "layers": (32, 16, 8),
    "participation": 0.1,
    "negatives": 4,
}


class TorchNeuMF(nn.Module):
    """One user's copy of the model."""

    def __init__(self, user_row: Floats, item_rows: Floats, dense: Floats, sizes: Longs) -> None:
        super().__init__()
        net = unpack_dense(dense, sizes)
        self.d = int(sizes[0]) // 2
        self.user = nn.Parameter(torch.tensor(user_row))
        self.items = nn.Parameter(torch.tensor(item_rows))
        linear = [nn.Linear(n, m) for n, m in pairwise(sizes.tolist())]
        self.output = nn.Linear(int(sizes[-1]) + self.d, 1)
        with torch.no_grad():
            for module, (weights, biases) in zip(linear, net.layers, strict=True):
                module.weight.copy_(torch.tensor(weights))
                module.bias.copy_(torch.tensor(biases))
            self.output.weight.copy_(torch.tensor(np.concatenate([net.tower, net.gmf])[None]))
            self.output.bias.copy_(torch.tensor(net.bias))
        self.tower = nn.Sequential(*(part for module in linear for part in (module, nn.ReLU())))

    def forward(self, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits, and the squared norm of the rows used."""
        p = self.user.expand(len(places), -1)
        q = self.items[places]
        top = self.tower(torch.cat([p[:, self.d :], q[:, self.d :]], 1))
        logits = self.output(torch.cat([top, p[:, : self.d] * q[:, : self.d]], 1))[:, 0]
        return logits, (p * p).sum(1) + (q * q).sum(1)

    def flat(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dense = [
            part.detach().numpy().ravel()
            for part in (*self.tower.parameters(), *self.output.parameters())
        ]
        return self.user.detach().numpy(), self.items.detach().numpy(), np.concatenate(dense)


def torch_loop(
    world: World, parameters: Parameters, samples: Samples, batch: int
) -> list[tuple[np.ndarray, ...]]:
    """Every user's update, computed one user after the other."""
    settings = world.settings
    loss = nn.BCEWithLogitsLoss(reduction="none")
    sizes = tower_sizes(settings.embedding_size, settings.layers)
    places = torch.tensor(samples.places, dtype=torch.int64)
    targets = torch.tensor(samples.targets)
    changes = []
    for k in range(len(samples.starts) - 1):
        items = samples.items[samples.offsets[k] : samples.offsets[k + 1]]
        before = (parameters.user_rows[k], parameters.item_rows[items], parameters.dense)
        model = TorchNeuMF(*before, sizes)
        optimiser = torch.optim.SGD(model.parameters(), lr=settings.learning_rate)
        end = int(samples.starts[k + 1])
        for first in range(int(samples.starts[k]), end, batch):
            some = slice(first, min(first + batch, end))
            optimiser.zero_grad()
            logits, penalty = model(places[some])
            (loss(logits, targets[some]) + settings.reg / 2 * penalty).mean().backward()
            optimiser.step()
        changes.append(tuple(now - was for now, was in zip(model.flat(), before, strict=True)))
    return changes


def differences(ours: Changes, theirs: list[tuple[np.ndarray, ...]], offsets: Longs) -> list[float]:
    """The largest absolute difference of every user's update."""
    largest = []
    for k, update in enumerate(theirs):
        rows = slice(offsets[k], offsets[k + 1])
        own = (ours.user_rows[k], ours.item_rows[rows], ours.dense[k])
        pairs = zip(own, update, strict=True)
        largest.append(max(float(np.abs(a / SCALE - b).max()) for a, b in pairs))
    return largest


def seconds(work: Callable[[], Any], repeats: int, warm_up: int = 0) -> tuple[float, float]:
    """Medians of wall-clock time and of the CPU time of all threads."""
    taken = []
    for _ in range(warm_up + repeats):
        began = time.perf_counter()
        spent = time.process_time()
        work()
        taken.append((time.perf_counter() - began, time.process_time() - spent))
    wall, cores = zip(*taken[warm_up:], strict=True)
    return statistics.median(wall), statistics.median(cores)


def milliseconds(taken: tuple[float, float]) -> dict[str, float]:
    return {"ms": round(1e3 * taken[0], 2), "core_ms": round(1e3 * taken[1], 2)}


def ratios(theirs: tuple[float, float], ours: tuple[float, float]) -> dict[str, float]:
    return {"ratio": round(theirs[0] / ours[0], 1), "core_ratio": round(theirs[1] / ours[1], 1)}


def whole_round(world: World, histories: NodeData, repeats: int) -> float:
    """Median seconds of sequential rounds, without evaluation."""
    federation = fedavg.ALGORITHM.train
    assert isinstance(federation, Federation)
    engine = LocalEngine.over(world, histories.training, 1)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    state = work.start()[0]
    times = []
    for n in range(1, repeats + 4):
        began = time.perf_counter()
        state, _ = work.step(state, n)
        times.append(time.perf_counter() - began)
    return statistics.median(times[3:])


def faster_threads(loop: Callable[[int], Any]) -> int:
    """The faster number of threads for PyTorch: one or all."""
    taken = {}
    for threads in {1, os.cpu_count() or 1}:
        torch.set_num_threads(threads)
        taken[threads] = seconds(lambda: loop(PUBLISHED_BATCH), 1, warm_up=1)[0]
    return min(taken, key=lambda threads: taken[threads])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--torch-repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    world = trainer.world_of(training, fedavg.FedAvg.of(SETTINGS), seed=0)
    state = fedavg.init(world)
    histories = NodeData(np.arange(training.n_users, dtype=np.int32), training)
    cohort = fedavg.sample(world, state, 0)
    samples = draw(world, cohort, 0, histories)
    parameters = Parameters(state.user_rows[cohort], state.item_rows, state.dense)

    def train() -> Changes:
        return learner("neumf").train(world, parameters, samples, False)

    def loop(batch: int) -> list[tuple[np.ndarray, ...]]:
        return torch_loop(world, parameters, samples, batch)

    ours = seconds(train, options.repeats, warm_up=3)
    n_samples = len(samples.places)
    result: dict[str, Any] = {
        "dataset": options.dataset,
        "users": len(cohort),
        "samples": n_samples,
        **SETTINGS,
        "cores": os.cpu_count(),
        "coterie": milliseconds(ours) | {"core_ns_per_sample": round(1e9 * ours[1] / n_samples, 1)},
        "coterie_round_ms": round(1e3 * whole_round(world, histories, options.repeats), 2),
    }
    result["torch_threads"] = faster_threads(loop)
    torch.set_num_threads(result["torch_threads"])
    theirs = seconds(lambda: loop(PUBLISHED_BATCH), options.torch_repeats)
    result[f"torch_batch_{PUBLISHED_BATCH}"] = milliseconds(theirs) | ratios(theirs, ours)
    if not options.quick:
        changes: list[list[tuple[np.ndarray, ...]]] = []
        theirs = seconds(lambda: changes.append(loop(1)), 1)
        largest = differences(train(), changes[0], samples.offsets)
        result["torch_batch_1"] = {
            **milliseconds(theirs),
            **ratios(theirs, ours),
            "difference_of_the_median_user": statistics.median(largest),
            "largest_difference": max(largest),
        }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
