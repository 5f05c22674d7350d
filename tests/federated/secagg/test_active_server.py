"""Servers that lie to nodes, message by message: what `secagg` refuses and `ring` does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")

from small_federation import world_for
from telling_apart import words_auc

from coterie.algorithms import fcf, fedavg
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.aggregation import Aggregate
from coterie.federated.federation import AnyExchange, ClientTask
from coterie.federated.secagg.group_node import GroupStage
from coterie.federated.secagg.group_stages import advert_bytes
from coterie.federated.secagg.group_sum import GroupServer
from coterie.federated.secagg.group_terms import ROWS
from coterie.federated.secagg.server import ABORTED, aggregate_securely
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.secagg.session_bytes import pack_slot, unpack_slot
from coterie.federated.secagg.stages import ADVERTISE, AGREE, SHARE, UNMASK, UPLOAD
from coterie.federated.validation import Reply
from coterie.types import Message, Updates

Lie = Callable[[str, int, Message], Message]
"""(stage, node, message) -> what the node receives instead."""
N_NODES = 5
COHORT = np.arange(5, 25, dtype=np.int32)


@pytest.fixture(scope="module")
def training(people) -> TrainingSet:
    return split(people, "temporal", 0.2, seed=0).training()


@dataclass
class Site:
    """FCF on five nodes, and a server that may lie to single ones."""

    engine: LocalEngine
    world: Any
    exchange: AnyExchange
    init: Callable[[Any], Any]
    lie: Lie = lambda stage, node, message: message
    listen: Callable[..., Reply] = field(init=False)
    """Sends a message to a node."""
    stored: bool = False
    """Whether nodes write their sessions and read them again at every stage."""
    replied: Counter[str] = field(default_factory=Counter)
    """Clients that replied, by stage."""

    def __post_init__(self) -> None:
        self.listen = self.engine._call

    def call(self, task: ClientTask, message: Message) -> list[Reply]:
        replies = []
        for node in range(N_NODES):
            part = message.to(message.users % N_NODES == node)
            if not len(part.users):
                continue
            if self.stored:
                self.through_bytes(node)
            part = self.lie(task.name, node, part)
            reply = self.listen(task, part, self.engine.nodes[node], self.engine.slots[node])
            self.replied[task.name] += len(reply.columns["users"])
            replies.append(reply)
        return replies

    def through_bytes(self, node: int) -> None:
        slot = self.engine.slots[node]
        data = pack_slot(slot)
        again = unpack_slot(
            data,
            self.engine.world,
            self.engine.nodes[node],
            self.exchange,
            lambda number: self.exchange,
        )
        assert pack_slot(again) == data
        slot.ring, slot.round, slot.groups = again.ring, again.round, again.groups

    def sums(self, cohort: np.ndarray = COHORT, t: int = 3, model: float = 0.1) -> Aggregate:
        """One exchange of a round, without its end: sessions stay open."""
        state = self.init(self.world)
        message = self.message(cohort, t, model)
        return aggregate_securely(self.world, self.exchange, state, message, self.call)

    def message(self, cohort: np.ndarray = COHORT, t: int = 3, model: float = 0.1) -> Message:
        state = self.init(self.world)
        state = replace(state, item_rows=np.full_like(state.item_rows, model))
        return self.exchange.broadcast(self.world, state, cohort, t)


def site(
    training: TrainingSet, lie: Lie | None = None, algorithm: str = "fcf", **settings: Any
) -> Site:
    chosen = {"secure_aggregation": "secagg", "embedding_size": 3} | settings
    world = world_for(algorithm, training, **chosen)
    module = {"fcf": fcf, "fedavg": fedavg}[algorithm]
    engine = LocalEngine.over(world, training, N_NODES, True)
    made = Site(engine, world, module.EXCHANGE, module.ALGORITHM.train.init)
    if lie is not None:
        made.lie = lie
    return made


def with_common(message: Message, **arrays: np.ndarray) -> Message:
    return replace(message, common=message.common | arrays)


def test_an_honest_server_gets_the_sum(training):
    honest = site(training)
    assert honest.sums().accepted.users.tolist() == COHORT.tolist()


def test_sessions_survive_as_bytes_between_all_stages(training):
    plain, stored = site(training), site(training)
    stored.stored = True
    for settings in ({}, {"t": 4}):
        sums = [each.sums(**settings).sums["items"] for each in (plain, stored)]
        np.testing.assert_array_equal(*sums)


# The same round again


def test_a_repeated_exchange_gets_the_same_sum(training):
    repeating = site(training)
    first, second = repeating.sums(), repeating.sums()
    np.testing.assert_array_equal(first.sums["items"], second.sums["items"])
    assert second.accepted.users.tolist() == COHORT.tolist()


def test_a_round_with_one_client_fewer_is_refused(training):
    """The difference of the two sums would be the update of that client."""
    replaying = site(training)
    assert len(replaying.sums().accepted.users) == len(COHORT)
    again = replaying.sums(COHORT[1:])
    assert again.refused == {ABORTED: len(COHORT) - 1}
    assert not again.sums["items"].any()
    # Nor with another model, nor in an earlier round; the next round goes on.
    assert replaying.sums(model=0.2).refused == {ABORTED: len(COHORT)}
    assert replaying.sums(t=2).refused == {ABORTED: len(COHORT)}
    assert len(replaying.sums(COHORT[1:], t=4).accepted.users) == len(COHORT) - 1


def test_a_ring_sums_a_round_with_one_client_fewer(training):
    """Known limit of `ring`: the difference is the update of a single client."""
    replaying = site(training, secure_aggregation="ring")
    whole = replaying.sums().sums["items"]
    less = replaying.sums(COHORT[1:]).sums["items"]
    alone = site(training, secure_aggregation="ring")
    update = fcf.EXCHANGE.client_update(
        alone.engine.world,
        Message(
            3,
            COHORT[:1],
            {"item_rows": np.full((alone.world.n_items, 3), 0.1, np.float32)},
            {},
        ),
        alone.engine.nodes[int(COHORT[0]) % N_NODES],
    )
    own = fcf.add_up(alone.world, Message(3, COHORT[:1], {}, {}), update[0])["items"]
    np.testing.assert_array_equal(whole - less, own)


@pytest.mark.parametrize("stage", [SHARE, UPLOAD, AGREE, UNMASK])
def test_other_terms_do_not_end_an_exchange(stage, training):
    """An advertise message with another model gets no reply, and the exchange goes on."""
    interrupted = site(training)
    engine = interrupted.engine
    task = GroupStage(ADVERTISE, interrupted.exchange)
    adverts: dict[int, Message] = {}
    replies: list[Reply] = []

    def lie(at: str, node: int, message: Message) -> Message:
        if at == ADVERTISE:
            adverts[node] = message
        if at == stage:
            zeros = np.zeros_like(adverts[node].common["item_rows"])
            other = with_common(adverts[node], item_rows=zeros)
            replies.append(interrupted.listen(task, other, engine.nodes[node], engine.slots[node]))
        return message

    interrupted.lie = lie
    result = interrupted.sums()
    assert [len(reply.columns["users"]) for reply in replies] == [0] * N_NODES
    assert result.accepted.users.tolist() == COHORT.tolist()
    np.testing.assert_array_equal(result.sums["items"], site(training).sums().sums["items"])


def test_a_client_takes_part_in_one_group_of_an_exchange(training):
    """The server assigns a client to a second group after it agreed to survivors of the first."""
    twice = site(training, group_size=19)
    assert len(twice.sums().accepted.users) == len(COHORT)
    settings = twice.world.settings.model_copy(update={"group_size": 100})
    again = replace(twice, world=replace(twice.world, settings=settings))
    assert again.sums().refused == {ABORTED: len(COHORT)}
    assert len(again.sums(t=4).accepted.users) == len(COHORT)


# Lies to single nodes


def test_another_model_for_one_node(training):
    """Model inconsistency: its clients accept nobody, and nobody accepts them."""

    def lie(stage: str, node: int, message: Message) -> Message:
        if stage == ADVERTISE and node == 2:
            return with_common(message, item_rows=np.zeros_like(message.common["item_rows"]))
        return message

    result = site(training, lie).sums()
    assert set((result.accepted.users % N_NODES).tolist()) == {0, 1, 3, 4}


def test_equivocation_about_survivors(training):
    """Nodes are told different survivors: no set has a quorum, and nobody releases a share."""

    def lie(stage: str, node: int, message: Message) -> Message:
        if stage == AGREE:
            return with_common(message, survivors=message.common["survivors"][node // 2 :])
        return message

    lying = site(training, lie)
    result = lying.sums()
    assert result.refused == {ABORTED: len(COHORT)}
    assert lying.replied[AGREE] > 0 == lying.replied[UNMASK]


def test_equivocation_towards_a_minority_is_harmless(training):
    """The other set has a quorum, so that only its sum can be recovered."""

    def lie(stage: str, node: int, message: Message) -> Message:
        if stage == AGREE and node % 2:
            return with_common(message, survivors=message.common["survivors"][1:])
        return message

    result = site(training, lie).sums()
    np.testing.assert_array_equal(result.sums["items"], site(training).sums().sums["items"])


def test_forged_agreement(training):
    """Survivors that nobody signed, with the signatures of the real ones."""

    def lie(stage: str, node: int, message: Message) -> Message:
        if stage == AGREE:
            return with_common(message, survivors=message.common["survivors"][:-1])
        if stage == UNMASK:
            return with_common(message, signatures=message.common["signatures"][::-1].copy())
        return message

    result = site(training, lie).sums()
    assert result.refused == {ABORTED: len(COHORT)}


@pytest.mark.parametrize("place", ["mask key", "cipher key", "digest", "signature", "holder"])
def test_changed_adverts(place, training):
    """A key that the server makes up, or any other change: the clients that receive it refuse."""
    at = {"mask key": 0, "cipher key": 40, "digest": 70, "signature": 100, "holder": 160}[place]

    def lie(stage: str, node: int, message: Message) -> Message:
        if stage != SHARE or node != 1:
            return message
        adverts = message.own["adverts"].copy()
        adverts[..., at] ^= 1
        return replace(message, own=message.own | {"adverts": adverts})

    result = site(training, lie).sums()
    assert set((result.accepted.users % N_NODES).tolist()) == {0, 2, 3, 4}


def test_groups_that_hide_nobody(training):
    """The server tells a node that the group has two clients, or clients that nobody knows."""
    for members in (COHORT[:2], COHORT[:4], COHORT[::-1].copy(), COHORT[:0]):

        def lie(stage: str, node: int, message: Message, members=members) -> Message:
            return with_common(message, members=members) if stage == ADVERTISE else message

        result = site(training, lie).sums()
        assert result.refused == {ABORTED: len(COHORT)}
        assert not result.sums["items"].any()


MALFORMED: list[tuple[str, str, Any]] = [
    (ADVERTISE, "group", np.zeros(3, np.int64)),
    (ADVERTISE, "group", np.zeros(6)),
    (ADVERTISE, "group", np.full(6, -1, np.int64)),
    (ADVERTISE, "group", np.array([0, 7, 1, 1, 1, 1])),
    (ADVERTISE, "members", np.zeros(20, np.int32)),
    (ADVERTISE, "members", np.zeros(20)),
    (SHARE, "neighbours", np.zeros((4, 3), np.int64)),
    (SHARE, "neighbours", np.zeros(4, np.int32)),
    (SHARE, "adverts", np.zeros((4, 3, advert_bytes(19)), np.uint8)),
    (UPLOAD, "shared", np.zeros(3, np.int32)),
    (UPLOAD, "ciphertexts", np.zeros((4, 3, 4), np.uint8)),
    (UPLOAD, "owners", np.zeros((4, 3), np.int64)),
    (AGREE, "survivors", np.array([3, 2, 1], np.int32)),
    (AGREE, "survivors", np.array(3, np.int32)),
    (UNMASK, "agreed", np.arange(2, dtype=np.int32)),
    (UNMASK, "signatures", np.zeros((20, 63), np.uint8)),
    (UNMASK, "signatures", np.zeros((20, 64))),
]


@pytest.mark.parametrize(("stage", "name", "array"), MALFORMED)
def test_malformed_messages_get_no_reply(stage, name, array, training):
    def lie(at: str, node: int, message: Message) -> Message:
        if at != stage:
            return message
        if name in message.own:
            return replace(message, own=message.own | {name: array})
        return with_common(message, **{name: array})

    result = site(training, lie).sums()
    assert result.refused == {ABORTED: len(COHORT)}


# The union of rows


def touched_by(site: Site, item: int) -> set[int]:
    """The clients whose update has a row of an item."""
    return {user for user, items in touched_items(site).items() if item in items}


def touched_items(site: Site, t: int = 3) -> dict[int, np.ndarray]:
    """User -> the items in its update."""
    message = site.message(t=t)
    found = {}
    for node in range(N_NODES):
        part = message.to(message.users % N_NODES == node)
        updates = site.exchange.client_update(site.engine.world, part, site.engine.nodes[node])
        assert isinstance(updates, Updates)
        parts = np.split(updates.items, updates.offsets[1:-1])
        found |= dict(zip(updates.users.tolist(), parts, strict=True))
    return found


@pytest.mark.long
def test_who_touched_an_item_of_the_union_cannot_be_told(training):
    """Of the rows in the union, those that a client touched look like the others in its upload."""
    pytest.importorskip("sklearn")
    uploads: dict[int, np.ndarray] = {}
    union: list[np.ndarray] = []
    watched = site(training, algorithm="fedavg", group_rows="union")

    def watch(stage: str, node: int, message: Message) -> Message:
        if stage == ADVERTISE and "rows" in message.common:
            union.append(message.common["rows"])
        return message

    call = watched.engine._call

    def listening(task: Any, part: Message, node: Any, slot: Any) -> Reply:
        reply = call(task, part, node, slot)
        assert reply.columns is not None
        if task.name == UPLOAD and part.common["group"][1] == ROWS:
            columns = reply.columns
            uploads.update(zip(columns["users"].tolist(), columns["vector"], strict=True))
        return reply

    watched.lie = watch
    watched.listen = listening
    touched, others = [], []
    for t in range(3, 15):
        watched.sums(t=t)
        rows = np.flatnonzero(np.unpackbits(union[-1], count=watched.world.n_items))
        for user, items in touched_items(watched, t).items():
            is_touched = np.isin(rows, items)
            touched.append(uploads[user][rows[is_touched]])
            others.append(uploads[user][rows[~is_touched]])
    first, second = np.concatenate(touched), np.concatenate(others)
    assert min(len(first), len(second)) > 4_000
    assert words_auc(first, second) == pytest.approx(0.5, abs=0.02)


def test_a_union_without_a_row_tells_nothing(training, monkeypatch):
    """Who touched the row sends zeros: a client that took no part would tell that it did."""
    removed = 7
    run = GroupServer.run

    def lying_run(self: GroupServer, phase: int, *others: Any) -> Any:
        vector, users = run(self, phase, *others)
        if phase == ROWS:
            assert vector[removed] != 0
            vector[removed] = 0
        return vector, users

    monkeypatch.setattr(GroupServer, "run", lying_run)
    lying = site(training, algorithm="fedavg", group_rows="union")
    touched = touched_by(lying, removed)
    assert 0 < len(touched) < len(COHORT)
    result = lying.sums()
    assert result.accepted.users.tolist() == COHORT.tolist()
    monkeypatch.undo()
    others = np.array([user for user in COHORT.tolist() if user not in touched], np.int32)
    expected = site(training, algorithm="fedavg").sums(others)
    np.testing.assert_array_equal(result.sums["items"], expected.sums["items"])


def test_a_model_that_makes_updates_invalid_tells_nothing(training):
    """Values so large that updates are out of range: all clients still take part, with zeros."""
    result = site(training).sums(model=1e30)
    assert result.accepted.users.tolist() == COHORT.tolist()
    assert not result.sums["items"].any()


def test_a_slot_keeps_sessions_of_one_round():
    slot = SessionSlot()
    assert slot.begins(3)
    assert slot.begins(3)
    assert not slot.begins(2)
    assert slot.begins(4)
    slot.discard()
    assert slot.begins(0)
