"""Compute time and traffic of one device, per training round and per inference.

Measured on the messages of the two-tower models, naive and split.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.algorithms.two_tower.training import TowerOps
from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.evaluation.ranking import best_items
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.federated import rounds, trainer
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    Exchange,
    Federation,
    NodeData,
)
from coterie.federated.settings import federation_settings
from coterie.federated.wire import message_size, reply_sizes
from coterie.models.directions import Directions
from coterie.reproduce.items import MeasuredRows
from coterie.types import Ints

NO_ITEMS = np.empty(0, np.int32)


def device_costs(
    names: Sequence[str], dataset: str, settings: Mapping[str, object]
) -> MeasuredRows:
    """Times and message sizes of a device, by algorithm."""
    return {name: costs_of(name, dataset, settings) for name in names}


def costs_of(
    name: str, dataset: str, settings: Mapping[str, object], devices: int = 20
) -> dict[str, float]:
    """Run the messages of one round on one device at a time, on one thread."""
    ready, federation, world, engine = prepared(name, dataset, settings)
    state = federation.init(world)
    node = engine.nodes[0]
    cohort = federation.sample(world, state, 0)[:devices]
    times = np.zeros(devices)
    up = 0.0
    down = 0.0
    for exchange in federation.exchanges:
        if not isinstance(exchange, Exchange):
            state = rounds.relay(world, exchange, state, 0, engine)
            continue
        message = rounds.broadcast(world, exchange, state, cohort, 0, engine)
        for k in range(len(cohort)):
            one = message.to(np.array([k]))
            started = time.perf_counter()
            reply = exchange.client_update(engine.world, one, node)
            times[k] += time.perf_counter() - started
            assert not isinstance(reply, tuple)
            up += float(reply_sizes(reply).sum()) / devices
            down += float(message_size(one)) / devices
        state, _ = rounds.play_exchange(world, exchange, state, cohort, 0, engine)
    inference_seconds, downloaded = inference(name, ready, federation, world, state, node)
    training = float(np.median(times)) * 1e3
    inferring = inference_seconds * 1e3
    return {
        "training ms": round(training, 3),
        "inference ms": round(inferring, 3),
        "total ms": round(training + inferring, 3),
        "training MB": (up + down) / 1e6,
        "inference MB": downloaded / 1e6,
        "total MB": (up + down + downloaded) / 1e6,
        "up MB": up / 1e6,
        "down MB": down / 1e6,
    }


def prepared(
    name: str, dataset: str, settings: Mapping[str, object]
) -> tuple[Prepared, AnyFederation, AnyWorld, LocalEngine]:
    """A federation that is ready to start, on the CPU unless the settings name another device."""
    flat = {"algorithm": name, "dataset": dataset, "device": "cpu"} | dict(settings)
    ready = prepare(Experiment.of(flat), None, SILENT)
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    settings_of_run = federation_settings(ready.experiment.settings)
    world = trainer.world_of(ready.training, settings_of_run, 0, federation)
    return ready, federation, world, LocalEngine.over(world, ready.training, 1)


def inference(
    name: str,
    ready: Prepared,
    federation: AnyFederation,
    world: AnyWorld,
    state: Any,
    node: NodeData,
) -> tuple[float, float]:
    """Seconds that a device needs for its ten best items, and the bytes it downloads for that."""
    model = federation.model(world, state)
    assert isinstance(model, Directions)
    assert federation.client_model is not None
    user_rows = federation.client_model(world, state, node)["user_rows"][:1]
    one_user = Directions(user_rows, model.item_rows, model.units)
    content = world.content
    assert content is not None
    assert content.items is not None
    item_texts = content.items
    towers = TowerOps(world.settings)

    def best_ten(scored: Directions) -> Ints:
        return best_items(scored.score(np.zeros(1, np.int32))[0], NO_ITEMS, 10)

    def naive() -> Ints:
        # The naive device runs the item tower itself, over every item.
        item_rows = towers.directions(state.item_tower, item_texts, content)
        return best_ten(Directions(one_user.user_rows, item_rows, one_user.units))

    def split() -> Ints:
        return best_ten(one_user)

    if name.startswith("fl-"):
        return median_seconds(naive), item_bytes(ready)
    return median_seconds(split), model.download


def item_bytes(ready: Prepared) -> float:
    """Size of all item texts and categories, as UTF-8."""
    train = ready.parts.train
    columns = [train.item_texts, train.item_bodies]
    texts = [str(text) for column in columns if column is not None for text in column]
    if train.item_categories is not None:
        texts += [" ".join(categories) for categories in train.item_categories]
    return float(sum(len(text.encode()) for text in texts))


def median_seconds(work: Callable[[], object], times: int = 7) -> float:
    """Median wall time of several calls."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)
