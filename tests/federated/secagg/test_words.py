"""Words of 32 bits in a federation: the sums of FedEASE, half the bytes, and no silent wrap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_federation import play_locally, sha256, world_for

pytest.importorskip("cryptography")

from coterie.algorithms import fedease, pair_sums
from coterie.algorithms.local import cooccurrence
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ContractError
from coterie.federated import trainer
from coterie.federated.costs import Costs
from coterie.federated.federation import AnyExchange, ClientTask, World
from coterie.federated.nodes import client_columns
from coterie.federated.secagg.ring_node import FORMS, RingHeader, RingStage
from coterie.federated.secagg.ring_session_bytes import pack_ring, unpack_ring
from coterie.federated.secagg.server import ABORTED, aggregate_securely
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.secagg.summed_vector import vector_length
from coterie.federated.secagg.words import fits, from_bytes, to_bytes, to_integers, to_words
from coterie.federated.trainer import Context
from coterie.federated.transcript import CLIENTS, SERVER, Transcript
from coterie.federated.validation import Reply
from coterie.types import Message, Updates

RING = {"secure_aggregation": "ring", "rounds": 2, "participation": 0.2}
PLAIN = {"rounds": 2, "participation": 0.2}


@pytest.fixture(scope="module")
def training(people) -> TrainingSet:
    return split(people, "temporal", 0.2, seed=0).training()


@pytest.fixture
def words_of_64_bits(monkeypatch) -> None:
    """FedEASE as on data where weights in 32 bits are too coarse."""
    monkeypatch.setattr(cooccurrence, "LEAST_WEIGHT", 1 << 40)


def with_secure_sum(**changes: Any) -> AnyExchange:
    """FedEASE's exchange with another declaration."""
    secure = pair_sums.EXCHANGE.secure_sum
    assert secure is not None
    return replace(pair_sums.EXCHANGE, secure_sum=replace(secure, **changes))


def play_exchange(exchange: AnyExchange, training: TrainingSet) -> tuple[Any, Costs]:
    """The state after one round of FedEASE with an exchange, and its costs."""
    federation = replace(fedease.ALGORITHM.train, exchanges=(exchange,))
    world = world_for("fedease", training, **RING)
    engine = LocalEngine.over(world, training, 1, True)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    return work.step(work.start()[0], 1)


# Integers


@pytest.mark.parametrize("word", [32, 64])
def test_signed_integers_become_words_and_back(word):
    largest = 2 ** (word - 1)
    integers = np.array([0, 1, -1, largest - 1, -largest], np.int64)
    words = to_words(integers, word)
    assert words.tolist() == [0, 1, 2**word - 1, largest - 1, largest]
    np.testing.assert_array_equal(to_integers(words, word), integers)
    content = to_bytes(words, word)
    assert len(content) == 5 * word // 8
    np.testing.assert_array_equal(from_bytes(content, word), words)


def test_a_bound_holds_in_both_directions():
    assert fits(np.array([3, -3]), 3)
    assert not fits(np.array([4, 0]), 3)
    assert not fits(np.array([0, -4]), 3)
    assert not fits(np.array([-(2**63)]), 3)
    assert fits(np.empty(0, np.int64), 3)


# FedEASE


@pytest.mark.parametrize("exponent", [0.0, 0.25])
@pytest.mark.parametrize(
    "changes",
    [{}, {"ring_size": 7}, {"ring_shares": "vector"}, {"client_dropout": 0.2}],
    ids=str,
)
def test_fedease_equals_plain_sums_in_words_of_32_bits(exponent, changes, training):
    plain = {key: value for key, value in changes.items() if key == "client_dropout"}
    settings = {"length_exponent": exponent}
    expected, _ = play_locally("fedease", training, 1, True, **PLAIN, **settings, **plain)
    states, costs_by_round = play_locally(
        "fedease", training, 2, True, **RING, **settings, **changes
    )
    assert [sha256(state) for state in states] == [sha256(state) for state in expected]
    assert all(costs.accepted >= 20 for costs in costs_by_round)
    assert states[-1].pairs.any()


@pytest.mark.usefixtures("words_of_64_bits")
def test_fedease_equals_plain_sums_in_words_of_64_bits(training):
    settings = {"length_exponent": 0.25}
    world = world_for("fedease", training, **settings)
    assert pair_sums.EXCHANGE.secure_sum.word(world) == 64
    expected, _ = play_locally("fedease", training, **PLAIN, **settings)
    states, _ = play_locally("fedease", training, 2, True, **RING, **settings)
    assert sha256(states[-1]) == sha256(expected[-1])


@pytest.mark.parametrize("exponent", [0.0, 0.25])
def test_servers_receive_words_of_32_bits(exponent, training):
    world = world_for("fedease", training, length_exponent=exponent, **RING)
    transcript = Transcript(LocalEngine.over(world, training, 2))
    work = trainer.federated_trainer(fedease.ALGORITHM.train, world, transcript, Context(0, SILENT))
    work.step(work.start()[0], 1)
    vectors = [
        line.arrays["vector"]
        for line in transcript.seen_by(SERVER)
        if line.sender == CLIENTS and "vector" in line.arrays
    ]
    assert vectors
    assert all(vector.dtype == np.uint32 for vector in vectors)


def test_words_of_32_bits_halve_the_bytes_of_a_round(training):
    short, short_costs = play_exchange(pair_sums.EXCHANGE, training)
    long, long_costs = play_exchange(with_secure_sum(word=lambda world: 64), training)
    assert sha256(short) == sha256(long)
    n = short_costs.accepted
    assert n == long_costs.accepted
    assert long_costs.bytes_up - short_costs.bytes_up == n * 4 * len(short.pairs)
    assert short_costs.bytes_up < 0.52 * long_costs.bytes_up
    # The header has the same size for every word.
    assert long_costs.bytes_down == short_costs.bytes_down


# Terms


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("word", [32, 64])
def test_a_node_refuses_a_header_with_another_word_at_every_stage(form, word, training):
    """The server's word counts only if it is the one that follows from the node's own world."""
    exchange = with_secure_sum(word=lambda world: word)
    world = world_for("fedease", training, **RING)
    (node,) = LocalEngine.over(world, training, 1).nodes
    users = np.arange(3, dtype=np.int32)
    header = RingHeader(0, form, 0, *pair_sums.sizes(world, None))
    slot = SessionSlot()

    def replies(stage: str, row: RingHeader, own: dict[str, np.ndarray]) -> int:
        message = Message(0, users, {"ring": np.array(row, np.int64)}, own)
        return len(RingStage(stage, exchange).run(world, message, node, slot)[0]["users"])

    agreed = FORMS[form][1] == word
    assert replies("advertise_keys", header, {}) == (3 if agreed else 0)
    if not agreed:
        assert slot.ring is None
        return
    message = Message(0, users, {}, {})
    length = vector_length(world, exchange, message, header.sizes, np.empty(0, np.int32))
    own = {
        "attempt": np.zeros(3, np.int32),
        "predecessor": np.roll(users, 1),
        "predecessor_key": np.ones((3, 32), np.uint8),
        "successor": np.roll(users, -1),
        "successor_key": np.full((3, 32), 9, np.uint8),
    }
    header = header._replace(length=length)
    for other, (_, other_word) in enumerate(FORMS):
        if other_word != word:
            assert replies("distribute_shares", header._replace(form=other), own) == 0
    assert replies("distribute_shares", header, own) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_entry": lambda world: 1 << 27}, "max_entry returned 134217728 for words of 32 bits"),
        ({"max_entry": lambda world: 0}, "max_entry returned 0"),
        ({"word": lambda world: 16}, "word returned 16; expected 32 or 64"),
    ],
    ids=["too large", "zero", "unknown word"],
)
def test_a_declaration_under_which_sums_could_wrap_is_refused(changes, message, training):
    with pytest.raises(ContractError, match=message):
        play_exchange(with_secure_sum(**changes), training)


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("n_users", [3, 50, 51, 1000, 10**6, 10**9])
@pytest.mark.parametrize("n_items", [2, 1000, 10**5])
def test_fedease_declares_a_bound_that_fits_its_word(exponent, n_users, n_items, training):
    world = world_for("fedease", training, length_exponent=exponent)
    world = replace(world, n_users=n_users, n_items=n_items)
    secure = pair_sums.EXCHANGE.secure_sum
    assert secure is not None
    bound = secure.max_entry(world)
    assert min(50, n_users) * bound < 2 ** (secure.word(world) - 1)
    # No history weighs more than one of a single item.
    counts = np.array([1, 2, n_items], np.int64)
    weights = cooccurrence.weights(counts, exponent, pair_sums.precision(world).scale)
    assert weights.max() == weights[0] == bound


# Entries that exceed their bound


def exceeding(user: int, by: int) -> Callable[[World, Message, Updates], dict[str, np.ndarray]]:
    """Sums in which one user has an entry that is too large."""

    def add_up(world: World, message: Message, updates: Updates) -> dict[str, np.ndarray]:
        sums = pair_sums.add_up(world, message, updates)
        if user in updates.users:
            sums["pairs"][5] += by
        return sums

    return add_up


@pytest.mark.parametrize("by", [1 << 32, -(1 << 32), 1 << 31, 2, -1 << 63])
def test_a_client_whose_entry_exceeds_the_bound_drops_out(by, training):
    """2^32 more is the same word: only the client itself can see that the entry does not fit."""
    exchange = pair_sums.EXCHANGE
    world = world_for("fedease", training, **RING)
    by *= pair_sums.precision(world).scale if by == 2 else 1
    state = fedease.init(world)
    cohort = pair_sums.sample(world, state, 0)
    user = int(cohort[4])
    after, costs = play_exchange(replace(exchange, aggregate=exceeding(user, by)), training)
    assert not after.added[user]
    assert costs.dropped == 1
    assert costs.accepted == len(cohort) - 1
    assert not costs.refused
    # The sum is that of the others.
    others = training.positives.of_users(np.flatnonzero(after.added))
    np.testing.assert_array_equal(after.pairs, pair_sums.sums_of(world, others)["pairs"])


@pytest.mark.parametrize("exponent", [0.0, 0.25])
def test_a_changed_upload_exceeds_the_bound_of_its_exchange(exponent, training):
    """The default bound is above 2^31: a sum of 32-bit words could not exceed it."""
    world = world_for("fedease", training, length_exponent=exponent, **RING)
    engine = LocalEngine.over(world, training, 1)
    state = fedease.init(world)
    cohort = pair_sums.sample(world, state, 0)

    def scrambling(task: ClientTask, message: Message) -> list[Reply]:
        (reply,) = engine.call(task, message)
        if isinstance(task, RingStage) and task.name == "upload":
            assert reply.columns is not None
            reply.columns["vector"][0] ^= np.random.default_rng(1).integers(
                0, 2**32, len(state.pairs), np.uint32
            )
        return [reply]

    message = pair_sums.broadcast(world, state, cohort, 0)
    result = aggregate_securely(world, pair_sums.EXCHANGE, state, message, scrambling)
    assert result.refused == {ABORTED: len(cohort)}
    assert not result.sums["pairs"].any()


# Sessions as bytes


@pytest.mark.parametrize("shares", ["seed", "vector"])
@pytest.mark.parametrize("exponent", [0.0, 0.25])
def test_sessions_survive_as_bytes_between_stages(shares, exponent, training):
    """A node that stores its session after every stage, with members that drop out."""
    exchange = pair_sums.EXCHANGE
    world = world_for(
        "fedease", training, length_exponent=exponent, **RING, ring_shares=shares, ring_size=10
    )
    (node,) = LocalEngine.over(world, training, 1).nodes
    state = fedease.init(world)
    cohort = pair_sums.sample(world, state, 1)
    stored = b""
    stages = []

    def call(task: ClientTask, message: Message) -> list[Reply]:
        nonlocal stored
        assert isinstance(task, RingStage)
        stages.append(task.name)
        slot = SessionSlot(unpack_ring(stored, world, exchange) if stored else None)
        columns, _ = client_columns(world, task, message, node, slot)
        assert slot.ring is not None
        stored = pack_ring(slot.ring)
        again = unpack_ring(stored, world, exchange)
        assert pack_ring(again) == stored
        for user, member in again.members.items():
            assert member.terms == slot.ring.members[user].terms
            assert member.terms.word == 32
            assert member.received_share is None or member.received_share.dtype == np.uint32
        return [Reply(message.users, message.round, columns, message.exchange)]

    message = pair_sums.broadcast(world, state, cohort, 1)
    absent = np.arange(len(cohort)) % 6 == 1
    result = aggregate_securely(world, exchange, state, message, call, absent)
    assert "recover" in stages
    users = np.sort(result.accepted.users)
    assert len(users) > len(cohort) / 2
    histories = training.positives.of_users(users)
    np.testing.assert_array_equal(
        result.sums["pairs"], pair_sums.sums_of(world, histories)["pairs"]
    )
