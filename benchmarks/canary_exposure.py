"""What a hostile server learns about one user of a node by 1,000 crafted questions. Prints JSON.

    python benchmarks/canary_exposure.py
    python benchmarks/canary_exposure.py --questions 200 --users 20

A node with users of MovieLens-100K, one of whom is the canary. The server knows the node's code and
how many interactions each user has, and wants the canary's training items (`history`) and test item
(`held_out`). It asks questions of several kinds; each kind meets a node of its own, and begins the
run that suits it best of those that the node accepts. Every kind is asked under every setting of
the node:

    no limits       a policy that allows all that a policy can allow
    default         the default policy; the server chooses the terms
    noise           the default policy with evaluation_noise: 10 and no limit of evaluations
    invited         the default policy of a node that was invited to fcf under secagg
    strict          a policy with secure_aggregation: secagg and evaluation: no

`answered` counts replies that hold anything. `auc` is the area under the ROC curve of the server's
guess which items are in the history, 0.5 if it learned nothing; `claimed` the items that it is sure
of, and `right` those of them that are in the history. `by_popularity` is the AUC of a server that
asks nothing and guesses popular items.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import coterie
from coterie.core import streams
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import EnrolledUsers, FederationTerms
from coterie.deployment.node_data import split_of
from coterie.deployment.node_evaluation import KIND
from coterie.deployment.node_policy import INVITED, NodePolicy, policy_of, put_policy
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import ENROL, EVALUATE, TRAIN, NodeService
from coterie.deployment.private_terms import protection_of
from coterie.errors import CoterieError
from coterie.experiments.config import Experiment
from coterie.federated.nodes import write_message
from coterie.federated.wire import Malformed, decode
from coterie.types import JsonObject, Message

SIZE = 4
"""Width of rows."""
NDCG = "NDCG@10"
BLOCK = 9
"""Items above the test item, which then is among the first ten."""
ROUNDING = 0.01
"""How far two sums may be from what they would be without rounding."""
GROUP = 10
"""Users of the smallest group that the server enrols."""
SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "no limits": (
        {
            "questions_an_hour": 10**9,
            "questions_a_day": 10**9,
            "replays_a_day": 10**9,
            "evaluations_a_day": 10**9,
            "smallest_evaluation_group": 2,
        },
        "",
    ),
    "default": ({}, ""),
    "noise": ({"evaluation_noise": 10.0, "evaluations_a_day": 10**9}, ""),
    "invited": ({}, "secagg"),
    "strict": ({"secure_aggregation": "secagg", "evaluation": False}, ""),
}
"""Name -> the node's policy, and the protocol that it was invited to."""


@dataclass(slots=True)
class Learned:
    """What the server holds about the canary."""

    n_items: int
    sent: int = 0
    answered: int = 0
    scores: np.ndarray = field(default_factory=lambda: np.empty(0))
    """(items,) higher for items that are rather in the history."""
    claimed: set[int] = field(default_factory=set)
    held_out: int = -1

    def __post_init__(self) -> None:
        self.scores = np.zeros(self.n_items)


@dataclass(frozen=True, slots=True)
class Scene:
    """A node's interactions, and what everybody knows."""

    data: Interactions
    items: list[str]
    """The catalogue."""
    users: list[str]
    """The node's users; the canary is the first."""
    popularity: np.ndarray  # (items,) interactions of all users, also of other nodes

    @property
    def n_items(self) -> int:
        return len(self.items)


class HostileServer:
    """A server, and the node that it attacks."""

    def __init__(self, folder: Path, scene: Scene, policy: NodePolicy, invited: str) -> None:
        self.scene = scene
        store = NodeStore.create(folder / "node.db")
        store.put_interactions(scene.data)
        put_policy(store, policy)
        if invited:
            promised = self.terms("fcf", "promised", secure_aggregation=invited)
            store.put_meta(**{INVITED: protection_of(promised.experiment)})
        self.node = NodeService(store)
        self.node.set_seed()
        self.learned = Learned(scene.n_items)
        self.now: FederationTerms | None = None
        """The terms of the run that the node accepted."""

    def terms(self, algorithm: str, run: str, **settings: Any) -> FederationTerms:
        values = {
            "algorithm": algorithm,
            "dataset": "given.csv",
            "popularity_prior": 0.0,
            "embedding_size": SIZE,
            "rounds": 1000,
            "evaluate_every": 1,
            "headline": ["AUC", "NDCG"],
        }
        flat = Experiment.of(values | settings).flat()
        return FederationTerms(flat, self.scene.items, run)

    def begin(self, terms: FederationTerms, users: int | None = None) -> bool:
        """Begin a run with the first users of the node; returns whether the node takes part."""
        try:
            self.node.answer(ENROL, terms.to_json().encode())
            members = EnrolledUsers.of({"node": self.node.enrol(terms)})
            self.node.begin(terms, members.indices_for(self.scene.users[:users]))
        except (CoterieError, Malformed):
            return False
        self.now = terms
        return True

    def begin_any(self, *algorithms: str, users: int | None = None) -> bool:
        """Begin a run in the clear, or else under secure aggregation."""
        runs = [self.terms(name, f"plain {name}") for name in algorithms]
        runs.append(self.terms("fcf", "secure", secure_aggregation="secagg"))
        return any(self.begin(terms, users) for terms in runs)

    def users(self) -> np.ndarray:
        """The indices of the users that are enrolled."""
        return np.array(sorted(self.node.store.numbers()), np.int32)

    def canary(self) -> int:
        """The canary's index in the run."""
        numbers = self.node.store.numbers()
        return next(k for k, name in numbers.items() if name == self.scene.users[0])

    def ask(self, kind: str, message: Message) -> bytes | None:
        """Send a message; None if the node refuses it."""
        self.learned.sent += 1
        accepted = np.full(len(message.users), -1, np.int64)
        message = replace(message, own=message.own | {"accepted": accepted})
        try:
            return self.node.answer(kind, write_message(message))
        except (CoterieError, Malformed):
            return None

    def train(self, t: int, item_rows: np.ndarray, users: np.ndarray | None = None) -> None:
        """Send a model to train on, and look for the canary's update in the reply."""
        message = Message(t, self.users() if users is None else users, {"item_rows": item_rows}, {})
        reply = self.ask(TRAIN, message)
        if reply is None:
            return
        found = decode(reply).arrays
        self.learned.answered += 1
        if "offsets" not in found:
            return
        for k in np.flatnonzero(found["users"] == self.canary()):
            own = slice(*found["offsets"][[k, k + 1]])
            rows = found["item_rows"][own].astype(float)
            self.read_update(found["items"][own], rows)

    def read_update(self, items: np.ndarray, rows: np.ndarray) -> None:
        """An update of fcf: rows of the history are larger multiples of the user's vector."""
        along = rows @ rows.sum(axis=0)
        self.learned.scores[items] += along
        largest = float(along.max(initial=0.0))
        if largest > 0:
            self.learned.claimed |= set(items[along > largest / 2].tolist())

    def metrics(
        self,
        t: int,
        common: dict[str, np.ndarray],
        rows: np.ndarray | None = None,
        name: str = "AUC",
    ) -> float:
        """The sum of a metric over the enrolled users, of a made-up model; NaN without a report."""
        users = self.users()
        kind = b"factors"
        own = {}
        if rows is not None:
            own = {"user_rows": rows}
        elif self.now is not None and self.now.config["algorithm"] == "fcf":
            kind = b"private-factors"
        else:
            own = {"user_rows": np.zeros((len(users), SIZE), np.float32)}
        common = common | {KIND: np.frombuffer(kind, np.uint8)}
        reply = self.ask(EVALUATE, Message(t, users, common, own))
        if reply is None:
            return float("nan")
        sums = json.loads(reply)["sums"]
        if not sums:
            return float("nan")
        self.learned.answered += 1
        return float(sums[name])

    def unseen(self) -> list[int]:
        """How many items each of the enrolled users does not have, which the server knows."""
        loaded = self.node.load()
        _, split = split_of(loaded.terms, loaded.indices, self.node.store)
        return [
            self.scene.n_items - len(split.seen().of_users(np.array([user])).items)
            for user in self.users()
        ]

    def place_of_canary(self) -> int:
        return int(np.flatnonzero(self.users() == self.canary())[0])

    def shuffled(self, k: int) -> np.ndarray:
        """An order of all items, between 0 and 1, higher first."""
        drawn = streams.at(0, "canary orders", k).permutation(self.scene.n_items)
        return drawn / self.scene.n_items


# ---- kinds of questions


def one_row(server: HostileServer, n: int, others: float = 0.0) -> None:
    """Models whose item rows are zero, or nearly, but one."""
    server.begin_any("fcf")
    for t in range(n):
        rows = np.full((server.scene.n_items, SIZE), others, np.float32)
        rows[t] = 1
        server.train(t, rows)


def nearly_one_row(server: HostileServer, n: int) -> None:
    one_row(server, n, others=1e-2)


def honest_rows(server: HostileServer, k: int) -> np.ndarray:
    drawn = streams.at(0, "canary rows", k).normal(0, 0.1, (server.scene.n_items, SIZE))
    return np.asarray(drawn, np.float32)


def one_user(server: HostileServer, n: int) -> None:
    """The canary alone, in every round."""
    server.begin_any("fcf")
    for t in range(n):
        if server.now is not None:
            server.train(t, honest_rows(server, t), np.array([server.canary()], np.int32))


def replayed_round(server: HostileServer, n: int) -> None:
    """The first round again and again, with other models."""
    server.begin_any("fcf")
    for k in range(n):
        server.train(0, honest_rows(server, k))


def other_algorithm(server: HostileServer, n: int) -> None:
    """The node enrols for one algorithm; then the terms of the same run name another."""
    agreed = server.terms("fcf", "agreed", secure_aggregation="secagg")
    server.begin(agreed)
    for k in range(n):
        server.begin(replace(server.terms("fcf", "agreed"), run="agreed"))
        server.train(k, honest_rows(server, k))


def plain_run(server: HostileServer, n: int) -> None:
    """After a run under secure aggregation, new ones in the clear, a message each."""
    server.begin(server.terms("fcf", "secure", secure_aggregation="secagg"))
    for k in range(n):
        server.begin(server.terms("fcf", f"plain {k}"))
        server.train(0, honest_rows(server, k))


def plain_message(server: HostileServer, n: int) -> None:
    """Messages in the clear in a run under secure aggregation."""
    server.begin(server.terms("fcf", "secure", secure_aggregation="secagg"))
    for t in range(n):
        server.train(t, honest_rows(server, t))


def differing_groups(server: HostileServer, n: int) -> None:
    """Evaluations of all users, and of all but the canary: every user ranks in the same order."""
    terms = server.terms("fcf", "plain fcf")
    if not server.begin(terms):
        terms = server.terms("fcf", "secure", secure_aggregation="secagg")
    zeros = np.zeros((server.scene.n_items, SIZE), np.float32)
    users = server.scene.users
    guessed = np.zeros(server.scene.n_items)
    for t in range(n // 2):
        order = server.shuffled(t).astype(np.float32)
        found = []
        for k, listed in enumerate((users, users[1:])):
            # Somebody who is not listed any more is not enrolled: the server says who is.
            server.node.store.connection.execute("update person set number = null")
            members = EnrolledUsers.of({"node": server.node.enrol(terms)})
            server.node.begin(terms, members.indices_for(listed))
            server.now = terms
            common = {"item_rows": zeros, "item_bias": order}
            found.append(server.metrics(2 * t + k, common))
        difference = found[0] - found[1]
        if 0 < difference < 1:
            # The test item is that far up in the canary's order.
            guessed -= np.abs(order - difference)
    if guessed.any():
        server.learned.held_out = int(guessed.argmax())


def model_for_the_canary(server: HostileServer, n: int) -> None:
    """Rows of users, too: the canary ranks in an order that the server chooses, others in one that
    never changes. First the test item is found; then, how many items of a set are in the history:
    those above the test item that do not move it down."""
    if not server.begin_any("fedfast", users=GROUP):
        return
    limit = policy_of(server.node.store).evaluations_a_day
    probe = CanaryProbe(server, min(n, limit))
    probe.find_held_out()
    if server.learned.held_out >= 0:
        probe.find_history()


@dataclass(slots=True)
class CanaryProbe:
    """Questions whose answers differ by the canary's metric alone."""

    server: HostileServer
    left: int
    t: int = 0
    others: float = float("nan")
    """The sum of NDCG over all but the canary, which never changes."""

    def ask(self, order: np.ndarray, name: str) -> float:
        """The sum of a metric if the canary ranks in this order, higher first."""
        if not self.left:
            return float("nan")
        self.left -= 1
        users = self.server.users()
        rows = np.zeros((len(users), SIZE), np.float32)
        rows[:, 1] = 1
        rows[users == self.server.canary()] = [1, 0, 0, 0]
        n = self.server.scene.n_items
        items = np.zeros((n, SIZE), np.float32)
        items[:, 0] = order
        items[:, 1] = np.arange(n) / n
        bias = np.zeros(n, np.float32)
        self.t += 1
        common = {"item_rows": items, "item_bias": bias}
        return self.server.metrics(self.t, common, rows, name)

    def find_held_out(self) -> None:
        """In many random orders, the metric follows the place of the test item."""
        orders = []
        found = []
        for k in range(min(40, self.left // 2)):
            order = self.server.shuffled(k)
            orders.append(order)
            found.append(self.ask(order, "AUC"))
        if not found or np.isnan(found).any():
            return
        above = np.array(orders) - np.mean(orders, axis=0)  # (questions, items)
        follows = above.T @ (np.array(found) - np.mean(found))  # (items,)
        self.server.learned.held_out = int(follows.argmax())

    def find_history(self) -> None:
        """Ask for blocks of items, popular ones first, and halve those with some of the history."""
        # The test item on top: the canary's NDCG is 1.
        self.others = self.ask(self.above([]), NDCG) - 1
        ranked = np.argsort(-self.server.scene.popularity, kind="stable").tolist()
        ranked.remove(self.server.learned.held_out)
        blocks = [ranked[first : first + BLOCK] for first in range(0, len(ranked), BLOCK)]
        # Blocks get two thirds of the questions, and what is left goes to halves.
        waiting = []
        for block in blocks[: 2 * self.left // 3]:
            found = self.count(block)
            if found is not None:
                waiting.append((block, found))
        while waiting:
            items, count = waiting.pop(0)
            self.server.learned.scores[items] = count / len(items)
            if count >= len(items):
                self.server.learned.claimed |= set(items)
            elif count > 0 and self.left:
                half = items[: len(items) // 2]
                first = self.count(half)
                if first is not None:
                    waiting.append((half, first))
                    waiting.append((items[len(half) :], count - first))

    def above(self, items: list[int]) -> np.ndarray:
        """An order with these items above the test item, and all others below."""
        order = np.zeros(self.server.scene.n_items)
        order[self.server.learned.held_out] = 1
        order[items] = 2
        return order

    def count(self, items: list[int]) -> int | None:
        """How many of these items are in the history; None if the answer does not tell.

        Those that are not are above the test item, and give it a rank: NDCG is 1 / log2(1 + rank).
        """
        own = self.ask(self.above(items), NDCG) - self.others
        if not 0 < own <= 1.01:
            return None
        rank = round(2 ** (1 / own) - 1)
        return min(max(len(items) - (rank - 1), 0), len(items))


def item_by_item(server: HostileServer, n: int) -> None:
    """One item on top, for a group of ten. A user who does not have it loses half a place: half of
    one of the items that the user does not have, whose number differs from user to user."""
    if not server.begin_any("fedfast", users=GROUP):
        return
    n_items = server.scene.n_items
    zeros = np.zeros((n_items, SIZE), np.float32)
    losses = [0.5 / (unseen - 1) for unseen in server.unseen()]
    place = server.place_of_canary()
    subsets = np.array(list(itertools.product([0, 1], repeat=len(losses))))  # 1: has the item
    lost = (1 - subsets) @ np.array(losses)
    base = server.metrics(1, {"item_rows": zeros, "item_bias": np.zeros(n_items, np.float32)})
    # Popular items first: they are rather in the history.
    for t, item in enumerate(np.argsort(-server.scene.popularity, kind="stable")[: n - 1].tolist()):
        bias = np.zeros(n_items, np.float32)
        bias[item] = 1
        found = server.metrics(t + 2, {"item_rows": zeros, "item_bias": bias})
        if np.isnan(found) or np.isnan(base):
            continue
        # Of those who have the item, whose losses are missing? All answers that fit must agree.
        fits = np.abs(lost - (base - found)) <= ROUNDING
        has = subsets[fits, place]
        if len(has) and has.min() == has.max():
            server.learned.scores[item] = 1 if has[0] else -1
            server.learned.claimed |= {item} if has[0] else set()


Questions = Callable[[HostileServer, int], None]
KINDS: dict[str, tuple[Questions, float]] = {
    "item rows zero but one": (one_row, 0.04),
    "item rows nearly zero but one": (nearly_one_row, 0.04),
    "the canary alone": (one_user, 0.04),
    "a round again with other models": (replayed_round, 0.04),
    "another algorithm in the same run": (other_algorithm, 0.04),
    "new runs without secure aggregation": (plain_run, 0.04),
    "plain messages under secure aggregation": (plain_message, 0.04),
    "evaluation groups that differ by the canary": (differing_groups, 0.04),
    "evaluation of models made for the canary": (model_for_the_canary, 0.4),
    "evaluation item by item": (item_by_item, 0.28),
}
"""Name -> how the server asks, and its share of all questions."""


# ---- what the server learned


@dataclass(frozen=True, slots=True)
class Truth:
    history: np.ndarray  # (items,) bool
    held_out: int

    @classmethod
    def of(cls, server: HostileServer) -> Truth:
        """The canary's history and test item, by the split that all terms have."""
        terms = server.terms("fcf", "truth")
        members = EnrolledUsers.of({"node": NodeService(server.node.store).enrol(terms)})
        indices = members.indices_for(server.node.store.users())
        _, split = split_of(terms, indices, server.node.store)
        user = np.array([indices.numbers[server.scene.users[0]]])
        history = np.zeros(server.scene.n_items, bool)
        history[split.seen().of_users(user).items] = True
        return cls(history, int(split.test.rows.of_users(user).items[0]))


def auc(scores: np.ndarray, relevant: np.ndarray) -> float:
    """The share of pairs, an item of the history and another one, in the right order."""
    good = scores[relevant]
    bad = scores[~relevant]
    above = (good[:, None] > bad[None, :]).mean()
    return float(above + 0.5 * (good[:, None] == bad[None, :]).mean())


def exposure(learned: Learned, truth: Truth) -> JsonObject:
    right = [item for item in learned.claimed if truth.history[item]]
    return {
        "sent": learned.sent,
        "answered": learned.answered,
        "auc": round(auc(learned.scores, truth.history), 3),
        "claimed": len(learned.claimed),
        "right": len(right),
        "held_out_found": learned.held_out == truth.held_out,
    }


def measure(
    scene: Scene,
    questions: int,
    settings: Iterable[str] = SETTINGS,
    kinds: Iterable[str] = KINDS,
) -> Iterator[JsonObject]:
    """One record for each setting of the node and kind of question."""
    with tempfile.TemporaryDirectory() as folder:
        truth = Truth.of(HostileServer(Path(folder), scene, NodePolicy(), ""))
    popular = round(auc(scene.popularity, truth.history), 3)
    for name in settings:
        rules, invited = SETTINGS[name]
        for kind in kinds:
            ask, share = KINDS[kind]
            with tempfile.TemporaryDirectory() as folder:
                server = HostileServer(Path(folder), scene, NodePolicy.of(rules), invited)
                ask(server, round(share * questions))
                found = exposure(server.learned, truth)
                server.node.store.close()
            in_all = int(truth.history.sum())
            yield {
                "node": name,
                "questions": kind,
                **found,
                "history": in_all,
                "by_popularity": popular,
            }


def scene_of(data: Interactions, n: int) -> Scene:
    """A node with n users: a canary with a history of middling length, and the first others."""
    counts = np.bincount(data.users, minlength=data.n_users)
    canary = int(np.argsort(counts, kind="stable")[data.n_users // 2])
    others = [user for user in range(data.n_users) if user != canary]
    chosen = [canary, *others[: n - 1]]
    rows = data.select(np.isin(data.users, chosen))
    return Scene(
        Interactions.from_columns(
            [str(name) for name in data.user_ids[rows.users]],
            [str(name) for name in data.item_ids[rows.items]],
            None,
            rows.times,
        ),
        [str(item) for item in data.item_ids],
        [str(data.user_ids[user]) for user in chosen],
        np.bincount(data.items, minlength=data.n_items),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--users", type=int, default=30)
    given = parser.parse_args()
    scene = scene_of(coterie.load("ml-100k"), given.users)
    for found in measure(scene, given.questions):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
