"""Federations small enough to be trained many times in a test."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from every_algorithm import HERE

from coterie.algorithms import registry
from coterie.algorithms.algorithm import Costs
from coterie.core.progress import SILENT, Progress
from coterie.core.records import Record
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.engine import Engine
from coterie.federated.federation import Federation, World
from coterie.federated.trainer import Context
from coterie.types import Rows

FEDERATED = sorted(name for name in HERE if registry.algorithm(name).federated)
ON_KERNELS = [
    name for name in FEDERATED if "tower" not in registry.algorithm(name).settings.model_fields
]
"""Algorithms whose bits do not depend on how users are distributed over nodes. The towers, which
PyTorch trains, differ in the last bits."""
WITH_LEARNERS = [
    name for name in FEDERATED if "model" in registry.algorithm(name).settings.model_fields
]
"""Algorithms that train any of the models. The others have their own model."""
SENT_ONCE = {"fedease", "fedslim"}
"""Algorithms whose clients send in one round, without randomness and without training."""
FEW = {"embedding_size": 5, "participation": 0.3, "clusters": 4, "inputs": 40}
SOME = (
    "participation",
    "clusters",
    "local_epochs",
    "optimizer",
    "batch_size",
    "moments",
    "users_per_round",
    "rounds_an_epoch",
    "learning_rate",
    "embedding_size",
)
"""Settings that not every federated algorithm has: they are dropped for algorithms without them."""


def steps(name: str, n: int) -> dict[str, int]:
    """Settings for n steps: rounds, or epochs of five rounds for algorithms with epochs."""
    known = registry.algorithm(name).settings.model_fields
    return {"rounds": n} if "rounds" in known else {"epochs": n, "rounds_an_epoch": 5}


def small(name: str) -> dict[str, int]:
    """A small size, for algorithms with one."""
    known = registry.algorithm(name).settings.model_fields
    return {"embedding_size": 4} if "embedding_size" in known else {}


def few_settings(name: str, rounds: int = 4, **changes: Any) -> Any:
    settings = registry.algorithm(name).settings
    few = {key: value for key, value in FEW.items() if key in settings.model_fields}
    known = {
        key: value
        for key, value in changes.items()
        if key in settings.model_fields or key not in SOME
    }
    return settings.of(few | steps(name, rounds) | known)


def histories(seed: int, n_users: int = 12, n_items: int = 15, rated: bool = False) -> TrainingSet:
    """Random users; the last one has all items, the one before none."""
    rng = np.random.default_rng(seed)
    lists = [rng.permutation(n_items)[: rng.integers(1, n_items // 2)] for _ in range(n_users - 2)]
    lists += [np.empty(0, int), np.arange(n_items)]
    users = np.repeat(np.arange(n_users), [len(h) for h in lists]).astype(np.int32)
    rows = Rows.build(users, np.concatenate(lists).astype(np.int32), n_users)
    ratings = rng.integers(1, 6, len(users)).astype(np.float32) if rated else None
    regions = np.array([("north", "south", "west")[u % 3] for u in range(n_users)], dtype=object)
    titles = np.array([f"Number {n} of {n % 4} kinds" for n in range(n_items)], dtype=object)
    return TrainingSet(
        n_users, n_items, rows, rows, ratings, {"region": regions}, item_texts=titles
    )


def world_for(name: str, training: TrainingSet, seed: int = 0, **changes: Any) -> World:
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    return trainer.world_of(training, few_settings(name, **changes), seed, federation)


def play(
    name: str,
    world: World,
    engine: Engine,
    since: Any = None,
    first: int = 1,
    progress: Progress = SILENT,
) -> tuple[list[Any], list[Costs]]:
    """States before the first step and after every step, and the costs of every step."""
    chosen = registry.algorithm(name)
    assert isinstance(chosen.train, Federation)
    work = trainer.federated_trainer(chosen.train, world, engine, Context(world.seed, progress))
    states = [work.start()[0] if since is None else since]
    all_costs = []
    for n in range(first, chosen.steps(world.settings) + 1):
        state, costs = work.step(states[-1], n)
        states.append(state)
        all_costs.append(costs)
    return states, all_costs


def play_locally(
    name: str,
    training: TrainingSet,
    nodes: int = 1,
    wire: bool | None = None,
    seed: int = 0,
    **changes: Any,
) -> tuple[list[Any], list[Costs]]:
    world = world_for(name, training, seed, **changes)
    return play(name, world, LocalEngine.over(world, training, nodes, wire))


def sha256(record: Record) -> str:
    """One digest over all arrays of a state or a model, names and shapes included."""
    digest = hashlib.sha256()
    for name, array in sorted(record.arrays().items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
