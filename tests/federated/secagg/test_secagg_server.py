"""Federations under secure aggregation: bit-identical models, and no update in the clear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

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
from coterie.federated.federation import (
    AGGREGATION,
    ClientTask,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    World,
)
from coterie.federated.secagg import exposure
from coterie.federated.secagg import server as secagg_server
from coterie.federated.secagg.ring import Ring, collect_keys
from coterie.federated.secagg.ring_member import RingMember, RingTerms
from coterie.federated.secagg.ring_node import FORMS, RingHeader, RingStage, reply_to
from coterie.federated.secagg.session import SessionSlot
from coterie.federated.secagg.stages import StageArrays
from coterie.federated.secagg.summed_vector import vector_length
from coterie.federated.transcript import CLIENTS, SERVER, Transcript
from coterie.federated.validation import MOST_SAMPLES, Reply
from coterie.types import TOO_LARGE, Ints, Message

ONE_USER_PER_ROUND = ("sfpl", "sfpl+")
"""Algorithms with one user per round: a sum over one user hides nothing."""


def offers_ring(name: str) -> bool:
    train = registry.algorithm(name).train
    assert isinstance(train, Federation)
    has_ring = any(isinstance(e, Exchange) and e.secure_sum for e in train.exchanges)
    return has_ring and name not in ONE_USER_PER_ROUND


OFFERED = [name for name in FEDERATED if offers_ring(name)]
TOWERS = [name for name in OFFERED if "tower" in registry.algorithm(name).settings.model_fields]


@pytest.fixture(scope="module")
def training(people) -> TrainingSet:
    return split(people, "temporal", 0.2, seed=0).training()


def smaller(name: str, **changes: Any) -> dict[str, Any]:
    small = {"rounds": 2, "users_per_round": 14}
    if name in TOWERS:
        small |= {"inputs": 20, "embedding_size": 4}
    return small | changes


def test_which_algorithms_offer_secure_aggregation():
    assert set(OFFERED) == {
        "fedavg",
        "fedfast",
        "fedavg+actvsamp",
        "fedavg+actvagg",
        "fedbso",
        "fcf",
        "fedals",
        "fedrecon",
        "fedncf",
        "fedmf",
        "colr",
        "lightfr",
        "fedease",
        "fedslim",
        "fedmvmf",
        "pfedrec",
        "fedrap",
        "pfpl",
        "pfpl+",
        "fl-dssm",
        "fl-clsm",
        "sttfedrec-dssm",
        "sttfedrec-clsm",
    }


RING = {"secure_aggregation": "ring"}
SECAGG = {"secure_aggregation": "secagg"}
# In groups of up to 40 all mask with all: whether a group completes is not up to chance.
DROPOUTS = SECAGG | {"client_dropout": 0.15, "colluders": 0, "group_size": 20}
UNION = {"group_rows": "union"}
FEW = ["fedfast", "fcf", "fedals", "sttfedrec-dssm"]
CASES = [(name, changes) for name in OFFERED for changes in (RING, SECAGG, DROPOUTS | UNION)] + [
    (name, changes)
    for name in FEW
    for changes in (
        RING | {"ring_size": 5},
        RING | {"ring_rows": "union", "ring_size": 6},
        RING | {"ring_shares": "vector"},
        SECAGG | {"group_size": 10, "smallest_group": 4, "colluders": 1},
        SECAGG | UNION,
        DROPOUTS,
    )
]


@pytest.mark.parametrize(("name", "changes"), CASES, ids=str)
def test_models_equal_those_of_plain_sums(name, changes, training):
    """Through the wire format, so that towers too are computed client by client."""
    plain = {key: value for key, value in changes.items() if key == "client_dropout"}
    expected, _ = play_locally(name, training, 1, True, **smaller(name, **plain))
    states, costs_by_round = play_locally(name, training, 1, True, **smaller(name, **changes))
    assert [sha256(state) for state in states] == [sha256(state) for state in expected]
    assert all(costs.accepted >= 7 for costs in costs_by_round)


@pytest.mark.long
def test_dropouts_in_large_groups_are_reproducible(training):
    """Who drops out, who holds shares, and so which groups are completed follow from the seed."""
    changes = SECAGG | {"client_dropout": 0.2, "rounds": 6, "participation": 0.3}
    runs = [play_locally("fcf", training, 1, True, **changes) for _ in range(2)]
    states = [[sha256(state) for state in states] for states, _ in runs]
    assert states[0] == states[1]
    accepted = [[costs.accepted for costs in costs_by_round] for _, costs_by_round in runs]
    assert accepted[0] == accepted[1]
    assert len(set(accepted[0])) > 1


def test_rings_are_aborted_by_dropouts_after_the_upload(training):
    """Rounds equal those of plain sums until a ring is aborted: a neighbour's help is missing."""
    settings = smaller("fcf", client_dropout=0.2, rounds=8)
    expected, _ = play_locally("fcf", training, 1, True, **settings)
    states, costs_by_round = play_locally(
        "fcf", training, 1, True, **settings, secure_aggregation="ring"
    )
    aborted = [bool(costs.refused[secagg_server.ABORTED]) for costs in costs_by_round]
    assert any(aborted)
    complete = aborted.index(True) + 1  # the first state is the initial one
    assert complete > 1
    for state, other in list(zip(states, expected, strict=True))[:complete]:
        assert sha256(state) == sha256(other)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, RING) for name in ("fedfast", "pfpl+", "fcf", "sttfedrec-dssm")),
        ("fedfast", DROPOUTS | UNION),
        ("sttfedrec-dssm", SECAGG),
    ],
    ids=str,
)
def test_clients_may_be_on_several_nodes(name, changes, training):
    one, many = (
        play_locally(name, training, nodes, True, **smaller(name, **changes))[0] for nodes in (1, 5)
    )
    assert sha256(one[-1]) == sha256(many[-1])


@pytest.mark.parametrize("name", OFFERED)
def test_no_update_leaves_a_device_in_the_clear(name, training):
    """Servers receive uniform vectors, and in the clear only what the algorithm declares."""
    world = world_for(name, training, **smaller(name, secure_aggregation="ring"))
    transcript = Transcript(LocalEngine.over(world, training, 2))
    play(name, world, transcript)
    lines = [
        line
        for role in (SERVER, AGGREGATION)
        for line in transcript.seen_by(role)
        if line.sender == CLIENTS
    ]
    received = {key for line in lines for key in line.arrays}
    assert "vector" in received
    allowed = {"users", "stage", "key", "vector", "self_mask"}
    allowed |= {"share_ciphertext", "self_mask_ciphertext"}
    if name.startswith("fed") and name != "fedmvmf":
        allowed |= {"samples", "user_rows"}
    if "fast" in name or "actv" in name or name == "fedbso":
        # Statistics before the first round: an update without items.
        allowed |= {"offsets", "items", "item_rows", "dense"}
        assert not any(line.arrays["items"].size for line in lines if "items" in line.arrays)
    assert received <= allowed
    entries = np.concatenate(
        [line.arrays["vector"].ravel() for line in lines if "vector" in line.arrays]
    )
    n = len(entries)
    modulus = 2.0 ** (8 * entries.itemsize)
    # Uniform words repeat so often by chance; an unmasked update has thousands of zeros.
    by_chance = n * n / 2 / modulus
    assert n - len(np.unique(entries)) <= 10 * by_chance
    assert abs(np.mean(entries / modulus) - 0.5) < 5 / np.sqrt(12 * n)


def test_bytes_are_counted_for_both_share_forms_and_both_choices_of_rows(training):
    bytes_up = {}
    for rows, shares in (("all", "seed"), ("union", "seed"), ("all", "vector")):
        ring = {"secure_aggregation": "ring", "ring_rows": rows, "ring_shares": shares}
        _, costs_by_round = play_locally("pfpl", training, **smaller("pfpl", **ring))
        bytes_up[rows, shares] = sum(costs.bytes_up for costs in costs_by_round)
    _, plain = play_locally("pfpl", training, **smaller("pfpl"))
    assert bytes_up["union", "seed"] < bytes_up["all", "seed"] < bytes_up["all", "vector"]
    assert sum(costs.bytes_up for costs in plain) < bytes_up["union", "seed"]


def test_rings_differ_in_size_by_at_most_one():
    for n, size in (
        (3, 50),
        (50, 50),
        (51, 50),
        (120, 50),
        (200, 50),
        *((n, 5) for n in range(3, 40)),
    ):
        parts = secagg_server.assign_rings(np.arange(n, dtype=np.int32), size, 1, 2)
        assert sorted(np.concatenate(parts).tolist()) == list(range(n))
        assert min(map(len, parts)) >= 3
        assert max(map(len, parts)) <= size
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert not np.array_equal(
        secagg_server.assign_rings(np.arange(20), 50, 1, 2)[0],
        secagg_server.assign_rings(np.arange(20), 50, 1, 3)[0],
    )


def test_a_round_whose_rings_are_all_aborted_changes_nothing(training):
    """Nine in ten clients drop out: half of a ring never survives."""
    states, costs_by_round = play_locally(
        "fcf",
        training,
        **smaller("fcf", secure_aggregation="ring", client_dropout=0.9, participation=0.2),
    )
    for costs in costs_by_round:
        assert costs.accepted == 0
        # A client that dropped out counts as dropped, not as refused.
        aborted = costs.refused[secagg_server.ABORTED]
        assert aborted + costs.dropped == len(costs.users)
        assert costs.dropped > len(costs.users) / 2
    assert len({sha256(state) for state in states}) == 1


@pytest.mark.parametrize("name", ONE_USER_PER_ROUND)
def test_algorithms_that_need_single_updates_are_refused(name, training):
    with pytest.raises(ConfigError, match="secure_aggregation is 'ring'"):
        play_locally(name, training, rounds=1, secure_aggregation="ring")


def test_what_a_ring_exposes_is_logged(training):
    class Log(Progress):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def log(self, text: str) -> None:
            self.lines.append(text)

    for name, exposed in (
        ("fedfast", "their row"),
        ("fedfast", "statistics"),
        ("sttfedrec-dssm", "items they request"),
        ("fcf", ""),
    ):
        progress = Log()
        world = world_for(name, training, **smaller(name, secure_aggregation="ring"))
        play(name, world, LocalEngine.over(world, training, 1), progress=progress)
        assert progress.lines[0].startswith("ring: rings of up to 50 clients")
        if exposed:
            assert any(exposed in line for line in progress.lines[1:])
        else:
            assert len(progress.lines) == 1


def test_a_run_reports_once_what_secagg_withstands(training):
    class Log(Progress):
        lines: ClassVar[list[str]] = []

        def log(self, text: str) -> None:
            self.lines.append(text)

    changes = {"group_size": 30, "holders": 12, "colluders": 3, "rounds": 2, "participation": 0.3}
    world = world_for("fcf", training, secure_aggregation="secagg", **changes)
    play("fcf", world, LocalEngine.over(world, training, 1), progress=Log())
    assert Log.lines == [
        "secagg: groups of up to 30 clients; each shares its secrets among up to 12 others, of "
        "whom 3 may collude with the server"
    ]


def test_the_union_of_a_group_shows_nothing_of_a_single_user(training):
    """The union of a ring is made from what each user touched; that of a group is a sum."""
    federation = registry.algorithm("fcf").train
    ring = world_for("fcf", training, secure_aggregation="ring", ring_rows="union")
    assert exposure.in_the_clear(federation, ring) == ["which items they touched (ring_rows=union)"]
    group = world_for("fcf", training, secure_aggregation="secagg", group_rows="union")
    assert exposure.in_the_clear(federation, group) == []
    assert exposure.only_sums(federation, group)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_updates_of_a_full_ring_are_summed_exactly(sign):
    """The largest entry times the largest sample count; a full cohort's sum stays below 2^63."""
    largest = sign * (TOO_LARGE - 1) * MOST_SAMPLES
    terms = RingTerms(0, 0, 0, 3)
    vector = np.full(3, largest, np.int64).view(np.uint64)
    members = {user: RingMember(user, terms, lambda: vector) for user in range(50)}

    def send(stage: str, users: np.ndarray, own: StageArrays) -> dict[int, StageArrays]:
        replies = reply_to(stage, members, users.tolist(), own)
        rows = {name: array for name, array in replies.items() if name not in ("users", "stage")}
        return {
            user: {name: array[k] for name, array in rows.items()}
            for k, user in enumerate(replies["users"].tolist())
        }

    replies = collect_keys(send, np.arange(50, dtype=np.int32), {})
    keys = {user: reply["key"].tobytes() for user, reply in replies.items()}
    ring_sum = Ring(terms, send, 25).aggregate(keys)
    assert ring_sum.vector.view(np.int64).tolist() == [50 * largest] * 3
    assert selection.MOST_USERS * (TOO_LARGE - 1) * max(TOO_LARGE - 1, MOST_SAMPLES) < 2**63


def test_ring_settings_are_validated():
    from coterie.errors import UserError

    for changes in (
        {"secure_aggregation": "rings"},
        {"ring_size": 4},
        {"ring_size": 51},
        {"ring_rows": "some"},
    ):
        with pytest.raises((UserError, ValueError)):
            few_settings("fcf", **changes)


# Malformed messages


class Advertised(NamedTuple):
    """A node whose users advertised keys in a ring, and what they received for it."""

    world: World
    node: NodeData
    exchange: Exchange
    users: Ints
    header: RingHeader
    message: Message
    slot: SessionSlot


@dataclass(frozen=True)
class ChangedEngine(Engine):
    """An engine whose replies a test changes."""

    engine: LocalEngine
    call: Callable[[ClientTask, Message], list[Reply]]

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)


def advertised(name: str, training: TrainingSet) -> Advertised:
    world = world_for(name, training, **smaller(name, secure_aggregation="ring"))
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    (node,) = LocalEngine.over(world, training, 1).nodes
    exchange = next(e for e in federation.exchanges if isinstance(e, Exchange))
    state = replace(federation.init(world), **federation.init_clients(world, node))
    users = federation.sample(world, state.without_private(), 0)
    sizes = exchange.sizes(world, state)
    assert exchange.secure_sum is not None
    form = FORMS.index(("seed", exchange.secure_sum.word(world)))
    header = RingHeader(0, form, 0, *sizes)
    message = exchange.broadcast(world, state.without_private(), users, 0)
    private_state = {key: getattr(state, key)[users] for key in state.private}
    message = replace(
        message,
        common=message.common | {"ring": np.array(header, np.int64)},
        private_state=private_state,
    )
    slot = SessionSlot()
    replies, _ = RingStage("advertise_keys", exchange).run(world, message, node, slot)
    assert len(replies["users"]) == len(users)
    return Advertised(world, node, exchange, users, header, message, slot)


VALID = {
    "attempt": np.zeros(3, np.int32),
    "predecessor": np.arange(1000, 1003, dtype=np.int32),
    "successor": np.arange(2000, 2003, dtype=np.int32),
    "predecessor_key": np.full((3, 32), 9, np.uint8),
    "successor_key": np.full((3, 32), 8, np.uint8),
}
INVALID = [
    {"attempt": np.zeros((3, 2), np.int32)},
    {"attempt": np.zeros(2, np.int32)},
    {"attempt": np.full(3, np.nan)},
    {"predecessor_key": np.ones((3, 31), np.uint8)},
    {"successor": np.zeros(3, np.int64)},
    {"more": np.zeros(3)},
    {"successor_key": np.array(3, np.uint8)},
]


@pytest.mark.parametrize(
    "change",
    INVALID,
    ids=lambda change: f"{next(iter(change))} {next(iter(change.values())).shape}",
)
def test_clients_ignore_invalid_arrays(change, training):
    world, node, exchange, users, header, message, slot = advertised("fcf", training)
    rows = np.arange(header.items, dtype=np.int32)
    length = vector_length(world, exchange, message, header.sizes, rows)
    common = {"ring": np.array(header._replace(length=length), np.int64)}
    stage = RingStage("distribute_shares", exchange)
    valid = Message(0, users[:3], common, VALID)
    invalid = Message(0, users[:3], common, VALID | change)
    assert len(stage.run(world, valid, node, slot)[0]["users"]) == 3
    assert not len(stage.run(world, invalid, node, slot)[0]["users"])


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
def test_clients_ignore_invalid_ring_headers(row, training):
    world, node, exchange, users, _, _, slot = advertised("fcf", training)
    common = {} if row is None else {"ring": row}
    message = Message(0, users, common, {})
    for name in ("advertise_keys", "distribute_shares", "upload"):
        assert not len(RingStage(name, exchange).run(world, message, node, slot)[0]["users"])


@pytest.mark.parametrize(
    "change",
    [
        {"length": 5},
        {"length": 1 << 50},
        {"items": 3},
        {"dense": 9},
        {"number": 1},
        {"form": 0},
        {"form": 1},
    ],
)
def test_clients_distribute_no_shares_on_other_terms(change, training):
    world, node, exchange, users, header, message, slot = advertised("fcf", training)
    rows = np.arange(header.items, dtype=np.int32)
    length = vector_length(world, exchange, message, header.sizes, rows)
    changed = header._replace(length=length)._replace(**change)
    common = {"ring": np.array(changed, np.int64)}
    stage = RingStage("distribute_shares", exchange)
    message = Message(0, users[:3], common, VALID)
    assert not len(stage.run(world, message, node, slot)[0]["users"])


@pytest.mark.parametrize(
    "users",
    [np.array(3, np.int32), np.zeros((2, 2), np.int32), np.zeros(2), np.array([99, 98], np.int32)],
    ids=lambda u: str(u.shape),
)
def test_malformed_replies_count_as_dropouts(users, training):
    world = world_for("fcf", training, **smaller("fcf", secure_aggregation="ring"))
    engine = LocalEngine.over(world, training, 2)

    def garbled(task: ClientTask, message: Message) -> list[Reply]:
        first, *rest = engine.call(task, message)
        columns = first.columns or {}
        if isinstance(task, RingStage):
            columns = columns | {"users": users}
        return [replace(first, columns=columns), *rest]

    _, costs_by_round = play("fcf", world, ChangedEngine(engine, garbled))
    assert all(
        costs.accepted + costs.refused[secagg_server.ABORTED] > 0 for costs in costs_by_round
    )


def test_a_reply_replayed_at_another_stage_is_ignored(training):
    """An upload replayed in place of a correction: the same arrays, another stage."""
    world = world_for(
        "fcf", training, **smaller("fcf", secure_aggregation="ring", client_dropout=0.2, rounds=3)
    )
    engine = LocalEngine.over(world, training, 1)
    uploads: list[Reply] = []
    replayed = False

    def replaying(task: ClientTask, message: Message) -> list[Reply]:
        nonlocal replayed
        replies = engine.call(task, message)
        if isinstance(task, RingStage) and task.name == "upload":
            uploads.append(replies[0])
        if isinstance(task, RingStage) and task.name == "recover":
            replayed = True
            return [replace(uploads[-1], selected=message.users)]
        return replies

    _, costs_by_round = play("fcf", world, ChangedEngine(engine, replaying))
    assert replayed
    assert any(costs.refused[secagg_server.ABORTED] for costs in costs_by_round)


@pytest.mark.parametrize("mode", ["sticky", "resampled", "whole"])
def test_users_with_all_items_may_send_requests(mode):
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


def test_aborted_rings_are_not_divergence():
    """The advice for aborted rings is about dropout, not about the learning rate."""
    from collections import Counter

    from coterie.experiments.history import TrainingHistory
    from coterie.experiments.training import check_refusals

    class Log(Progress):
        text = ""

        def log(self, text: str) -> None:
            self.text += text

    selected: Ints = np.zeros(3, np.int32)
    progress = Log()
    check_refusals(
        TrainingHistory(selected, refused=Counter({secagg_server.ABORTED: 90})), progress
    )
    assert "90 updates were lost in aborted secure aggregations" in progress.text
    assert "client_dropout" in progress.text
    assert "diverg" not in progress.text


def test_whole_requests_expose_nothing():
    """A request for all items does not show the recommendation server what a user is after."""
    federation = registry.algorithm("sttfedrec-dssm").train
    for mode, n_exposed in (("resampled", 1), ("whole", 0)):
        world = world_for(
            "sttfedrec-dssm", histories(1, 30, 15), secure_aggregation="ring", requests=mode
        )
        assert len(exposure.in_the_clear(federation, world)) == n_exposed


def test_ring_settings_need_secure_aggregation():
    settings = registry.algorithm("fcf").settings
    with pytest.raises(ConfigError, match="'ring_size' is 10, but secure_aggregation is 'none'"):
        settings.of({"ring_size": 10})
    assert settings.of({"ring_size": 10, "secure_aggregation": "ring"}).ring_size == 10


def test_groups_that_a_round_is_split_into_are_not_too_small():
    """Twenty users in groups of up to 19 are ten and ten."""
    settings = registry.algorithm("fcf").settings
    secagg = {"secure_aggregation": "secagg"}
    with pytest.raises(ConfigError, match=r"'group_size' is 18, .* needs 10 users .* least 19"):
        settings.of(secagg | {"group_size": 18})
    for colluders in range(4):
        size = 2 * colluders + 5
        chosen = settings.of(
            secagg | {"group_size": size, "colluders": colluders, "smallest_group": 3}
        )
        assert chosen.fewest_clients == colluders + 3
        for n in range(chosen.fewest_clients, 5 * size):
            parts = secagg_server.assign_rings(np.arange(n, dtype=np.int32), size, 1, 2)
            assert min(map(len, parts)) >= chosen.fewest_clients


def test_protected_settings_keep_a_protocol_that_is_set():
    settings = registry.algorithm("fcf").settings
    assert settings.of({}).protected().secure_aggregation == "secagg"
    ring = settings.of({"secure_aggregation": "ring", "ring_size": 10})
    assert ring.protected() == ring
