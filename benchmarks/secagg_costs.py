"""What `secagg` costs: a client, a group, a round, and the bytes of a union of rows. Prints JSON.

    python benchmarks/secagg_costs.py
    python benchmarks/secagg_costs.py client group round --repeat 9

client   milliseconds of one client among 100, and its bytes beside a plain upload: DSSM's user
         tower, 331,264 numbers in words of 32 bits. Other clients are on other nodes
group    seconds of 100 such clients and their server in one process on one core
round    seconds of a round of FedAvg with 95 users of MovieLens-100K, training included: plain,
         ring, and secagg with 20 and with 50 holders, one after the other in each repetition
union    bytes that a client of a group of 50 sends with group_rows=union and all, FedAvg with 16
         factors, and the share of its rows that it alone touched: MovieLens-1M, Pinterest, and
         100,000 synthetic items

Use one thread: OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1. Times are medians of the repetitions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import coterie
from coterie.algorithms import fedavg
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.secagg import group_stages
from coterie.federated.secagg.group import Group
from coterie.federated.secagg.group_member import (
    GroupMember,
    GroupTerms,
    Hosted,
    mask_vectors,
)
from coterie.federated.secagg.identity import SimulatedIdentities
from coterie.federated.secagg.stages import GROUP_STAGES
from coterie.federated.trainer import Context
from coterie.types import Rows

TOWER = 331_264
"""Numbers in DSSM's user tower."""
SHORT = dict(zip(("advertise", "share", "upload", "agree", "unmask"), GROUP_STAGES, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"PART is {min(unknown)!r}; expected one of {', '.join(PARTS)}")
    for part in given.parts or PARTS:
        print(json.dumps({"part": part} | PARTS[part](given.repeat)), flush=True)


# One client, and one group


@dataclass
class Clients:
    """The clients of a group. The time and bytes of client 0 are counted."""

    terms: GroupTerms
    on_one_node: bool = False
    """Whether client 0 is on the node of the others; it has one of its own otherwise."""
    members: dict[int, GroupMember] = field(default_factory=dict)
    seconds: float = 0.0
    bytes_up: int = 0

    def __post_init__(self) -> None:
        identities = SimulatedIdentities(1)
        public = {user: identities.public(user) for user in self.terms.users}
        keys = {user: key for user, key in public.items() if key is not None}
        numbers = np.random.default_rng(0).integers(0, 1 << 20, self.terms.length, np.uint32)
        others = Hosted()
        for user in self.terms.users:
            hosted = others if user or self.on_one_node else Hosted()
            own = identities.own(user)
            self.members[user] = GroupMember(
                user, self.terms, own, keys, lambda: numbers, hosted=hosted
            )

    def send(self, stage: str, out: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        replies = {}
        if 0 in out:
            began = time.perf_counter()
            replies[0] = getattr(self.members[0], stage)(*out[0])
            self.seconds += time.perf_counter() - began
            arrays = group_stages.to_server(SHORT[stage], [replies[0]], [self.members[0].holders])
            self.bytes_up += sum(array.nbytes for array in arrays.values())
        others = [user for user in out if user]
        if stage == "upload":
            return replies | self.uploads(others, out)
        for user in others:
            replies[user] = getattr(self.members[user], stage)(*out[user])
        return replies

    def uploads(self, users: list[int], out: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """As a node does it that hosts all other clients."""
        members = [self.members[user] for user in users]
        for member in members:
            member.receive_shares(*out[member.user])
        vectors = np.stack([member.checked_vector() for member in members])
        mask_vectors(members, vectors)
        return dict(zip(users, vectors, strict=True))


def tower_terms(holders: int) -> GroupTerms:
    return GroupTerms("a benchmark", tuple(range(100)), holders, 2, TOWER, 32, b"")


def client(repeat: int) -> dict[str, Any]:
    found = {}
    for holders in (20, 50):
        milliseconds = []
        for _ in range(repeat):
            clients = Clients(tower_terms(holders))
            Group(clients.terms, clients.send).aggregate()
            milliseconds.append(clients.seconds * 1e3)
        found[f"k = {holders}"] = {
            "ms": round(statistics.median(milliseconds), 1),
            "times the plain upload": round(clients.bytes_up / (4 * TOWER), 4),
        }
    return found | {"bar": "60 ms and 1.1 with k = 20"}


def group(repeat: int) -> dict[str, Any]:
    """All clients on one node, as in a simulation; keys of the group are new every time."""
    found: dict[str, Any] = {}
    for holders in (20, 50):
        seconds = []
        for _ in range(repeat):
            terms = tower_terms(holders)
            clients = Clients(terms, on_one_node=True)
            began = time.perf_counter()
            Group(terms, lambda stage, out, c=clients: simulated(c, stage, out)).aggregate()
            seconds.append(time.perf_counter() - began)
        found[f"k = {holders}"] = round(statistics.median(seconds), 2)
    return {"seconds": found, "bar": 3}


def simulated(clients: Clients, stage: str, out: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
    if stage == "upload":
        return clients.uploads(list(out), out)
    return {user: getattr(clients.members[user], stage)(*out[user]) for user in out}


# A round of FedAvg


def fedavg_round(repeat: int) -> dict[str, Any]:
    training = split(coterie.load("ml-100k"), "leave-one-out", 0.2, seed=0).training()
    protocols: dict[str, dict[str, Any]] = {
        "none": {"secure_aggregation": "none"},
        "ring": {"secure_aggregation": "ring"},
        "secagg, k = 20": {"secure_aggregation": "secagg", "holders": 20},
        "secagg, k = 50": {"secure_aggregation": "secagg", "holders": 50},
    }
    steps = {name: stepping(training, settings) for name, settings in protocols.items()}
    seconds: dict[str, list[float]] = {name: [] for name in protocols}
    for number in range(1, repeat + 2):
        for name, step in steps.items():
            began = time.perf_counter()
            n = step(number)
            if number > 1:
                seconds[name].append(time.perf_counter() - began)
    medians = {name: round(statistics.median(each), 3) for name, each in seconds.items()}
    return {"users": n, "seconds": medians, "bar": 0.4}


def stepping(training: TrainingSet, changes: dict[str, Any]) -> Callable[[int], int]:
    """A function that plays one round and returns how many clients count."""
    algorithm = fedavg.ALGORITHM
    settings = algorithm.settings.of({"participation": 0.1, "rounds": 100} | changes)
    world = trainer.world_of(training, settings, 0)
    engine = LocalEngine.over(world, training, 1)
    work = trainer.federated_trainer(algorithm.train, world, engine, Context(0, SILENT))
    state = [work.start()[0]]

    def step(number: int) -> int:
        state[0], costs = work.step(state[0], number)
        return int(costs.accepted)

    return step


# The union of rows


def union(repeat: int) -> dict[str, Any]:
    cases = {
        "ml-1m": split(coterie.load("ml-1m"), "leave-one-out", 0.2, seed=0).training(),
        "pinterest": split(coterie.load("pinterest"), "leave-one-out", 0.2, seed=0).training(),
        "100,000 items": many_items(50, 100_000),
    }
    return {name: union_bytes(training) for name, training in cases.items()}


def many_items(n_users: int, n_items: int) -> TrainingSet:
    """Users with 20 to 200 interactions with items of a long tail (Zipf)."""
    rng = np.random.default_rng(0)
    histories = [
        np.unique(np.minimum(rng.zipf(1.2, size) - 1, n_items - 1))
        for size in rng.integers(20, 200, n_users)
    ]
    users = np.repeat(np.arange(n_users, dtype=np.int32), [len(each) for each in histories])
    items = np.concatenate(histories).astype(np.int32)
    rows = Rows.build(users, items, n_users)
    return TrainingSet(n_users, n_items, rows, rows, None)


def union_bytes(training: TrainingSet) -> dict[str, Any]:
    """Bytes that a client of a group of 50 sends, for FedAvg with 16 factors."""
    sent = {}
    for rows in ("all", "union"):
        settings = {
            "secure_aggregation": "secagg",
            "group_size": 50,
            "group_rows": rows,
            "participation": 50 / training.n_users,
            "embedding_size": 16,
        }
        settings = fedavg.ALGORITHM.settings.of({"rounds": 1} | settings)
        world = trainer.world_of(training, settings, 0)
        engine = LocalEngine.over(world, training, 1)
        work = trainer.federated_trainer(fedavg.ALGORITHM.train, world, engine, Context(0, SILENT))
        _, costs = work.step(work.start()[0], 1)
        sent[rows] = costs.bytes_up / costs.accepted
    shares = alone_in_group(training)
    return {
        "items": training.n_items,
        "MB, all": round(sent["all"] / 1e6, 3),
        "MB, union": round(sent["union"] / 1e6, 3),
        "union / all": round(sent["union"] / sent["all"], 3),
        "share of a client's rows that it alone touched": round(shares, 3),
    }


def alone_in_group(training: TrainingSet) -> float:
    """The rows that a client tells a server if it drops out between the two phases.

    They are in the union, and the sum of their values is zero. FedAvg's clients touch the items of
    their history and four negatives for each.
    """
    settings = fedavg.ALGORITHM.settings.of({"embedding_size": 16})
    world = trainer.world_of(training, settings, 0)
    engine = LocalEngine.over(world, training, 1)
    users = np.random.default_rng(0).permutation(np.flatnonzero(world.members))[:50]
    state = fedavg.ALGORITHM.train.init(world)
    message = fedavg.EXCHANGE.broadcast(world, state, np.sort(users).astype(np.int32), 0)
    updates = fedavg.EXCHANGE.client_update(engine.world, message, engine.nodes[0])
    clients = np.bincount(updates.items, minlength=training.n_items)
    alone = clients[updates.items] == 1
    owner = np.repeat(np.arange(len(updates)), np.diff(updates.offsets))
    by_client = np.bincount(owner, alone) / np.maximum(np.diff(updates.offsets), 1)
    return float(by_client.mean())


PARTS = {"client": client, "group": group, "round": fedavg_round, "union": union}


if __name__ == "__main__":
    main()
