"""What hiding costs, and what it hides (STTFedRec, Figures 5 and 6). Prints one JSON object per part.

python benchmarks/ring.py device cohort attack
python benchmarks/ring.py attack --datasets ml-1m watson-articles

device    milliseconds and bytes of one device's part in a ring: DSSM's user tower alone, and with the slopes of a ring's items;
          passing on seeds, and numbers as the paper does
cohort    a round of K = 25, 50, 100, 200 devices, naive and split, plain and in rings: bytes of a device both ways, milliseconds
          of a device and of the servers
attack    precision and recall of who intersects requests, after 1, 5 and 20 of a person's rounds, for the three ways to ask
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
from coterie.algorithms.two_tower.learning import Readers
from coterie.attacks.requests import Request, by_gradients, repeated, told
from coterie.core.progress import SILENT
from coterie.federated import rounds, trainer
from coterie.federated.federation import ClientTask, NodeData, PrivateState, World
from coterie.federated.secagg.crypto import Words
from coterie.federated.secagg.member import Member, Neighbour, Terms, Way
from coterie.federated.trainer import Context
from coterie.federated.validation import Reply
from coterie.types import Message, Rows

K = (25, 50, 100, 200)
NAMES = ("fl-dssm", "sttfedrec-dssm", "fl-clsm", "sttfedrec-clsm")
AFTER = (1, 5, 20)


def device(dataset: str, seeds: int) -> dict[str, Any]:
    _, _, world, _ = prepared("sttfedrec-dssm", dataset)
    tower = Readers(world.settings).size
    lengths = {
        "user tower": tower,
        "user tower and slopes of 500 items": tower + 500 * world.settings.widths[-1],
    }
    ways: tuple[Way, ...] = ("seed", "numbers")
    return {
        "part": "device",
        "dataset": dataset,
        "bar ms": 20,
        "ms": {
            name: {way: member_ms(length, way) for way in ways} for name, length in lengths.items()
        },
        "bytes": {
            name: {way: passed_bytes(length, way) for way in ways}
            for name, length in lengths.items()
        },
    }


def member_ms(length: int, way: Way, times: int = 20) -> float:
    """All stages of one member whose neighbours stay; its numbers are there."""
    found = []
    numbers: Words = np.random.default_rng(0).integers(0, 2**64, length, np.uint64)
    for t in range(times):
        before, me, after = (
            Member(user, Terms(t, 0, 0, length, way), lambda: numbers) for user in range(3)
        )
        there = [Neighbour(member.user, member.announce()) for member in (before, me, after)]
        forward = before.deal(0, there[2], there[1])[0]
        back = after.deal(0, there[1], there[0])[1]
        began = time.perf_counter()
        me.announce()
        me.deal(0, there[0], there[2])
        me.upload(forward, back)
        me.close(True, True, there[2])
        found.append(time.perf_counter() - began)
    return round(statistics.median(found) * 1e3, 2)


def passed_bytes(length: int, way: Way) -> dict[str, int]:
    """What a member passes to its neighbours, and what it uploads."""
    before, me, after = (
        Member(user, Terms(0, 0, 0, length, way), lambda: np.zeros(length, np.uint64))
        for user in range(3)
    )
    there = [Neighbour(member.user, member.announce()) for member in (before, me, after)]
    forward, back = me.deal(0, there[0], there[2])
    return {"passed on": len(forward) + len(back), "uploaded": 8 * length}


def cohort(dataset: str, seeds: int) -> dict[str, Any]:
    rows = {
        f"{name}, K = {size}, {secure_aggregation}": a_round(
            name, dataset, users_per_round=size, secure_aggregation=secure_aggregation
        )
        for name in NAMES
        for size in K
        for secure_aggregation in ("none", "ring")
    }
    return {"part": "cohort", "dataset": dataset, "rows": rows}


def a_round(name: str, dataset: str, times: int = 2, **more: Any) -> dict[str, float]:
    """Medians of some rounds; devices answer one after the other."""
    _, federation, world, engine = prepared(name, dataset, **more)
    timed = Timed(engine)
    work = trainer.federated_trainer(federation, world, timed, Context(0, SILENT))
    state = work.start()[0]
    found = []
    for n in range(1, times + 2):
        timed.seconds = 0.0
        began = time.perf_counter()
        state, costs = work.step(state, n)
        whole = time.perf_counter() - began
        size = len(costs.users)
        assert costs.accepted == size
        found.append(
            (
                timed.seconds / size,
                whole - timed.seconds,
                costs.bytes_up / size,
                costs.bytes_down / size,
            )
        )
    of_device, of_servers, up, down = (
        statistics.median(column) for column in zip(*found[1:], strict=True)
    )
    return {
        "device ms": round(of_device * 1e3, 2),
        "servers ms": round(of_servers * 1e3, 1),
        "up MB": round(up / 1e6, 3),
        "down MB": round(down / 1e6, 3),
    }


@dataclass
class Timed:
    """An engine that knows how long devices took. It is not `alone`: everybody's own update is made."""

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
        "slopes": {
            f"{mode}, {secure_aggregation}": gradients_read(dataset, mode, secure_aggregation)
            for mode in modes
            for secure_aggregation in ("none", "ring")
        },
    }


def slots_asked(world: World, state: Any, t: int) -> np.ndarray:
    """What every asker asked for, as the aggregation server numbers it when it hands slopes on."""
    asked = sttfedrec.assign_slots(world, state, t).asked
    numbers: np.ndarray = np.where(asked < 0, -1, sttfedrec.merge_slots(world, state, t)[0][asked])
    return numbers


def gradients_read(
    dataset: str, mode: str, secure_aggregation: str, n_rounds: int = 5
) -> dict[str, float | None]:
    """Of all requests of some rounds, which share is claimed, and how much of that is right."""
    ready, federation, world, engine = prepared(
        "sttfedrec-dssm", dataset, requests=mode, secure_aggregation=secure_aggregation
    )
    state = federation.init(world)
    positives = ready.training.positives
    claims = 0
    right = 0
    n = 0
    for t in range(n_rounds):
        cohort = federation.sample(world, state, t)
        state, _ = rounds.play_exchange(world, sttfedrec.REQUEST, state, cohort, t, engine, 0)
        askers = state.requesters
        asked = state.requested
        numbers = slots_asked(world, state, t)
        state = rounds.relay(world, sttfedrec.SLOTS, state, t, engine)
        state, _ = rounds.play_exchange(world, sttfedrec.TRAIN, state, cohort, t, engine, 1)
        found = by_gradients(asked, numbers, state.cut)
        claims = claims + int((found >= 0).sum())
        n = n + len(askers)
        right += sum(
            item in positives.of(user)
            for user, item in zip(askers.tolist(), found.tolist(), strict=True)
        )
        state = rounds.relay(world, sttfedrec.RETURN, state, t, engine)
    return {
        "claimed": round(claims / n, 3),
        "precision": round(right / claims, 3) if claims else None,
    }


def attacked(dataset: str, mode: str) -> dict[str, Any]:
    """Everybody takes part in twenty rounds, so that as much is heard of each."""
    ready, _, world, engine = prepared("sttfedrec-dssm", dataset, requests=mode)
    training = ready.training
    (node,) = engine.nodes
    users = np.flatnonzero(training.positives.counts).astype(np.int32)
    requests: list[Request] = []
    for t in range(max(AFTER)):
        updates = item_requests.request(world, Message(t, users, {}, {}), node)
        requests.append(Request(users, Rows(updates.offsets, updates.items)))
    found = {
        n: told(
            repeated(requests[:n], training.n_users, training.n_items), training.positives, users
        )
        for n in AFTER
    }
    return {
        n: {
            "precision": None if np.isnan(f.precision) else round(f.precision, 3),
            "recall": round(f.recall, 4),
            "claims": round(f.claims, 2),
        }
        for n, f in found.items()
    }


PARTS = {"device": device, "cohort": cohort, "attack": attack}


if __name__ == "__main__":
    print_parts(__doc__, PARTS, "ml-1m")
