"""Compute time and traffic of one device, per training round and per inference.

Measured on the messages of the two-tower models, naive and split. The paper does not say how its
devices computed, so training has several columns:

    training ms              all that a device does for its replies in a round
    million multiplications  of the forward pass, by the formula of Section 4.3
    forward and backward ms  the gradients, all items in one batch
    item by item ms          the gradients, one item after the other through the item tower
    encoding ms              gradients to fixed point, as they are sent
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from coterie.algorithms import fltowers, sttfedrec
from coterie.algorithms.registry import algorithm
from coterie.algorithms.two_tower.batches import InputRows
from coterie.algorithms.two_tower.gradients import PairOfGradients
from coterie.algorithms.two_tower.item_requests import (
    client_content,
    draw_requests,
    look_up_vectors,
    user_inputs,
)
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
from coterie.types import Floats, Ints, Message

NO_ITEMS = np.empty(0, np.int32)
ITEMS_TIMED = 200
"""Items that an inference item by item is timed on; its time is scaled to the catalogue."""
REPEATS = 3
"""How often a part of a device's training is timed."""


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
    devices = len(cohort)
    times = np.zeros(devices)
    parts: list[TrainingParts] = []
    up = 0.0
    down = 0.0
    for exchange in federation.exchanges:
        if not isinstance(exchange, Exchange):
            state = rounds.relay(world, exchange, state, 0, engine)
            continue
        message = rounds.broadcast(world, exchange, state, cohort, 0, engine)
        for k in range(devices):
            one = message.to(np.array([k]))
            started = time.perf_counter()
            reply = exchange.client_update(engine.world, one, node)
            times[k] += time.perf_counter() - started
            assert not isinstance(reply, tuple)
            up += float(reply_sizes(reply).sum()) / devices
            down += float(message_size(one)) / devices
            if "tower" in one.common:
                parts.append(training_parts(name, engine.world, one, node))
        state, _ = rounds.play_exchange(world, exchange, state, cohort, 0, engine)
    inferring = inference(name, ready, federation, world, state, node)
    training = float(np.median(times))
    by_item = float(np.median([part.item_by_item for part in parts]))
    return {
        "training ms": milliseconds(training),
        "inference ms": milliseconds(inferring.batched),
        "total ms": milliseconds(training + inferring.batched),
        "training MB": (up + down) / 1e6,
        "inference MB": inferring.downloaded / 1e6,
        "total MB": (up + down + inferring.downloaded) / 1e6,
        "up MB": up / 1e6,
        "down MB": down / 1e6,
        "million multiplications": float(np.mean([p.multiplications for p in parts])) / 1e6,
        "forward and backward ms": milliseconds(float(np.median([p.batched for p in parts]))),
        "item by item ms": milliseconds(by_item),
        "encoding ms": milliseconds(float(np.median([part.encoding for part in parts]))),
        "inference item by item ms": milliseconds(inferring.item_by_item),
        "total item by item ms": milliseconds(by_item + inferring.item_by_item),
    }


def milliseconds(seconds: float) -> float:
    return round(seconds * 1e3, 3)


def is_naive(name: str) -> bool:
    """Whether a device trains both towers."""
    return name.startswith("fl-")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingParts:
    """What one device's training of a round consists of. Times are seconds."""

    multiplications: int
    batched: float
    item_by_item: float
    encoding: float


def training_parts(name: str, world: AnyWorld, message: Message, node: NodeData) -> TrainingParts:
    """Time the gradients and their encoding for the one device of a message."""
    if is_naive(name):
        batched = partial(fltowers.gradients, world, message, node)
        item_by_item = partial(fltowers.gradients, world, message, node, items_at_a_time=1)
    else:
        # A device of the split has no items to embed: it has one text, its user's.
        vectors = look_up_vectors(world, message, node)
        batched = partial(sttfedrec.gradients, world, vectors, node)
        item_by_item = batched
    return TrainingParts(
        multiplications=multiplications(name, world, message, node),
        batched=median_seconds(batched, REPEATS),
        item_by_item=median_seconds(item_by_item, REPEATS),
        encoding=median_seconds(partial(encoded, batched()), REPEATS),
    )


def encoded(gradients: PairOfGradients) -> tuple[Ints, Ints]:
    """Gradients in the new arrays of an update."""
    first = np.empty(tuple(gradients.first.shape), np.int32)
    second = np.empty(tuple(gradients.second.shape), np.int32)
    gradients.encode(first, second)
    return first, second


def multiplications(name: str, world: AnyWorld, message: Message, node: NodeData) -> int:
    """Multiplications of the forward passes of a message's devices (Section 4.3)."""
    settings = world.settings
    drawn = draw_requests(world, node, message.users, message.round)
    inputs = user_inputs(node, message, drawn)
    word_counts = inputs.source.rows.counts_of(inputs.rows).tolist()
    if is_naive(name):
        item_texts = client_content(node).items
        assert item_texts is not None
        word_counts += item_texts.rows.counts_of(drawn.items[drawn.valid]).tolist()
    of_text = partial(settings.kind.multiplications, settings.inputs, settings.widths)
    return sum(of_text(n_words) for n_words in word_counts)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Inference:
    """What a device needs for its ten best items."""

    batched: float
    """Seconds, all items in batches."""
    item_by_item: float
    """Seconds, one item after the other."""
    downloaded: float
    """Bytes."""


def inference(
    name: str,
    ready: Prepared,
    federation: AnyFederation,
    world: AnyWorld,
    state: Any,
    node: NodeData,
) -> Inference:
    """Time a device's ten best items, and count the bytes it downloads for that."""
    model = federation.model(world, state)
    assert isinstance(model, Directions)
    assert federation.client_model is not None
    user_rows = federation.client_model(world, state, node)["user_rows"][:1]
    one_user = Directions(user_rows, model.item_rows, model.units)
    content = world.content
    assert content is not None
    assert content.items is not None
    item_texts = InputRows(content.items, np.arange(world.n_items))
    some_items = np.arange(min(ITEMS_TIMED, world.n_items))
    some_texts = InputRows(content.items, some_items)
    towers = TowerOps(world.settings)

    def best_ten(scored: Directions) -> Ints:
        return best_items(scored.score(np.zeros(1, np.int32))[0], NO_ITEMS, 10)

    def naive() -> Ints:
        # The naive device runs the item tower itself, over every item.
        item_rows = towers.directions(state.item_tower, item_texts, content)
        return best_ten(Directions(one_user.user_rows, item_rows, one_user.units))

    def split() -> Ints:
        return best_ten(one_user)

    def naive_by_item() -> list[float]:
        item_rows = towers.directions(state.item_tower, some_texts, content, at_a_time=1)
        return cosines_by_item(user_rows[0], item_rows)

    def split_by_item() -> list[float]:
        return cosines_by_item(user_rows[0], model.unpacked()[some_items])

    scale = world.n_items / len(some_items)
    if is_naive(name):
        return Inference(
            batched=median_seconds(naive),
            item_by_item=median_seconds(naive_by_item, REPEATS) * scale,
            downloaded=item_bytes(ready),
        )
    return Inference(
        batched=median_seconds(split),
        item_by_item=median_seconds(split_by_item, REPEATS) * scale,
        downloaded=model.download,
    )


def cosines_by_item(user: Floats, items: Floats) -> list[float]:
    """The cosine of every item in a loop; all vectors have length one."""
    return [float(user @ item) for item in items]


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
