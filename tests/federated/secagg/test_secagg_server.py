"""Whole federations in rings: the same models, bit for bit, and servers that hear nobody's update."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_federation import (
    FEDERATED,
    few_settings,
    histories,
    play,
    play_locally,
    sha256,
    world_for,
)

pytest.importorskip("cryptography")

from coterie.algorithms import registry
from coterie.core.progress import Progress
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.federated import selection
from coterie.federated.engine import Engine
from coterie.federated.federation import AGGREGATION, Exchange, Federation
from coterie.federated.secagg import exposure
from coterie.federated.secagg import server as secagg_server
from coterie.federated.secagg.client import About, Stage, answer, length_of
from coterie.federated.secagg.member import Member, Terms
from coterie.federated.secagg.ring import Ring, announced
from coterie.federated.transcript import CLIENTS, SERVER, Transcript
from coterie.federated.validation import MOST_SAMPLES
from coterie.types import TOO_LARGE, Message

ONE_BY_ONE = ("sfpl", "sfpl+")
"""A round of one user cannot hide anybody."""


def in_ring(name: str) -> bool:
    train = registry.algorithm(name).train
    assert isinstance(train, Federation)
    return (
        any(isinstance(e, Exchange) and e.secure_sum for e in train.exchanges)
        and name not in ONE_BY_ONE
    )


OFFERED = [name for name in FEDERATED if in_ring(name)]
TOWERS = [name for name in OFFERED if "tower" in registry.algorithm(name).settings.model_fields]


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "temporal", 0.2, seed=0).training()


def smaller(name: str, **changes: Any) -> dict[str, Any]:
    return (
        {"rounds": 2, "users_per_round": 14}
        | ({"inputs": 20, "embedding_size": 4} if name in TOWERS else {})
        | changes
    )


def test_who_offers_rings():
    assert set(OFFERED) == {
        "fedavg",
        "fedfast",
        "fedavg+actvsamp",
        "fedavg+actvagg",
        "fcf",
        "fedmvmf",
        "pfpl",
        "pfpl+",
        "fl-dssm",
        "fl-clsm",
        "sttfedrec-dssm",
        "sttfedrec-clsm",
    }


@pytest.mark.parametrize("name", OFFERED)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"ring_size": 5},
        {"ring_rows": "union", "ring_size": 6},
        {"ring_way": "numbers"},
        {"client_dropout": 0.2, "ring_size": 20},
    ],
    ids=str,
)
def test_models_are_those_of_plain_sums(name, changes, choices):
    """Through the wire, so that towers too are computed device by device."""
    plain = {key: value for key, value in changes.items() if key == "client_dropout"}
    expected, _ = play_locally(name, choices, 1, True, **smaller(name, **plain))
    states, tallies = play_locally(
        name, choices, 1, True, **smaller(name, secure_aggregation="ring", **changes)
    )
    assert [sha256(state) for state in states] == [sha256(state) for state in expected]
    assert all(costs.accepted >= 7 for costs in tallies)


@pytest.mark.parametrize("name", ["fedfast", "pfpl+", "fcf", "sttfedrec-dssm"])
def test_members_may_live_on_many_nodes(name, choices):
    one, many = (
        play_locally(name, choices, nodes, True, **smaller(name, secure_aggregation="ring"))[0]
        for nodes in (1, 5)
    )
    assert sha256(one[-1]) == sha256(many[-1])


@pytest.mark.parametrize("name", OFFERED)
def test_no_update_leaves_a_device_in_the_clear(name, choices):
    """What servers hear of updates: numbers that look drawn at random, and of single users what the algorithm says it reveals."""
    world = world_for(name, choices, **smaller(name, secure_aggregation="ring"))
    heard = Transcript(LocalEngine.over(world, choices, 2))
    play(name, world, heard)
    lines = [
        line
        for role in (SERVER, AGGREGATION)
        for line in heard.seen_by(role)
        if line.sender == CLIENTS
    ]
    named = {key for line in lines for key in line.arrays}
    assert "numbers" in named
    open_ = {"samples", "user_rows"} if name.startswith("fed") and name != "fedmvmf" else set()
    opening = (
        {"offsets", "items", "item_rows", "dense"} if "fast" in name or "actv" in name else set()
    )
    assert (
        named <= {"users", "stage", "key", "forward", "back", "numbers", "veil"} | open_ | opening
    )
    numbers = np.concatenate(
        [line.arrays["numbers"].ravel() for line in lines if "numbers" in line.arrays]
    )
    assert len(np.unique(numbers)) == len(numbers)  # an update has thousands of noughts
    assert abs(np.mean(numbers / 2.0**64) - 0.5) < 5 / np.sqrt(12 * len(numbers))


def test_bytes_are_counted_for_both_ways_and_both_choices_of_rows(choices):
    up = {}
    for rows, way in (("all", "seed"), ("union", "seed"), ("all", "numbers")):
        _, tallies = play_locally(
            "pfpl",
            choices,
            **smaller("pfpl", secure_aggregation="ring", ring_rows=rows, ring_way=way),
        )
        up[rows, way] = sum(costs.bytes_up for costs in tallies)
    _, plain = play_locally("pfpl", choices, **smaller("pfpl"))
    assert up["union", "seed"] < up["all", "seed"] < up["all", "numbers"]
    assert sum(costs.bytes_up for costs in plain) < up["union", "seed"]


def test_rings_are_as_even_as_can_be_and_none_is_too_large():
    for n, size in (
        (3, 50),
        (50, 50),
        (51, 50),
        (120, 50),
        (200, 50),
        *((n, 5) for n in range(3, 40)),
    ):
        parts = secagg_server.of_cohort(np.arange(n, dtype=np.int32), size, 1, 2)
        assert sorted(np.concatenate(parts).tolist()) == list(range(n))
        assert min(map(len, parts)) >= 3
        assert max(map(len, parts)) <= size
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert not np.array_equal(
        secagg_server.of_cohort(np.arange(20), 50, 1, 2)[0],
        secagg_server.of_cohort(np.arange(20), 50, 1, 3)[0],
    )


def test_a_round_whose_rings_are_all_given_up_changes_nothing_and_says_so(choices):
    """Nine in ten drop out: half of a ring is never left."""
    states, tallies = play_locally(
        "fcf",
        choices,
        **smaller("fcf", secure_aggregation="ring", client_dropout=0.9, participation=0.2),
    )
    for costs in tallies:
        assert costs.accepted == 0
        assert costs.refused[secagg_server.GIVEN_UP] + costs.dropped == len(costs.users), (
            "who vanished is not refused"
        )
        assert costs.dropped > len(costs.users) / 2
    assert len({sha256(state) for state in states}) == 1


@pytest.mark.parametrize("name", ["fedbso", *ONE_BY_ONE])
def test_what_cannot_be_hidden_is_refused(name, choices):
    with pytest.raises(ConfigError, match="secure_aggregation is 'ring'"):
        play_locally(name, choices, rounds=1, secure_aggregation="ring")


def test_what_a_ring_leaves_open_is_said(choices):
    class Listener(Progress):
        def __init__(self) -> None:
            self.said: list[str] = []

        def log(self, text: str) -> None:
            self.said.append(text)

    for name, words in (
        ("fedfast", "their row"),
        ("fedfast", "statistics"),
        ("sttfedrec-dssm", "items they ask for"),
        ("fcf", ""),
    ):
        progress = Listener()
        world = world_for(name, choices, **smaller(name, secure_aggregation="ring"))
        play(name, world, LocalEngine.over(world, choices, 1), progress=progress)
        assert any(words in text for text in progress.said) if words else not progress.said


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_updates_of_a_full_ring_are_added_up_exactly(sign):
    """As large as a device may send them and weighed as heavily as may be; and as many as may take part stay below 2^63."""
    largest = sign * (TOO_LARGE - 1) * MOST_SAMPLES
    members = {
        user: Member(user, Terms(0, 0, 0, 3), lambda: np.full(3, largest, np.int64).view(np.uint64))
        for user in range(50)
    }

    def ask(stage: str, users: Any, own: Any) -> dict[int, Any]:
        said = answer(stage, members, users.tolist(), own)
        told = {name: column for name, column in said.items() if name not in ("users", "stage")}
        return {
            user: {name: column[k] for name, column in told.items()}
            for k, user in enumerate(said["users"].tolist())
        }

    keys = {
        user: said["key"].tobytes()
        for user, said in announced(ask, np.arange(50, dtype=np.int32), {}).items()
    }
    added = Ring(Terms(0, 0, 0, 3), ask, 25).add_up(keys)
    assert added.numbers.view(np.int64).tolist() == [50 * largest] * 3
    assert selection.MOST_USERS * (TOO_LARGE - 1) * max(TOO_LARGE - 1, MOST_SAMPLES) < 2**63


def test_settings_of_rings_are_checked():
    from coterie.errors import UserError

    for changes in (
        {"secure_aggregation": "rings"},
        {"ring_size": 4},
        {"ring_size": 51},
        {"ring_rows": "some"},
    ):
        with pytest.raises((UserError, ValueError)):
            few_settings("fcf", **changes)


# Whatever comes in


def ring_of(name: str, training: TrainingSet) -> tuple[Any, Any, Any]:
    """A node whose users have announced themselves, the stage they are at, and what they were sent."""
    world = world_for(name, training, **smaller(name, secure_aggregation="ring"))
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    (node,) = LocalEngine.over(world, training, 1).nodes
    exchange = next(e for e in federation.exchanges if isinstance(e, Exchange))
    state = replace(federation.init(world), **federation.init_clients(world, node))
    users = federation.sample(world, state.without_private(), 0)
    sizes = exchange.sizes(world, state)
    about = About(0, 0, 0, *sizes)
    message = exchange.broadcast(world, state.without_private(), users, 0)
    private_state = {key: getattr(state, key)[users] for key in state.private}
    message = replace(
        message,
        common=message.common | {"ring": np.array(about, np.int64)},
        private_state=private_state,
    )
    said, _ = Stage("announce", exchange).answer(world, message, node)
    assert len(said["users"]) == len(users)
    return world, node, (exchange, users, about, message, said["key"])


GOOD = {
    "attempt": np.zeros(3, np.int32),
    "before": np.arange(3, dtype=np.int32),
    "after": np.arange(3, dtype=np.int32),
    "before_key": np.ones((3, 32), np.uint8),
    "after_key": np.ones((3, 32), np.uint8),
}
STRANGE = [
    {"attempt": np.zeros((3, 2), np.int32)},
    {"attempt": np.zeros(2, np.int32)},
    {"attempt": np.full(3, np.nan)},
    {"before_key": np.ones((3, 31), np.uint8)},
    {"after": np.zeros(3, np.int64)},
    {"more": np.zeros(3)},
    {"after_key": np.array(3, np.uint8)},
]


@pytest.mark.parametrize(
    "change",
    STRANGE,
    ids=lambda change: f"{next(iter(change))} {next(iter(change.values())).shape}",
)
def test_nobody_answers_to_strange_columns(change, choices):
    world, node, (exchange, users, about, message, _) = ring_of("fcf", choices)
    length = length_of(
        world, exchange, message, about.sizes, np.arange(about.items, dtype=np.int32)
    )
    told = {"ring": np.array(about._replace(length=length), np.int64)}
    stage = Stage("deal", exchange)
    three = users[:3]
    assert len(stage.answer(world, Message(0, three, told, GOOD), node)[0]["users"]) == 3
    assert not len(stage.answer(world, Message(0, three, told, GOOD | change), node)[0]["users"])


@pytest.mark.parametrize(
    "row",
    [
        None,
        np.zeros(3, np.int64),
        np.zeros(8),
        np.full(8, -1, np.int64),
        np.array([0, 7, 0, 1, 1, 1, 1, 1]),
        np.array([0, 0, 0, 1 << 40, 1, 1, 1, 1]),
    ],
)
def test_nobody_answers_to_what_is_no_ring(row, choices):
    world, node, (exchange, users, _, _, _) = ring_of("fcf", choices)
    told = {} if row is None else {"ring": row}
    for name in ("announce", "deal", "upload"):
        assert not len(
            Stage(name, exchange).answer(world, Message(0, users, told, {}), node)[0]["users"]
        )


@pytest.mark.parametrize(
    "change", [{"length": 5}, {"length": 1 << 50}, {"items": 3}, {"dense": 9}, {"number": 1}]
)
def test_nobody_deals_on_other_terms(change, choices):
    world, node, (exchange, users, about, message, _) = ring_of("fcf", choices)
    length = length_of(
        world, exchange, message, about.sizes, np.arange(about.items, dtype=np.int32)
    )
    told = {"ring": np.array(about._replace(length=length)._replace(**change), np.int64)}
    assert not len(
        Stage("deal", exchange).answer(world, Message(0, users[:3], told, GOOD), node)[0]["users"]
    )


@pytest.mark.parametrize(
    "users",
    [np.array(3, np.int32), np.zeros((2, 2), np.int32), np.zeros(2), np.array([99, 98], np.int32)],
    ids=lambda u: str(u.shape),
)
def test_replies_that_are_none_are_as_if_they_had_not_come(users, choices):
    world = world_for("fcf", choices, **smaller("fcf", secure_aggregation="ring"))
    engine = LocalEngine.over(world, choices, 2)

    class Garbled(Engine):
        def gather(self, make: Any) -> Any:
            return engine.gather(make)

        def call(self, exchange: Any, message: Any) -> Any:
            first, *rest = engine.call(exchange, message)
            columns = (
                {**first.columns, "users": users} if isinstance(exchange, Stage) else first.columns
            )
            return [replace(first, columns=columns), *rest]

    _, tallies = play("fcf", world, Garbled())
    assert all(costs.accepted + costs.refused[secagg_server.GIVEN_UP] > 0 for costs in tallies)


def test_what_was_said_at_one_stage_is_no_answer_at_another(choices):
    """An upload, kept and sent again in place of a mending: the same columns, another stage."""
    world = world_for(
        "fcf", choices, **smaller("fcf", secure_aggregation="ring", client_dropout=0.2, rounds=3)
    )
    engine = LocalEngine.over(world, choices, 1)
    private_state: dict[str, Any] = {}

    class Replaying(Engine):
        def gather(self, make: Any) -> Any:
            return engine.gather(make)

        def call(self, exchange: Any, message: Any) -> Any:
            replies = engine.call(exchange, message)
            if isinstance(exchange, Stage) and exchange.name == "upload":
                private_state["upload"] = replies[0]
            if isinstance(exchange, Stage) and exchange.name == "mend":
                private_state["used"] = True
                return [replace(private_state["upload"], asked=message.users)]
            return replies

    _, tallies = play("fcf", world, Replaying())
    assert private_state.get("used")
    assert any(costs.refused[secagg_server.GIVEN_UP] for costs in tallies)


@pytest.mark.parametrize("mode", ["sticky", "resampled", "whole"])
def test_somebody_who_has_everything_may_ask(mode):
    states, _ = play_locally(
        "sttfedrec-dssm",
        histories(1, 30, 15),
        3,
        rounds=2,
        users_per_round=30,
        requests=mode,
        secure_aggregation="ring",
    )
    assert np.isfinite(states[-1].user_tower).all()


def test_lost_rings_are_no_divergence():
    """Whoever loses rings to drop-out is told of drop-out, and not to lower the learning rate."""
    from collections import Counter

    from coterie.experiments.history import TrainingHistory
    from coterie.experiments.training import judge_refusals
    from coterie.types import Ints

    class Listener(Progress):
        said = ""

        def log(self, text: str) -> None:
            self.said += text

    nobody: Ints = np.zeros(3, np.int32)
    progress = Listener()
    judge_refusals(TrainingHistory(nobody, refused=Counter({secagg_server.GIVEN_UP: 90})), progress)
    assert "90 updates were lost with rings" in progress.said
    assert "client_dropout" in progress.said
    assert "diverg" not in progress.said


def test_what_nobody_asks_for_one_by_one_is_not_said_to_be_heard():
    """With requests of everything a recommendation server hears of no user what it is after."""
    for mode, heard in (("resampled", 1), ("whole", 0)):
        world = world_for(
            "sttfedrec-dssm", histories(1, 30, 15), secure_aggregation="ring", requests=mode
        )
        assert (
            len(exposure.in_the_clear(registry.algorithm("sttfedrec-dssm").train, world)) == heard
        )


def test_rings_are_asked_for_or_not_set():
    with pytest.raises(ConfigError, match="'ring_size' is 10, but secure_aggregation is 'none'"):
        registry.algorithm("fcf").settings.of({"ring_size": 10})
    assert (
        registry.algorithm("fcf")
        .settings.of({"ring_size": 10, "secure_aggregation": "ring"})
        .ring_size
        == 10
    )
