"""The page's client of FedALS against Python: what it sends, and its lists."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from javascript import answered, needs_node, numbers_of_clients, packed, unpacked

from coterie.algorithms.fedals import FedALS, FedALSState, client_update, own_vectors
from coterie.data.training_set import TrainingSet
from coterie.evaluation.ranking import best_items
from coterie.federated.federation import NodeData, World
from coterie.federated.nodes import write_message
from coterie.federated.wire import decode, encode
from coterie.models.factors import score_rows
from coterie.types import Message, Rows

pytestmark = needs_node


def world_of(settings: FedALS, n_items: int) -> World[FedALS]:
    return World(settings, 0, 1, n_items, np.ones(1, bool), {}, 1)


def node_of(items: np.ndarray, n_items: int) -> NodeData:
    history = Rows(np.array([0, len(items)]), items.astype(np.int32))
    training = TrainingSet(1, n_items, history, history, None)
    return NodeData(np.array([5], np.int32), training, 0)


class Case:
    """A user with likes, of which some are private, and a message of a server."""

    def __init__(self, rng: np.random.Generator) -> None:
        n_items = int(rng.choice([5, 40, 200]))
        alpha = float(rng.choice([0.0, 1.0, 5.0, 100.0]))
        self.settings = FedALS(
            embedding_size=int(rng.choice([1, 3, 8, 17, 64])),
            alpha=alpha,
            reg=float(rng.choice([0.003, 0.1, 1.0])),
            reg_exponent=float(rng.choice([0.0, 0.5, 1.0])) if alpha else 0.0,
        )
        self.positives = np.flatnonzero(rng.uniform(size=n_items) < rng.choice([0.05, 0.3]))
        self.positives = self.positives.astype(np.int32)
        self.hidden = rng.uniform(size=len(self.positives)) < rng.choice([0.0, 0.4])
        self.world = world_of(self.settings, n_items)
        size = (n_items, self.settings.embedding_size)
        self.item_rows = (rng.normal(size=size) * rng.choice([0.05, 0.3, 1.0])).astype(np.float32)
        own = {"accepted": np.array([-1], np.int64)}
        users = np.array([5], np.int32)
        self.message = Message(int(rng.integers(9)), users, {"item_rows": self.item_rows}, own)

    def question(self) -> dict[str, Any]:
        names = ("embedding_size", "alpha", "reg", "reg_exponent")
        told = self.settings.model_dump()
        bias = np.zeros(len(self.item_rows), np.float32)
        model = encode(3, {}, {"item_rows": self.item_rows, "item_bias": bias})
        return {
            "kind": "fedals",
            "settings": {name: told[name] for name in names},
            "items": len(self.item_rows),
            "positives": packed(self.positives),
            "hidden": packed(self.hidden.astype(np.uint8)),
            "message": packed(write_message(self.message)),
            "model": packed(model),
        }

    def update(self) -> bytes:
        """What a node sends of a user who has the likes that are not private."""
        node = node_of(self.positives[~self.hidden], len(self.item_rows))
        made = client_update(self.world, self.message, node)
        assert not isinstance(made, tuple)
        return encode(self.message.round, made.columns())

    def best(self) -> tuple[list[int], np.ndarray]:
        """The list of a user with all likes, and the scores."""
        state = FedALSState(
            self.item_rows,
            np.zeros(len(self.item_rows), np.float32),
            np.zeros((1, 0, 1)),
            np.zeros((1, 1)),
            np.zeros(1),
        )
        row = own_vectors(self.world, state, node_of(self.positives, len(self.item_rows)))
        scores = score_rows(row["user_rows"], self.item_rows, state.item_bias, None)[0]
        return best_items(scores, self.positives, 10).tolist(), scores


def compare(n: int, seed: int) -> Counter[str]:
    tally: Counter[str] = Counter()
    cases = (Case(np.random.default_rng([seed, k])) for k in range(n))
    for case, answer in answered(cases, Case.question):
        tally["clients"] += 1
        count_update(case, answer, tally)
        count_list(case, answer, tally)
    print(dict(tally))
    return tally


def count_update(case: Case, answer: dict[str, Any], tally: Counter[str]) -> None:
    found = decode(unpacked(answer["update"], np.uint8).tobytes()).arrays
    if case.hidden.all():
        # Without a like that may be sent there is no update: the client declines.
        assert len(found["users"]) == 0
        tally["declined"] += 1
        return
    expected = decode(case.update()).arrays
    assert list(found) == list(expected)
    for name in expected:
        if name != "dense":
            assert np.array_equal(found[name], expected[name]), name
    difference = np.abs(found["dense"].astype(np.int64) - expected["dense"])
    tally["entries"] += difference.size
    tally["entries that differ"] += int((difference > 0).sum())
    tally["largest difference"] = max(tally["largest difference"], int(difference.max()))
    sent = case.positives[~case.hidden].tolist()
    for claims in (answer["alone"], answer["together"]):
        assert [(one["claims"], one["hits"]) for one in claims] == [(len(sent), len(sent))]
        assert claims[0]["found"] == sent


def count_list(case: Case, answer: dict[str, Any], tally: Counter[str]) -> None:
    if not len(case.positives):
        return
    expected, scores = case.best()
    tally["lists"] += 1
    if answer["best"] == expected:
        return
    tally["lists that differ"] += 1
    # Another order is right only among scores that rounding cannot tell apart.
    assert np.allclose(scores[answer["best"]], scores[expected], rtol=1e-5, atol=1e-7)


@numbers_of_clients
def test_clients_equal_those_of_python(n: int, seed: int) -> None:
    tally = compare(n, seed)
    assert tally["clients"] == n
    assert tally["entries"] > 5 * n
    assert tally["largest difference"] <= 1
    assert tally["entries that differ"] <= 1e-3 * tally["entries"]
    assert tally["lists that differ"] <= 1e-2 * tally["lists"]
