"""Cost of secure aggregation, and what it hides (STTFedRec, Figures 5 and 6). Prints JSON.

python benchmarks/secure_aggregation.py device cohort attack
python benchmarks/secure_aggregation.py attack --datasets ml-1m watson-articles

device    milliseconds and bytes of one client in a ring: DSSM's user tower alone, and with the
          gradients of the ring's items; shares as seeds, and as full vectors as in the paper
cohort    a round of K = 25, 50, 100, 200 clients, naive and split, with and without secure
          aggregation: bytes up and down per client, milliseconds of a client and of the servers
attack    precision and recall of an attacker who intersects requests, after 1, 5 and 20 rounds of
          a user, for the three kinds of request
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sttfedrec import prepared
from tables import print_parts

from coterie.algorithms import sttfedrec
from coterie.algorithms.two_tower import item_requests
from coterie.algorithms.two_tower.training import TowerOps
from coterie.attacks.requests import Request, by_gradients, repeated, score_claims
from coterie.core.progress import SILENT
from coterie.federated import rounds, trainer
from coterie.federated.engine import Engine
from coterie.federated.federation import ClientTask, NodeData, PrivateState, World
from coterie.federated.secagg.crypto import Uint64Array
from coterie.federated.secagg.ring_member import Neighbour, RingMember, RingTerms, ShareForm
from coterie.federated.trainer import Context
from coterie.federated.validation import Reply
from coterie.types import Message, Rows

K = (25, 50, 100, 200)
NAMES = ("fl-dssm", "sttfedrec-dssm", "fl-clsm", "sttfedrec-clsm")
AFTER = (1, 5, 20)


def device(dataset: str, seeds: int) -> dict[str, Any]:
    _, _, world, _ = prepared("sttfedrec-dssm", dataset)
    tower = TowerOps(world.settings).size
    lengths = {
        "user tower": tower,
        "user tower and gradients of 500 items": tower + 500 * world.settings.widths[-1],
    }
    forms: tuple[ShareForm, ...] = ("seed", "vector")
    return {
        "part": "device",
        "dataset": dataset,
        "bar ms": 20,
        "ms": {
            name: {form: member_ms(length, form) for form in forms}
            for name, length in lengths.items()
        },
        "bytes": {
            name: {form: passed_bytes(length, form) for form in forms}
            for name, length in lengths.items()
        },
    }


def member_ms(length: int, way: ShareForm, times: int = 20) -> float:
    """Milliseconds of all stages of one member; both neighbours stay, the update is ready."""
    seconds = []
    numbers: Uint64Array = np.random.default_rng(0).integers(0, 2**64, length, np.uint64)
    for t in range(times):
        before, member, after = (
            RingMember(user, RingTerms(t, 0, 0, length, way), lambda: numbers) for user in range(3)
        )
        ring = [Neighbour(each.user, each.advertise_keys()) for each in (before, member, after)]
        forward = before.distribute_shares(0, ring[2], ring[1])[0]
        back = after.distribute_shares(0, ring[1], ring[0])[1]
        began = time.perf_counter()
        member.advertise_keys()
        member.distribute_shares(0, ring[0], ring[2])
        member.upload(forward, back)
        member.unmask(True, True, ring[2])
        seconds.append(time.perf_counter() - began)
    return round(statistics.median(seconds) * 1e3, 2)


def passed_bytes(length: int, way: ShareForm) -> dict[str, int]:
    """Bytes that a member sends to its neighbours, and bytes of its upload."""
    before, member, after = (
        RingMember(user, RingTerms(0, 0, 0, length, way), lambda: np.zeros(length, np.uint64))
        for user in range(3)
    )
    ring = [Neighbour(each.user, each.advertise_keys()) for each in (before, member, after)]
    forward, back = member.distribute_shares(0, ring[0], ring[2])
    return {"passed on": len(forward) + len(back), "uploaded": 8 * length}


def cohort(dataset: str, seeds: int) -> dict[str, Any]:
    rows = {}
    for name in NAMES:
        for size in K:
            for protocol in ("none", "ring"):
                rows[f"{name}, K = {size}, {protocol}"] = round_costs(
                    name, dataset, users_per_round=size, secure_aggregation=protocol
                )
    return {"part": "cohort", "dataset": dataset, "rows": rows}


def round_costs(name: str, dataset: str, times: int = 2, **settings: Any) -> dict[str, float]:
    """Medians over some rounds after the first; clients run one after the other."""
    _, federation, world, engine = prepared(name, dataset, **settings)
    timed = TimedEngine(engine)
    work = trainer.federated_trainer(federation, world, timed, Context(0, SILENT))
    state = work.start()[0]
    measured = []
    for n in range(1, times + 2):
        timed.seconds = 0.0
        began = time.perf_counter()
        state, costs = work.step(state, n)
        server_seconds = time.perf_counter() - began - timed.seconds
        size = len(costs.users)
        assert costs.accepted == size
        traffic = (costs.bytes_up / size, costs.bytes_down / size)
        measured.append((timed.seconds / size, server_seconds, *traffic))
    columns = zip(*measured[1:], strict=True)
    client, servers, up, down = (statistics.median(column) for column in columns)
    return {
        "client ms": round(client * 1e3, 2),
        "servers ms": round(servers * 1e3, 1),
        "up MB": round(up / 1e6, 3),
        "down MB": round(down / 1e6, 3),
    }


@dataclass
class TimedEngine(Engine):
    """An engine that adds up the seconds of the clients.

    It has no `only_node`, so that every client computes its own update.
    """

    engine: Any
    seconds: float = field(default=0.0)

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        made: PrivateState = self.engine.gather(make)
        return made

    def call(self, exchange: ClientTask, message: Message) -> list[Reply]:
        began = time.perf_counter()
        replies: list[Reply] = self.engine.call(exchange, message)
        self.seconds += time.perf_counter() - began
        return replies


def attack(dataset: str, seeds: int) -> dict[str, Any]:
    modes = ("resampled", "sticky", "whole")
    return {
        "part": "attack",
        "dataset": dataset,
        "requests": {mode: attacked(dataset, mode) for mode in modes},
        "gradients": {
            f"{mode}, {protocol}": gradients_read(dataset, mode, protocol)
            for mode in modes
            for protocol in ("none", "ring")
        },
    }


def requested_slots(world: World, state: Any, t: int) -> np.ndarray:
    """Every client's requested items, as slots in the gradients that the servers exchange."""
    asked = sttfedrec.assign_slots(world, state, t).requested
    slots: np.ndarray = np.where(asked < 0, -1, sttfedrec.merge_slots(world, state, t)[0][asked])
    return slots


def gradients_read(
    dataset: str, mode: str, protocol: str, n_rounds: int = 5
) -> dict[str, float | None]:
    """The share of requests for which the attacker claims an item, and its precision."""
    ready, federation, world, engine = prepared(
        "sttfedrec-dssm", dataset, requests=mode, secure_aggregation=protocol
    )
    state = federation.init(world)
    positives = ready.training.positives
    claims = 0
    correct = 0
    requests = 0
    for t in range(n_rounds):
        cohort = federation.sample(world, state, t)
        state, _ = rounds.play_exchange(world, sttfedrec.REQUEST, state, cohort, t, engine, 0)
        clients = state.requesters
        requested = state.requested
        slots = requested_slots(world, state, t)
        state = rounds.relay(world, sttfedrec.SLOTS, state, t, engine)
        state, _ = rounds.play_exchange(world, sttfedrec.TRAIN, state, cohort, t, engine, 1)
        claimed = by_gradients(requested, slots, state.cut)
        claims += int((claimed >= 0).sum())
        requests += len(clients)
        pairs = zip(clients.tolist(), claimed.tolist(), strict=True)
        correct += sum(item in positives.of(user) for user, item in pairs)
        state = rounds.relay(world, sttfedrec.RETURN, state, t, engine)
    return {
        "claimed": round(claims / requests, 3),
        "precision": round(correct / claims, 3) if claims else None,
    }


def attacked(dataset: str, mode: str) -> dict[str, Any]:
    """Every user takes part in all twenty rounds, so that all send equally many requests."""
    ready, _, world, engine = prepared("sttfedrec-dssm", dataset, requests=mode)
    training = ready.training
    (node,) = engine.nodes
    users = np.flatnonzero(training.positives.counts).astype(np.int32)
    requests: list[Request] = []
    for t in range(max(AFTER)):
        updates = item_requests.request(world, Message(t, users, {}, {}), node)
        requests.append(Request(users, Rows(updates.offsets, updates.items)))
    figures: dict[str, Any] = {}
    for n in AFTER:
        claims = repeated(requests[:n], training.n_users, training.n_items)
        result = score_claims(claims, training.positives, users)
        figures[str(n)] = {
            "precision": None if np.isnan(result.precision) else round(result.precision, 3),
            "recall": round(result.recall, 4),
            "claims": round(result.claims, 2),
        }
    return figures


PARTS = {"device": device, "cohort": cohort, "attack": attack}


if __name__ == "__main__":
    print_parts(__doc__, PARTS, "ml-1m")
