"""Random clients of FPL, and what Python computes for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from javascript import packed

from coterie.algorithms.fpl import FPL, client_update, init_clients
from coterie.attacks.attackers import ON_FPL
from coterie.attacks.eavesdropper import observe
from coterie.attacks.evidence import Claims, EvidenceCollector, ServerKnowledge
from coterie.attacks.scores import score
from coterie.data.training_set import PrivacyPreferences, TrainingSet
from coterie.evaluation.ranking import best_items
from coterie.federated.federation import NodeData, World
from coterie.federated.nodes import write_message
from coterie.federated.wire import encode
from coterie.types import TOO_LARGE, Floats, Message, Rows, Updates

NEVER = np.array([-1], np.int64)


@dataclass(frozen=True)
class Client:
    """One user of a federation, and the item tables of a few rounds."""

    world: World[FPL]
    node: NodeData
    messages: list[Message]

    @property
    def user(self) -> int:
        return int(self.node.users[0])

    @property
    def positives(self) -> np.ndarray:
        return self.node.training.positives.items

    @property
    def seen(self) -> np.ndarray:
        return self.node.training.excluded.items


@dataclass(frozen=True)
class PythonRound:
    """What Python computes in one round of a client."""

    updates: Updates
    data: bytes
    row: Floats
    scores: Floats
    best: list[int]
    claims: dict[str, Claims] | None


def random_clients(n: int, seed: int) -> Iterator[Client]:
    for k in range(n):
        yield random_client(np.random.default_rng([seed, k]))


def random_client(rng: np.random.Generator) -> Client:
    """Sizes from 2 items and 1 factor; some item tables are far too large, some have equal rows."""
    n_items = int(rng.choice([2, 5, 30, 150, 400]) + rng.integers(0, 7))
    rate = float(10 ** rng.uniform(-3, 0))
    settings = FPL(
        embedding_size=int(rng.integers(1, 21)),
        triples=int(rng.choice([1, 3, 20, 70])),
        learning_rate=rate,
        reg_user=rng.choice([None, 0.0, 0.02]),
        reg_positive=rng.choice([None, 0.01]),
        reg_negative=rng.choice([None, 0.01]),
        reg_bias=float(rng.choice([0.0, 0.03])),
        start_scale=float(rng.choice([0.01, 0.1, 1.0])),
        reading=str(rng.choice(["authors", "literal"])),
        disclosure=float(rng.choice([0.0, 1.0, rng.uniform()])),
    )
    user = int(rng.integers(0, 2**31 - 1))
    n_liked = min(int(rng.choice([0, 1, 4, 25, n_items], p=[0.02, 0.1, 0.4, 0.46, 0.02])), n_items)
    order = rng.permutation(n_items).astype(np.int32)
    n_seen = min(n_liked + int(rng.choice([0, 3])), n_items)
    positives = np.sort(order[:n_liked])
    hidden = rng.uniform(size=n_liked) < rng.choice([0.0, 0.3])
    one = np.zeros(2, np.int64)
    training = TrainingSet(
        1,
        n_items,
        Rows(np.array([0, n_liked]), positives),
        Rows(np.array([0, n_seen]), np.sort(order[:n_seen])),
        None,
        preferences=PrivacyPreferences(
            Rows(one, np.empty(0, np.int32)), np.empty(0, np.float32), hidden
        ),
    )
    node = NodeData(np.array([user], np.int32), training, int(rng.integers(0, 2**64, dtype="u8")))
    world = World(settings, 0, 1, n_items, np.ones(1, bool), {}, max(n_liked, 1))
    scale = float(rng.choice([0.01, 0.1, 1.0, 100.0, 1e20], p=[0.2, 0.4, 0.3, 0.06, 0.04]))
    first = int(rng.choice([0, 7, 2**32 - 4]))
    messages = []
    for t in range(first, first + int(rng.integers(1, 4))):
        item_rows = rng.normal(size=(n_items, settings.embedding_size)) * scale
        item_bias = rng.normal(size=n_items) * rng.choice([0.0, scale])
        if rng.uniform() < 0.3:
            # Equal rows: ties, which are broken by the order of items.
            item_rows[n_items // 2 :] = item_rows[0]
            item_bias[n_items // 2 :] = item_bias[0]
        common = {"item_rows": item_rows.astype("f4"), "item_bias": item_bias.astype("f4")}
        messages.append(Message(t, node.users, common, {"accepted": NEVER}))
    return Client(world, node, messages)


def scores_of(row: Floats, item_rows: Floats, item_bias: Floats) -> Floats:
    """Of all items, added up in double precision: the sums of a matrix product in single precision
    depend on the place of a row, so that equal rows need not have equal scores."""
    exact = item_rows.astype(np.float64) @ row.astype(np.float64)
    scores: Floats = exact.astype(np.float32) + item_bias
    return scores


def is_sound(message: Message) -> bool:
    """Whether scores can be computed in single precision."""
    return bool(np.abs(message.common["item_rows"]).max() < 1e10)


def as_case(client: Client) -> dict[str, Any]:
    """The case as JavaScript reads it."""
    settings = client.world.settings
    reg_user, reg_positive, reg_negative = settings.regularisation()
    names = ("embedding_size", "triples", "learning_rate", "reg_bias", "start_scale", "reading")
    return {
        "kind": "client",
        "settings": {
            **{name: getattr(settings, name) for name in names},
            "reg_user": reg_user,
            "reg_positive": reg_positive,
            "reg_negative": reg_negative,
        },
        "seed": str(client.node.seed),
        "user": client.user,
        "pi": settings.disclosure,
        "positives": packed(client.positives),
        "hidden": packed(client.node.training.preferences.hidden.astype(np.uint8)),
        "seen": packed(client.seen),
        "rounds": [
            {"message": packed(write_message(message)), "sound": is_sound(message)}
            for message in client.messages
        ],
    }


def start_row(client: Client) -> Floats:
    return init_clients(client.world, client.node)["user_rows"][0]


def python_rounds(client: Client) -> Iterator[PythonRound]:
    """The same rounds in Python, each from the row that the last one left."""
    state = init_clients(client.world, client.node)
    user = client.user
    settings = client.world.settings
    _, reg_positive, reg_negative = settings.regularisation()
    server = ServerKnowledge(
        1, client.world.n_items, settings.embedding_size, reg_positive, reg_negative
    )
    collector = EvidenceCollector(server, ON_FPL)
    for message in client.messages:
        with np.errstate(all="ignore"):
            result = client_update(client.world, replace(message, private_state=state), client.node)
        assert isinstance(result, tuple)
        updates, state = result
        row = state["user_rows"][0]
        data = encode(message.round, updates.columns())
        if not is_sound(message):
            yield PythonRound(updates, data, row, np.empty(0, np.float32), [], None)
            continue
        common = message.common
        scores = scores_of(row, common["item_rows"], common["item_bias"])
        best = best_items(scores, client.seen, 10).tolist()
        claims = None
        if (np.abs(updates.item_rows.astype(np.int64)) < TOO_LARGE).all():
            if len(updates):
                seen = observe(message, updates)
                # The collector counts one user, whatever its index.
                assert seen.users.tolist() == [user]
                collector.add(replace(seen, users=np.zeros(1, np.int32)))
            claims = collector.claims() if len(updates) else {}
        yield PythonRound(updates, data, row, scores, best, claims)


def python_score(claims: Claims, client: Client) -> tuple[int, int]:
    """Claims and hits."""
    truth = Rows(np.array([0, len(client.positives)]), client.positives)
    result = score(claims, truth, client.world.n_items)
    return int(result.claims[0]), int(result.hits[0])
