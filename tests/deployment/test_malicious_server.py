"""A malicious server and honest nodes: what a node refuses, and why.

A server records an honest federation, and then sends changed messages to a node that takes part in
it with a store of its own.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from deployment.test_enrolment import terms_of
from deployment.test_private_federation import RecordingNodes, new_federation, served
from deployment.test_signing_keys import Log

from coterie.deployment.enrolment import EnrolledUsers, FederationTerms, UserIndices
from coterie.deployment.node_data import roster_of
from coterie.deployment.node_evaluation import KIND
from coterie.deployment.node_evaluation_groups import reportable_users
from coterie.deployment.node_evaluation_noise import with_noise
from coterie.deployment.node_policy import NodePolicy, put_policy
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import (
    ENROL,
    EVALUATE,
    FINISH,
    TRAIN,
    NodeService,
    make_preamble,
    split_preamble,
)
from coterie.errors import PolicyError
from coterie.experiments.config import Experiment
from coterie.federated.nodes import read_message, write_message
from coterie.federated.trainer import SETUP
from coterie.federated.wire import Malformed, decode
from coterie.types import Message

ROUNDS = 3


@dataclass(frozen=True)
class Recorded:
    """An honest federation with one node."""

    terms: FederationTerms
    store: Path
    """The node's store before it enrolled."""
    sent: list[tuple[str, int, bytes, bytes | None]]

    def of(self, kind: str) -> list[bytes]:
        """The messages of a kind, without what comes before the first round."""
        found = [split_preamble(data)[1] for each, _, data, _ in self.sent if each == kind]
        return [data for data in found if read_message(data).exchange != SETUP]


@pytest.fixture(scope="module")
def recorded(few_people, tmp_path_factory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    terms, (path,) = new_federation(
        "fedfast", few_people, folder, 1, rounds=ROUNDS, evaluate_every=1, participation=0.5
    )
    before = folder / "before.db"
    shutil.copy(path, before)
    nodes = RecordingNodes([path])
    served(folder, terms, nodes)
    return Recorded(terms, before, nodes.sent)


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Attacked:
    """A node that has enrolled, and the server that attacks it."""

    service: NodeService
    recorded: Recorded
    log: Log
    clock: Clock

    def indices(self, users: list[str] | None = None) -> UserIndices:
        store = self.service.store
        members = EnrolledUsers.of({"0": roster_of(self.recorded.terms, store)})
        return members.indices_for(store.users() if users is None else users)

    def train(self, t: int, change: Callable[[Message], Message] = lambda message: message) -> int:
        """Send an exchange; returns how many users replied."""
        message = read_message(self.recorded.of(TRAIN)[t])
        reply = self.service.answer(TRAIN, write_message(change(message)))
        return len(decode(reply).arrays["users"])

    def metrics(
        self, kind: str, place: int, change: Callable[[Message], Message] = lambda message: message
    ) -> dict[str, Any]:
        message = read_message(self.recorded.of(kind)[place])
        # Without a training the node's state is the initial one.
        message = replace(
            message, own=message.own | {"accepted": np.full(len(message.users), -1, np.int64)}
        )
        reply = self.service.answer(kind, write_message(change(message)))
        return dict(json.loads(reply))


@pytest.fixture
def attacked(recorded, tmp_path) -> Attacked:
    path = tmp_path / "node.db"
    shutil.copy(recorded.store, path)
    log = Log()
    clock = Clock()
    service = NodeService(NodeStore.open(path), log, clock)
    node = Attacked(service, recorded, log, clock)
    service.answer(ENROL, recorded.terms.to_json().encode())
    service.begin(recorded.terms, node.indices())
    return node


def with_policy(node: Attacked, **rules: Any) -> None:
    put_policy(node.service.store, NodePolicy.of(rules))


def one_user(place: int) -> Callable[[Message], Message]:
    return lambda message: message.to(np.array([place]))


def test_an_honest_server_is_answered(attacked):
    assert attacked.train(0) > 10
    assert attacked.metrics(EVALUATE, 0)["users"] > 20
    assert attacked.metrics(FINISH, 0)["users"] > 20


def test_users_asked_one_at_a_time(attacked):
    """Each is another message for the same exchange: only so many a day are answered."""
    with_policy(attacked, replays_a_day=2)
    assert [attacked.train(0, one_user(k)) for k in range(3)] == [1, 1, 1]
    with pytest.raises(PolicyError, match=r"exchange 0 of round 1 again .* replays_a_day: 2"):
        attacked.train(0, one_user(3))
    assert any(
        "again with other content, as after a restore" in line for line in attacked.log.lines
    )


def test_a_replayed_round_gets_the_same_reply_or_none(attacked):
    with_policy(attacked, replays_a_day=0)
    message = attacked.recorded.of(TRAIN)[0]
    assert attacked.service.answer(TRAIN, message) == attacked.service.answer(TRAIN, message)
    other = {"item_rows": 2 * read_message(message).common["item_rows"]}
    with pytest.raises(PolicyError, match="exchange 0 of round 1 again with other content"):
        attacked.train(0, lambda found: replace(found, common=found.common | other))
    # Neither does a new preamble clear it, after which a server may go back to earlier rounds.
    attacked.service.begin(attacked.recorded.terms, attacked.indices())
    with pytest.raises(PolicyError, match="again with other content"):
        attacked.train(0, lambda found: replace(found, common=found.common | other))


def test_more_rounds_than_the_terms_have(attacked):
    with pytest.raises(PolicyError, match=r"sends round 4; its terms have 3 rounds"):
        attacked.train(0, lambda message: replace(message, round=ROUNDS))


def all_zero_but_one(table: np.ndarray) -> np.ndarray:
    crafted = np.zeros_like(table)
    crafted[len(crafted) // 2] = 1
    return crafted


def one_of(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def craft(table: np.ndarray) -> np.ndarray:
        crafted = table.copy()
        crafted.flat[0] = value
        return crafted

    return craft


@pytest.mark.parametrize(
    ("craft", "message"),
    [
        (all_zero_but_one, "all zero but 1, so that replies are about one"),
        (one_of(float("nan")), "holds nan; expected numbers up to"),
        (one_of(float("-inf")), "holds inf; expected numbers up to"),
        (one_of(1e30), r"holds 1e\+30; expected numbers up to"),
    ],
    ids=["all zero but one", "nan", "infinite", "huge"],
)
@pytest.mark.parametrize("kind", [TRAIN, EVALUATE, FINISH])
@pytest.mark.parametrize("place", ["item_rows", "user_rows"])
def test_crafted_models(craft, message, kind, place, attacked):
    """Rows that isolate an item or a user, and numbers that training does not have."""

    def change(found: Message) -> Message:
        if place == "item_rows":
            return replace(found, common=found.common | {place: craft(found.common[place])})
        return replace(found, own=found.own | {place: craft(found.own[place])})

    send = attacked.train if kind == TRAIN else partial(attacked.metrics, kind)
    with pytest.raises(PolicyError, match=message):
        send(0, change)


def test_a_tiny_evaluation_group(attacked):
    """The server enrols nine of the node's users, and evaluates all that it enrolled."""
    store = attacked.service.store
    store.connection.execute("update person set number = null")
    few = attacked.indices(store.users()[:9])
    attacked.service.begin(attacked.recorded.terms, few)
    chosen = list(few.numbers.values())

    def of_few(message: Message) -> Message:
        return message.to(np.isin(message.users, chosen))

    assert attacked.metrics(FINISH, 0, of_few) == {"users": 0, "part": "test", "sums": {}}


def test_evaluation_groups_that_differ_by_one(attacked):
    """The server enrols one user less, evaluates, enrols that user, and evaluates again."""
    store = attacked.service.store
    users = store.users()
    store.connection.execute("update person set number = null")
    reports = []
    for listed in (users[:-1], users):
        indices = attacked.indices(listed)
        attacked.service.begin(attacked.recorded.terms, indices)
        chosen = list(indices.numbers.values())
        reports.append(
            attacked.metrics(
                FINISH, 0, lambda found, chosen=chosen: found.to(np.isin(found.users, chosen))
            )
        )
    assert reports[0]["users"] > 20
    assert reports[1]["users"] == reports[0]["users"]
    assert reports[1]["sums"] == reports[0]["sums"]


def test_every_difference_of_sums_is_over_enough_users(attacked):
    """Also of three groups, of which each two differ by many: 20, its first half, and 11 more."""
    store = attacked.service.store
    users = store.users()

    def group(first: int, last: int) -> set[str]:
        return reportable_users(store, "test", users[first:last], 10)

    assert group(0, 20) == set(users[:20])
    assert group(0, 10) == set(users[:10])
    assert group(10, 21) == set(users[10:20])  # user 21 would be the difference
    assert group(0, 19) == set(users[:10])
    assert group(0, 40) == set(users)
    # What another part of the data shows is another figure.
    assert reportable_users(store, "validation", users[:11], 10) == set(users[:11])


def test_too_many_questions(attacked):
    with_policy(attacked, questions_an_hour=3, questions_a_day=4)
    # Enrolment was the first.
    attacked.train(0)
    attacked.train(0)
    with pytest.raises(PolicyError, match=r"3 messages within an hour; .* questions_an_hour: 3"):
        attacked.train(0)
    attacked.clock.now += 3600
    attacked.train(0)
    # A restart does not clear the count.
    attacked.service.store.close()
    store = NodeStore.open(attacked.service.store.path)
    again = NodeService(store, clock=attacked.clock)
    with pytest.raises(PolicyError, match=r"4 messages within a day; .* questions_a_day: 4"):
        again.answer(TRAIN, attacked.recorded.of(TRAIN)[0])
    attacked.clock.now += 24 * 3600
    assert again.answer(TRAIN, attacked.recorded.of(TRAIN)[0])


@pytest.mark.parametrize("change", [{"algorithm": "fcf"}, {"rounds": 99}, {"evaluate_every": 2}])
def test_terms_that_change_after_enrolment(change, attacked):
    """Another algorithm, such as one whose updates show items; in a preamble or at enrolment."""
    terms = attacked.recorded.terms
    values = {"algorithm": terms.config["algorithm"], "dataset": "given.csv"}
    values |= {key: terms.config[key] for key in ("rounds", "popularity_prior")}
    lying = replace(terms, config=Experiment.of(values | change).flat())
    preamble = make_preamble(lying.to_json(), attacked.indices())
    with pytest.raises(
        PolicyError, match="changed the terms of run a run after this node enrolled"
    ):
        attacked.service.answer(TRAIN, preamble + attacked.recorded.of(TRAIN)[0])
    with pytest.raises(PolicyError, match="changed the terms of run a run"):
        attacked.service.answer(ENROL, lying.to_json().encode())


def test_terms_that_change_between_enrolment_and_the_first_round(attacked, few_people):
    """The node has enrolled, and knows nothing else of the run."""
    offered = replace(terms_of(few_people, "fedfast", rounds=1), run="offered")
    attacked.service.answer(ENROL, offered.to_json().encode())
    lying = replace(terms_of(few_people, "fcf", rounds=1), run="offered")
    with pytest.raises(PolicyError, match="changed the terms of run offered after"):
        attacked.service.begin(lying, attacked.indices())


def test_a_new_run_with_another_algorithm_is_shown_to_the_owner(attacked, few_people):
    other = replace(terms_of(few_people, "fcf", rounds=1), run="another")
    attacked.service.begin(other, attacked.indices())
    assert any(
        "begins another federation: fcf, secure aggregation none, no epsilon; before: fedfast"
        in line
        for line in attacked.log.lines
    )
    with_policy(attacked, algorithms=("fedfast",))
    with pytest.raises(PolicyError, match=r"run next trains fcf; .* algorithms: fedfast"):
        attacked.service.answer(ENROL, replace(other, run="next").to_json().encode())


def test_plain_terms_where_the_policy_requires_secure_aggregation(attacked):
    with_policy(attacked, secure_aggregation="required")
    rule = "has secure_aggregation 'none'; this node's policy has secure_aggregation: required"
    with pytest.raises(PolicyError, match=rule):
        attacked.service.answer(ENROL, attacked.recorded.terms.to_json().encode())
    # Nor is a message of the running federation answered, once the owner has changed the policy.
    attacked.service.loaded = None
    with pytest.raises(PolicyError, match=rule):
        attacked.train(0)


@pytest.mark.parametrize("protocol", ["ring", "secagg"])
def test_a_plain_message_under_secure_terms(protocol, few_people, tmp_path):
    """A message without a stage would be answered in the clear."""
    terms, (path,) = new_federation(
        "fcf", few_people, tmp_path, 1, rounds=1, secure_aggregation=protocol
    )
    service = NodeService(NodeStore.open(path))
    members = EnrolledUsers.of({"0": service.enrol(terms)})
    indices = members.indices_for(service.store.users())
    users = np.arange(5, dtype=np.int32)
    own = {"accepted": np.full(5, -1, np.int64)}
    common = {"item_rows": np.ones((len(terms.items), 5), np.float32)}
    message = write_message(Message(0, users, common, own))
    with pytest.raises(Malformed, match=f"of protocol none; this federation has {protocol}"):
        service.answer(TRAIN, make_preamble(terms.to_json(), indices) + message)


def test_groups_that_are_smaller_than_the_policy_allows(few_people, tmp_path):
    terms, (path,) = new_federation(
        "fcf", few_people, tmp_path, 1, rounds=1, secure_aggregation="secagg"
    )
    service = NodeService(NodeStore.open(path))
    put_policy(service.store, NodePolicy(smallest_group=20))
    with pytest.raises(PolicyError, match=r"has groups of 10 clients .* smallest_group: 20"):
        service.enrol(terms)


def test_metrics_that_the_terms_do_not_announce(attacked):
    """After a round without an evaluation, or none at all where the owner does not want it."""
    config = attacked.recorded.terms.config | {"evaluate_every": 5}
    terms = replace(attacked.recorded.terms, config=config)
    attacked.service.loaded = attacked.service.load()._replace(terms=terms)
    with pytest.raises(PolicyError, match="asks for metrics after round 7; its terms have"):
        attacked.metrics(EVALUATE, 0, lambda message: replace(message, round=7))
    attacked.service.loaded = None
    with_policy(attacked, evaluation=False)
    assert attacked.metrics(FINISH, 0) == {"users": 0, "part": "", "sums": {}}


@pytest.mark.parametrize(
    "change",
    [{"n_positives": 1 << 39}, {"n_users": 1 << 40}, {"n_positives": -1}, {"members": [10**6]}],
)
def test_totals_that_no_federation_has(change, attacked):
    """A node would reserve memory for them."""
    with pytest.raises(Malformed, match="the server"):
        attacked.service.begin(attacked.recorded.terms, replace(attacked.indices(), **change))


def test_more_evaluations_than_the_policy_allows(attacked):
    """Others are stored without a report; those that were reported get the same reply again."""
    with_policy(attacked, evaluations_a_day=1)
    first = attacked.metrics(EVALUATE, 0)
    assert first["users"] > 20
    nothing = {"users": 0, "part": "", "sums": {}}
    for _ in range(2):
        # Asking again for what was not reported is no way round.
        assert attacked.metrics(EVALUATE, 1) == nothing
    assert attacked.metrics(FINISH, 0) == nothing
    assert attacked.metrics(EVALUATE, 0) == first
    assert any("evaluations_a_day: 1): none are reported" in line for line in attacked.log.lines)
    attacked.clock.now += 24 * 3600
    assert attacked.metrics(EVALUATE, 1)["users"] > 20


def test_noise_on_metrics_hides_a_user_and_cannot_be_averaged(attacked):
    def sums(change: Callable[[Message], Message] = lambda message: message) -> dict[str, float]:
        return dict(attacked.metrics(EVALUATE, 0, change)["sums"])

    with_policy(attacked, replays_a_day=1000, evaluation_noise=0.0)
    exact = sums()
    with_policy(attacked, replays_a_day=1000, evaluation_noise=2.0)
    # The same message gets the same noise, and one that differs by a bit gets other noise.
    assert sums() == sums() != exact

    def tiny(found: Message) -> Message:
        rows = found.common["item_rows"] * np.float32(1 + 1e-6)
        return replace(found, common=found.common | {"item_rows": rows})

    assert sums(tiny) != sums()
    store = attacked.service.store
    drawn = [
        with_noise({"AUC": 500.0}, 1000, 2.0, bytes([k // 256, k % 256]), store)["AUC"] - 500
        for k in range(2000)
    ]
    # The mean within 4 of its standard errors, the deviation within 10 %.
    assert abs(np.mean(drawn)) < 4 * 2 / np.sqrt(2000)
    assert np.std(drawn) == pytest.approx(2, rel=0.1)
    # Within what sums of metrics can be, or the server would reject them.
    with_policy(attacked, replays_a_day=1000, evaluation_noise=1000.0)
    found = attacked.metrics(EVALUATE, 0)
    assert all(0 <= total <= found["users"] for total in found["sums"].values())


def test_a_model_whose_users_rows_the_server_made_up(few_people, tmp_path):
    """Clients of fcf keep their rows. With others, a sum of metrics would be about one user."""
    terms, (path,) = new_federation("fcf", few_people, tmp_path, 1, rounds=2, evaluate_every=1)
    service = NodeService(NodeStore.open(path))
    members = EnrolledUsers.of({"0": service.enrol(terms)})
    indices = members.indices_for(service.store.users())
    service.begin(terms, indices)
    users = np.array(sorted(indices.numbers.values()), np.int32)
    common = {
        "item_rows": np.ones((len(terms.items), 5), np.float32),
        "item_bias": np.zeros(len(terms.items), np.float32),
    }
    own = {
        "accepted": np.full(len(users), -1, np.int64),
        "user_rows": np.ones((len(users), 5), np.float32),
    }

    def ask(kind: bytes) -> bytes:
        of_kind = common | {KIND: np.frombuffer(kind, np.uint8)}
        return service.answer(EVALUATE, write_message(Message(1, users, of_kind, own)))

    with pytest.raises(Malformed, match=r"kind factors, which has no part of what clients keep"):
        ask(b"factors")
    # In a model of the right kind the rows of clients count: initial ones, so that all items tie.
    found = json.loads(ask(b"private-factors"))
    assert found["sums"]["AUC"] == pytest.approx(found["users"] / 2, abs=0.01)


def test_sums_of_metrics_are_rounded(attacked):
    """Exact ones tell which of ten users an item counts for: how many they have left differs."""
    for kind in (EVALUATE, FINISH):
        sums = attacked.metrics(kind, 0)["sums"]
        assert {name: round(total, 2) for name, total in sums.items()} == sums != {}
