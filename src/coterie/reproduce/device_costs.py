"""What one device computes and sends in a round, and to infer: two towers, naive and split, measured on their messages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.algorithms.two_tower.learning import Readers
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
from coterie.reproduce.items import Rows

NOTHING = np.empty(0, np.int32)


def costs(names: Sequence[str], dataset: str, values: Mapping[str, Any]) -> Rows:
    return {name: on_a_device(name, dataset, values) for name in names}


def on_a_device(
    name: str, dataset: str, values: Mapping[str, Any], devices: int = 20
) -> dict[str, float]:
    """One device at a time, on one thread: what the messages of a round make it compute, and what they weigh."""
    ready, federation, world, engine = prepared(name, dataset, values)
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
            began = time.perf_counter()
            made = exchange.client_update(engine.world, one, node)
            times[k] += time.perf_counter() - began
            assert not isinstance(made, tuple)
            up += float(reply_sizes(made).sum()) / devices
            down += float(message_size(one)) / devices
        state, _ = rounds.play_exchange(world, exchange, state, cohort, 0, engine)
    infer, fetched = inference(name, ready, federation, world, state, node)
    training = float(np.median(times)) * 1e3
    inferring = infer * 1e3
    return {
        "training ms": round(training, 3),
        "inferring ms": round(inferring, 3),
        "total ms": round(training + inferring, 3),
        "training MB": (up + down) / 1e6,
        "inferring MB": fetched / 1e6,
        "total MB": (up + down + fetched) / 1e6,
        "up MB": up / 1e6,
        "down MB": down / 1e6,
    }


def prepared(
    name: str, dataset: str, values: Mapping[str, Any]
) -> tuple[Prepared, AnyFederation, AnyWorld, LocalEngine]:
    """A federation that is ready to begin, on the CPU unless something else is said."""
    ready = prepare(
        Experiment.of({"algorithm": name, "dataset": dataset, "device": "cpu"} | dict(values)),
        None,
        SILENT,
    )
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    world = trainer.world_of(
        ready.training, federation_settings(ready.experiment.settings), 0, federation
    )
    return ready, federation, world, LocalEngine.over(world, ready.training, 1)


def inference(
    name: str,
    ready: Prepared,
    federation: AnyFederation,
    world: AnyWorld,
    state: Any,
    node: NodeData,
) -> tuple[float, float]:
    """Seconds from what a device has to its best ten, and the bytes that it had to get for that."""
    model = federation.model(world, state)
    assert isinstance(model, Directions)
    assert federation.client_model is not None
    me = Directions(
        federation.client_model(world, state, node)["user_rows"][:1], model.item_rows, model.units
    )
    towers = Readers(world.settings)
    content = world.content
    assert content is not None
    assert content.items is not None

    def naive() -> Any:
        rows = towers.directions(state.item_tower, content.items, content)  # type: ignore[arg-type]
        return best_items(
            Directions(me.user_rows, rows, me.units).score(np.zeros(1, np.int32))[0], NOTHING, 10
        )

    def split() -> Any:
        return best_items(me.score(np.zeros(1, np.int32))[0], NOTHING, 10)

    if name.startswith("fl-"):
        return median_seconds(naive), item_bytes(ready)
    return median_seconds(split), model.download


def item_bytes(ready: Prepared) -> float:
    """All that there is to read about items, as UTF-8."""
    train = ready.parts.train
    parts = [train.item_texts, train.item_bodies]
    told = [str(text) for part in parts if part is not None for text in part]
    told += (
        [" ".join(kinds) for kinds in train.item_categories]
        if train.item_categories is not None
        else []
    )
    return float(sum(len(text.encode()) for text in told))


def median_seconds(work: Callable[[], Any], times: int = 7) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)
