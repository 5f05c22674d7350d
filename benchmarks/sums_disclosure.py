"""What a server learns from FedALS, FedEASE and FedSLIM, in the clear and from sums. Prints JSON.

python benchmarks/sums_disclosure.py vectors lone mixed pairs whose

vectors     histories from FedALS vectors without item ids, for d = 16, 32, 64: share of the
            true number of items that is found, by length of the history
lone        users with an item that nobody else in their group has, by size of the group, and
            how much of their history FedALS's sums of that item then reveal
mixed       members of rings whose history FedALS's sums reveal exactly, by ring size and d
pairs       the same for FedEASE and FedSLIM, whose sums are the same
whose       users whose ring memberships of some rounds no other user has
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from tables import print_parts

from coterie.algorithms.registry import algorithm
from coterie.attacks.eavesdropper import Eavesdropper, Observation
from coterie.attacks.pursuit import LIKED, basis_pursuit, matching_pursuit
from coterie.attacks.ring_sums import ItemSums, lone_items, pair_histories, unmix
from coterie.attacks.solved_vectors import Equations, equations, whiten
from coterie.core import streams
from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.secagg.server import assign_rings
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context
from coterie.types import SCALE, Bools, Doubles, Floats, Ints, Longs

SIZES = (16, 32, 64)
RINGS = (5, 20, 50)
ROUNDS = 10
SAMPLE = 100
"""Users whose history is pursued."""
LENGTHS = ((0, 30), (30, 60), (60, 120), (120, 1 << 30))


class Played(NamedTuple):
    """FedALS in the clear, all users in every round."""

    users: Ints
    histories: Bools  # (users, items)
    items: list[Floats]  # Y of every round
    vectors: list[Doubles]  # X of every round
    alpha: float


def play(dataset: str, d: int, rounds: int = ROUNDS) -> Played:
    values = {"algorithm": "fedals", "dataset": dataset, "embedding_size": d, "seed": 0}
    ready = prepare(Experiment.of(values), None, SILENT)
    settings = federation_settings(ready.experiment.settings)
    world = trainer.world_of(ready.training, settings, 0)
    federation = algorithm("fedals").train
    assert isinstance(federation, Federation)
    seen: list[Observation] = []
    engine = Eavesdropper(LocalEngine.over(world, ready.training, 1), seen.append)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT), by_round=True)
    state = work.start()[0]
    for n in range(1, rounds + 1):
        state, _ = work.step(state, n)
    row, items = ready.training.positives.take(seen[0].users)
    histories = np.zeros((len(seen[0].users), world.n_items), bool)
    histories[row, items] = True
    return Played(
        seen[0].users,
        histories,
        [each.sent["item_rows"] for each in seen],
        [each.dense / SCALE for each in seen],
        float(world.settings.alpha),
    )


def drawn(played: Played) -> Longs:
    return streams.at(0, "attacked").permutation(len(played.users))[:SAMPLE]


def share_found(order: Longs, history: Bools) -> float:
    """Of the n first items, those in a history of n."""
    n = int(history.sum())
    first = order[:n]
    return float(history[first[first >= 0]].sum() / n)


def by_length(shares: list[float], lengths: Longs) -> dict[str, Any]:
    values = np.array(shares)
    parts = {"all": np.ones(len(values), bool)} | {
        f"{low} to {min(high, lengths.max() + 1) - 1}": (lengths >= low) & (lengths < high)
        for low, high in LENGTHS
    }
    return {
        name: {
            "users": int(which.sum()),
            "found": round(float(values[which].mean()), 3),
            "exact": round(float((values[which] == 1).mean()), 3),
        }
        for name, which in parts.items()
        if which.any()
    }


def vectors(dataset: str, seeds: int) -> dict[str, Any]:
    rows = {}
    for d in SIZES:
        played = play(dataset, d)
        for name, rounds in (("1", [0]), ("10", [9]), ("9 and 10", [8, 9])):
            rows[f"d = {d}, round {name}"] = attack_vectors(played, rounds)
    return {"part": "vectors", "dataset": dataset, "rows": rows}


def attack_vectors(played: Played, rounds: list[int]) -> dict[str, Any]:
    users = drawn(played)
    truth = played.histories[users]
    lengths = truth.sum(axis=1)
    items = [whiten(played.items[t]) for t in rounds]
    systems = [
        Equations.joined(
            [
                equations(each, played.vectors[t][u], played.alpha)
                for each, t in zip(items, rounds, strict=True)
            ]
        )
        for u in users
    ]
    scores = played.vectors[rounds[-1]][users] @ played.items[rounds[-1]].T.astype(np.float64)
    popular = np.argsort(-played.histories.sum(axis=0), kind="stable")
    orders = {
        "popular": [popular] * len(users),
        "scores": [np.argsort(-own, kind="stable") for own in scores],
        "matching pursuit": list(matching_orders(systems, int(lengths.max()))),
        "basis pursuit": [
            pursued_order(system, own) for system, own in zip(systems, scores, strict=True)
        ],
    }
    return {
        name: by_length(
            [share_found(order, own) for order, own in zip(each, truth, strict=True)], lengths
        )
        for name, each in orders.items()
    }


def matching_orders(systems: list[Equations], most: int) -> Iterator[Longs]:
    """In groups of users, for memory."""
    for first in range(0, len(systems), 20):
        yield from matching_pursuit(systems[first : first + 20], most)


def pursued_order(system: Equations, scores: Doubles) -> Longs:
    found = basis_pursuit(system, scores)
    likely = scores if found is None else found
    order: Longs = np.lexsort((-scores, likely <= LIKED))
    return order


def lone(dataset: str, seeds: int) -> dict[str, Any]:
    rows = {}
    for d in SIZES:
        played = play(dataset, d)
        n = len(played.users)
        for size in (*RINGS, n):
            rows[f"d = {d}, groups of {size}"] = attack_lone(played, size)
    return {"part": "lone", "dataset": dataset, "rows": rows}


def attack_lone(played: Played, size: int) -> dict[str, Any]:
    """After round 10, from the sums of round 10 alone."""
    items = whiten(played.items[-1])
    places = np.arange(len(played.users), dtype=np.int32)
    revealed: list[tuple[int, Longs, Longs]] = []
    for ring in assign_rings(places, size, 0, 0):
        counts = played.histories[ring].sum(axis=0)
        single = lone_items(counts)
        for u in ring.tolist():
            own = single[played.histories[u, single]]
            if len(own):
                revealed.append((u, own, counts))
    chosen = streams.at(0, "attacked").permutation(len(revealed))[:SAMPLE]
    shares = []
    for k in chosen.tolist():
        u, own, counts = revealed[k]
        # An item that nobody in the group has is in no history; a lone item is in this one.
        inside = np.flatnonzero((counts > 1) | np.isin(np.arange(len(counts)), own))
        x = played.vectors[-1][u]
        system = equations(items, x, played.alpha)
        system = system._replace(columns=system.columns[:, inside])
        scores = items.Y[inside] @ x
        known = np.flatnonzero(np.isin(inside, own))
        found = basis_pursuit(system, scores, known)
        likely = scores.copy() if found is None else found
        likely[known] = 1
        order = inside[np.lexsort((-scores, likely <= LIKED))]
        shares.append(share_found(order, played.histories[u]))
    return {
        "users with a lone item": len(revealed),
        "share": round(len(revealed) / len(played.users), 3),
        "attacked": len(shares),
        "found": round(float(np.mean(shares)), 3),
        "exact": round(float(np.mean(np.array(shares) == 1)), 3),
    }


def mixed(dataset: str, seeds: int) -> dict[str, Any]:
    rows = {}
    for d in SIZES:
        played = play(dataset, d, 1)
        for size in RINGS:
            rows[f"d = {d}, rings of {size}"] = attack_mixed(played, size)
    return {"part": "mixed", "dataset": dataset, "after": "round 1", "rows": rows}


def attack_mixed(played: Played, size: int) -> dict[str, Any]:
    places = np.arange(len(played.users), dtype=np.int32)
    exact = wrong = 0
    for ring in assign_rings(places, size, 0, 0):
        own = played.histories[ring]
        X = played.vectors[0][ring]
        products = np.stack([X[has].T @ X[has] for has in own.T])
        sums = ItemSums(own.sum(axis=0), products, own.T.astype(np.float64) @ X, X.T @ X)
        members = unmix(sums, len(ring))
        if members is None:
            continue
        true = {history.tobytes() for history in own}
        right = sum(history.tobytes() in true for history in members.histories)
        exact += right
        wrong += len(members.histories) - right
    return {"users": len(places), "exact": exact, "wrong": wrong}


def pairs(dataset: str, seeds: int) -> dict[str, Any]:
    played = play(dataset, 16, 1)
    places = np.arange(len(played.users), dtype=np.int32)
    rows = {}
    for size in (*RINGS, len(places)):
        first = after = 0
        for ring in assign_rings(places, size, 0, 0):
            own = played.histories[ring].astype(np.int64)
            single = lone_items(own.sum(axis=0))
            first += int((own[:, single].sum(axis=1) > 0).sum())
            found = {history.tobytes() for _, history in pair_histories(own.T @ own)}
            after += sum(np.flatnonzero(h).astype(np.int32).tobytes() in found for h in own)
        rows[f"groups of {size}"] = {
            "users": len(places),
            "with a lone item": first,
            "exact": after,
        }
    return {"part": "pairs", "dataset": dataset, "rows": rows}


def whose(dataset: str, seeds: int) -> dict[str, Any]:
    played = play(dataset, 16, 1)
    rows = {}
    for size in RINGS:
        memberships = np.empty((5, len(played.users)), np.int64)
        for t in range(5):
            for number, ring in enumerate(
                assign_rings(np.arange(len(played.users), dtype=np.int32), size, 0, t)
            ):
                memberships[t, ring] = number
        rows[f"rings of {size}"] = {
            f"after {t}": round(alone(memberships[:t]), 3) for t in range(1, 6)
        }
    return {"part": "whose", "dataset": dataset, "rows": rows}


def alone(memberships: Longs) -> float:
    """The share of users in whose rings nobody else was every time."""
    _, place, counts = np.unique(memberships, axis=1, return_inverse=True, return_counts=True)
    return float((counts[place.reshape(-1)] == 1).mean())


PARTS = {"vectors": vectors, "lone": lone, "mixed": mixed, "pairs": pairs, "whose": whose}

if __name__ == "__main__":
    print_parts(__doc__, PARTS)
