"""Costs of one client in training: messages, bytes, seconds, and the download of the model.

Bytes in the clear are those that training counted. Bytes under secure aggregation are computed from
the length of the summed vector: a simulated group would have the ciphers of all clients to compute.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from importlib import util
from typing import Any, NamedTuple

import numpy as np

from coterie.core.records import Record
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.experiments.history import TrainingHistory
from coterie.experiments.masking_work import MaskingWork, masking_work
from coterie.federated import rounds, simulated_private_state
from coterie.federated.costs import Costs
from coterie.federated.federation import AnyExchange, AnyFederation, AnyWorld, Exchange
from coterie.federated.secagg.client_bytes import ClientBytes, Summed, summed_length
from coterie.federated.secagg.crypto import expand, new_seed
from coterie.federated.secagg.server import PROTOCOLS
from coterie.federated.secagg.summed_vector import flat_vector, summed_rows
from coterie.models.recommender import Recommender
from coterie.types import Message, Updates

TIMED = 15
"""Clients that are timed, one after the other."""
SECONDS_OF_TIMING = 3.0
"""No further client is timed after this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCosts:
    """What the average client does and sends in the whole training."""

    messages: float
    """Messages that it replies to."""
    bytes_up: float
    bytes_down: float
    model_bytes: int
    """Downloaded once, to rank items on the client."""
    seconds: float
    """Median time of a client for one message, on this machine."""

    @property
    def total_bytes(self) -> float:
        return self.bytes_up + self.bytes_down + self.model_bytes


def client_costs(
    federation: AnyFederation,
    world: AnyWorld,
    training: TrainingSet,
    state: Record,
    history: TrainingHistory,
    model: Recommender,
    counting: Costs | None = None,
) -> ClientCosts:
    """Costs by the history of a training in the clear; `world` says what would be protected.

    `counting` is what it cost to count items before training, if they were. It is in the history.
    """
    members = np.flatnonzero(world.members)
    selections = float(history.selections[members].mean())
    before = federation.setup(world)
    messages = (
        selections * len(_exchanges(federation)) + (before is not None) + (counting is not None)
    )
    bytes_up = history.bytes_up / len(members)
    bytes_down = history.bytes_down / len(members)
    sent = list(_messages(federation, world, training, state))
    if world.settings.secure_aggregation != "none":
        protected = _protected_bytes(sent)
        bytes_up = selections * protected.up
        bytes_down = selections * protected.down
        if counting is not None:
            bytes_up += counting.bytes_up / len(members)
            bytes_down += counting.bytes_down / len(members)
    return ClientCosts(
        messages=messages,
        bytes_up=bytes_up,
        bytes_down=bytes_down,
        model_bytes=model_bytes(model),
        seconds=statistics.mean(_seconds(one) for one in sent),
    )


def client_seconds(
    federation: AnyFederation, world: AnyWorld, training: TrainingSet, state: Record
) -> float:
    """The median client's time for one message, on this machine; the mean of a round's messages."""
    return statistics.mean(map(_seconds, _messages(federation, world, training, state)))


def secure_round_bytes(
    federation: AnyFederation, world: AnyWorld, training: TrainingSet, state: Record
) -> ClientBytes:
    """Bytes of a client in one round under secure aggregation, without dropouts."""
    return _protected_bytes(_messages(federation, world, training, state))


def model_bytes(model: Recommender) -> int:
    """The model without the rows of users."""
    arrays = model.shared_arrays()
    return sum(array.nbytes for name, array in arrays.items() if name != "user_rows")


class _Sent(NamedTuple):
    """A message of a round to a few clients, and what they need to reply."""

    exchange: AnyExchange
    world: AnyWorld
    engine: LocalEngine
    message: Message
    n_clients: int
    """Clients of the whole round."""
    summed: Summed | None
    """What secure aggregation sums; None in the clear."""


def _protected_bytes(sent: Iterable[_Sent]) -> ClientBytes:
    """Bytes of these messages under secure aggregation."""
    up = 0
    down = 0
    for one in sent:
        assert one.summed is not None
        protocol = PROTOCOLS[one.world.settings.secure_aggregation]
        client = protocol.client_bytes(one.world, one.n_clients, one.summed)
        up += client.up
        down += client.down
    return ClientBytes(up, down)


def _exchanges(federation: AnyFederation) -> list[AnyExchange]:
    return [exchange for exchange in federation.exchanges if isinstance(exchange, Exchange)]


def _messages(
    federation: AnyFederation, world: AnyWorld, training: TrainingSet, state: Any
) -> Iterator[_Sent]:
    """The messages of a round, to clients that are spread over all members."""
    members = np.flatnonzero(world.members).astype(np.int32)
    places = np.unique(np.linspace(0, len(members) - 1, TIMED).astype(np.int64))
    cohort = members[places]
    engine = LocalEngine.over(world, training, 1)
    # As many as in the first round: the state may be that of the end of a training.
    n_clients = len(federation.sample(world, federation.init(world).without_private(), 0))
    for number, exchange in enumerate(_exchanges(federation)):
        message = rounds.broadcast(world, exchange, state, cohort, 0, engine)
        rows = simulated_private_state.rows_of(state, cohort)
        message = replace(message, exchange=number, private_state=rows)
        summed = None
        if world.settings.secure_aggregation != "none":
            sizes = exchange.sizes(world, state.as_seen_by(exchange.role))
            summed = Summed(
                message,
                summed_length(engine.world, exchange, message, sizes),
                exchange.secure_sum.word(world) if exchange.secure_sum else 64,
                sizes.user_width if exchange.visible else None,
            )
        yield _Sent(exchange, world, engine, message, n_clients, summed)


def _seconds(sent: _Sent) -> float:
    """The median client's time to reply, masking included where the packages are installed."""
    work = MaskingWork(0.0, 0)
    if sent.summed is not None and masking_is_timed():
        work = masking_work(sent.world, sent.n_clients)
    # The first call may compile a kernel, and is not counted.
    _reply(sent, 0, work.masks)
    times: list[float] = []
    for k in range(len(sent.message.users)):
        began = time.perf_counter()
        _reply(sent, k, work.masks)
        times.append(time.perf_counter() - began)
        if sum(times) > SECONDS_OF_TIMING:
            break
    return statistics.median(times) + work.seconds


def _reply(sent: _Sent, k: int, masks: int) -> None:
    """All that client k computes for its reply, but for the keys and shares of its masks."""
    world = sent.engine.world
    one = sent.message.to(np.array([k]))
    result = sent.exchange.client_update(world, one, sent.engine.nodes[0])
    if sent.summed is None:
        return
    updates = result if isinstance(result, Updates) else result[0]
    rows = summed_rows(world, sent.exchange, 0, world.n_items, None)
    vector = flat_vector(world, sent.exchange, one, updates, rows)
    for _ in range(masks):
        vector = vector + expand(new_seed(), len(vector), sent.summed.word)


def masking_is_timed() -> bool:
    """Whether the packages of secure aggregation are installed."""
    return util.find_spec("cryptography") is not None
