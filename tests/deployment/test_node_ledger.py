"""A node's ledger: what counts, what survives a crash, and what a lying server does not get."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

from deployment.test_private_federation import (
    DISTRIBUTED,
    PRIVATE,
    InProcessNodes,
    RecordingNodes,
    new_federation,
    served,
)
from deployment.test_signing_keys import Log

from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.deployment import user_package
from coterie.deployment.enrolment import EnrolledUsers, FederationTerms, ItemContent
from coterie.deployment.fleet.join import NodeUsers
from coterie.deployment.node import NodeEngine
from coterie.deployment.node_data import roster_of
from coterie.deployment.node_ledger import epsilon_of, spent_in
from coterie.deployment.node_policy import NodePolicy, policy_of, put_policy
from coterie.deployment.node_private_store import RING, NodeStore
from coterie.deployment.node_service import ENROL, FINISH, TRAIN, NodeService, split_preamble
from coterie.deployment.transfer import Permit, SignedPermit
from coterie.deployment.world import server_world
from coterie.errors import ConfigError, PolicyError, RunError, StoreError
from coterie.federated import rounds
from coterie.federated.nodes import read_message, write_message
from coterie.federated.privacy import accountant
from coterie.federated.privacy.budget import plan_of_run
from coterie.federated.wire import decode

RUN = "a run"


def counts(path: Path, run: str = RUN) -> dict[str, int]:
    with closing(NodeStore.open(path)) as store:
        return {user: spent.releases for user, spent in spent_in(store, run).items()}


def trained(
    few_people: Interactions, folder: Path, n: int = 1, name: str = "fedease", **settings: Any
) -> tuple[FederationTerms, RecordingNodes]:
    settings = PRIVATE | {"rounds": 1} | settings
    terms, paths = new_federation(name, few_people, folder, n, **settings)
    nodes = RecordingNodes(paths)
    served(folder, terms, nodes)
    return terms, nodes


def changed(message: bytes, **changes: Any) -> bytes:
    return write_message(replace(read_message(split_preamble(message)[1]), **changes))


def repliers(service: NodeService, message: bytes) -> list[int]:
    reply = decode(service.answer(TRAIN, message))
    return reply[1]["users"].tolist()


# ---- what counts


@pytest.mark.parametrize("settings", [{}, DISTRIBUTED, {"secure_aggregation": "ring"}])
def test_each_release_counts_once(settings, few_people, tmp_path):
    """In the open, in groups and in rings; the multiplier is that of the plan."""
    terms, nodes = trained(few_people, tmp_path, 2, **settings)
    for path in nodes.paths:
        store = NodeStore.open(path)
        service = NodeService(store)
        learning = {user for user, learns in learners(terms, store) if learns}
        assert set(counts(path)) == learning
        assert set(counts(path).values()) == {1}
        plan = plan_of_run(terms.federation, service.load().node.world)
        assert {spent.multiplier for spent in spent_in(store, RUN).values()} == {plan.multiplier}


def learners(terms: FederationTerms, store: NodeStore) -> list[tuple[str, bool]]:
    roster = roster_of(terms, store)
    return list(zip(roster.users, roster.learning, strict=True))


def test_counts_are_those_of_selections(few_people, tmp_path):
    terms, paths = new_federation(
        "fcf", few_people, tmp_path, 2, **PRIVATE | {"rounds": 4, "participation": 0.4}
    )
    point = served(tmp_path, terms, InProcessNodes(paths))
    counted = counts(paths[0]) | counts(paths[1])
    members = json.loads((tmp_path / "members.json").read_text())["users"]
    selections = point.history.selections
    assert counted == {user: n for user, n in zip(members, selections, strict=True) if n}


def test_a_federation_without_a_budget_spends_nothing_that_is_known(few_people, tmp_path):
    _, nodes = trained(few_people, tmp_path, epsilon=None, noise_source="seeded")
    assert counts(nodes.paths[0]) == {}


def test_runs_compose_like_releases():
    """Two runs of noise z are two releases of noise z, and one of noise z / sqrt 2."""
    z = 2.5
    two = accountant.epsilon_spent(noise_multiplier=z, delta=1e-5, releases=2)
    assert epsilon_of(1 / z**2 + 1 / z**2, 1e-5) == pytest.approx(two, rel=1e-9)
    mixed = epsilon_of(3 / 4.0**2 + 5 / 2.0**2, 1e-5)
    alone = accountant.epsilon_spent(
        noise_multiplier=(3 / 16 + 5 / 4) ** -0.5, delta=1e-5, releases=1
    )
    assert mixed == alone
    assert epsilon_of(0.0, 1e-5) == 0.0


# ---- crashes


CHILD = """
import os, signal, sys
from pathlib import Path
from coterie.deployment.node_ledger import RunLedger
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import TRAIN, NodeService

counted = RunLedger.take

def die(self, users, releases):
    counted(self, users, releases)
    os.kill(os.getpid(), signal.SIGKILL)

RunLedger.take = die
service = NodeService(NodeStore.open(Path(sys.argv[1])))
service.answer(TRAIN, Path(sys.argv[2]).read_bytes())
"""


def test_a_count_survives_kill_9_and_a_repeated_message_counts_once(few_people, tmp_path):
    """The node dies when the count is written, before its reply leaves."""
    (tmp_path / "twin").mkdir()
    _, nodes = trained(few_people, tmp_path / "twin")
    (message,) = nodes.of(TRAIN)
    (reply,) = [reply for kind, _, _, reply in nodes.sent if kind == TRAIN]
    _, paths = new_federation("fedease", few_people, tmp_path, 1, **PRIVATE | {"rounds": 1})
    (tmp_path / "message").write_bytes(message)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(paths[0]), str(tmp_path / "message")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    after_crash = counts(paths[0])
    assert set(after_crash.values()) == {1}
    with closing(NodeStore.open(paths[0])) as store:
        assert NodeService(store).answer(TRAIN, message) == reply
        assert store.connection.execute("pragma synchronous").fetchone() == (2,)  # full
    assert counts(paths[0]) == after_crash


class Stop(Exception):
    pass


@pytest.mark.parametrize("at", [4, 5, 6])
def test_a_server_that_dies_repeats_its_round_without_a_count(at, few_people, tmp_path):
    """At the upload, at the agreement on survivors, when masks are removed."""

    def die(kind: str, node: int, call: int) -> bool:
        if call == at and node == 1:
            raise Stop
        return False

    terms, paths = new_federation("fedease", few_people, tmp_path, 2, **DISTRIBUTED | {"rounds": 1})
    with pytest.raises(Stop):
        served(tmp_path, terms, InProcessNodes(paths, die))
    point = served(tmp_path, terms, InProcessNodes(paths))
    counted = counts(paths[0]) | counts(paths[1])
    assert point.state.added.sum() == len(counted)
    assert set(counted.values()) == {1}


# ---- a lying server


def test_a_second_selection_is_not_answered(few_people, tmp_path):
    """Data of a client of fedease enters one sum, whatever round the server says it is."""
    _, nodes = trained(few_people, tmp_path)
    (message,) = nodes.of(TRAIN)
    log = Log()
    service = NodeService(NodeStore.open(nodes.paths[0]), log)
    before = counts(nodes.paths[0])
    for t in (1, 2, 3):
        assert repliers(service, changed(message, round=t)) == []
    assert counts(nodes.paths[0]) == before
    assert len(log.lines) == 1
    assert "selects users whose data may not enter another sum: its privacy" in log.lines[0]


class BeforeTheEnd(RecordingNodes):
    """A server that dies before its nodes have the final model."""

    def _call(self, kind: str, node: int, data: bytes) -> bytes | None:
        if kind == FINISH:
            raise Stop
        return super()._call(kind, node, data)


def test_another_message_in_the_same_exchange_is_not_answered(few_people, tmp_path):
    """Nor the same one once the histories are others; a repetition is."""
    terms, paths = new_federation("fcf", few_people, tmp_path, 1, **PRIVATE | {"rounds": 3})
    nodes = BeforeTheEnd(paths)
    with pytest.raises(Stop):
        served(tmp_path, terms, nodes)
    message = split_preamble(nodes.of(TRAIN)[-1])[1]
    store = NodeStore.open(nodes.paths[0])
    service = NodeService(store)
    before = counts(nodes.paths[0])
    everyone = repliers(service, message)
    assert len(everyone) > 5
    common = read_message(message).common
    moved = {name: array + np.ones(1, array.dtype) for name, array in common.items()}
    assert repliers(service, changed(message, common=moved)) == []
    assert counts(nodes.paths[0]) == before
    user = store.numbers()[everyone[0]]
    items = [str(item) for item in few_people.item_ids[:3]]
    times = [1, 2, 3]
    other = Interactions.from_columns([user] * 3, items, None, times)
    NodeStore.open(nodes.paths[0]).put_interactions(other)
    assert repliers(service, message) == everyone[1:]


def server_side(
    terms: FederationTerms, paths: list[Path]
) -> tuple[Any, NodeEngine, list[NodeService]]:
    """A server without a memory of its rounds."""
    services = [NodeService(NodeStore.open(path)) for path in paths]
    rosters = {str(k): roster_of(terms, one.store) for k, one in enumerate(services)}
    members = EnrolledUsers.of(rosters)
    world = server_world(terms, members.indices_for(()), ItemContent())
    hosts = np.zeros(len(members.users), np.int32)
    for k, service in enumerate(services):
        hosts[[members.index()[user] for user in service.store.users()]] = k
    engine = NodeEngine.over(
        hosts, lambda out: {k: services[k].answer(TRAIN, data) for k, data in out.items()}
    )
    return world, engine, services


@pytest.mark.parametrize("t", [0, 1])
def test_a_client_is_in_one_group_of_a_run(t, few_people, tmp_path):
    """Another group in a later round; or in the same round, after secrets of the first are lost."""
    terms, nodes = trained(few_people, tmp_path, 2, **DISTRIBUTED)
    world, engine, services = server_side(terms, nodes.paths)
    for service in services:
        service.store.connection.execute("delete from held where name = ?", (RING,))
    (exchange,) = terms.federation.exchanges
    cohort = np.flatnonzero(world.members).astype(np.int32)
    state = terms.federation.init(world)
    before = [counts(path) for path in nodes.paths]
    fewer = cohort[:-1] if t == 0 else cohort
    _, costs = rounds.play_exchange(world, exchange, state, fewer, t, engine)
    assert costs.accepted == 0
    assert [counts(path) for path in nodes.paths] == before


def test_the_same_group_again_has_the_same_noise(few_people, tmp_path):
    """A server that lost its state, and nodes that lost their sessions: the sum is the same."""
    terms, nodes = trained(few_people, tmp_path, 2, **DISTRIBUTED)
    for path in nodes.paths:
        NodeStore.open(path).connection.execute("delete from held where name = ?", (RING,))
    (tmp_path / "again").mkdir()
    first, second = (
        np.load(folder / "checkpoint.npz")["state.pairs"]
        for folder in (tmp_path, served_again(tmp_path / "again", terms, nodes.paths))
    )
    assert (first == second).all()
    assert set(counts(nodes.paths[0]).values()) == {1}


def served_again(folder: Path, terms: FederationTerms, paths: list[Path]) -> Path:
    served(folder, terms, InProcessNodes(paths))
    return folder


def test_another_run_has_other_noise(few_people, tmp_path):
    """The same seed, users, groups and histories: with the same noise, the difference of two sums
    would have none."""
    terms, nodes = trained(few_people, tmp_path, 2, **DISTRIBUTED)
    (tmp_path / "again").mkdir()
    again = served_again(tmp_path / "again", replace(terms, run="another"), nodes.paths)
    first, second = (
        np.load(folder / "checkpoint.npz")["state.pairs"] for folder in (tmp_path, again)
    )
    assert np.mean(first == second) < 0.1
    assert set(counts(nodes.paths[0], "another").values()) == {1}
    assert set(counts(nodes.paths[0]).values()) == {1}


@pytest.mark.parametrize("change", [{"rounds": 1000}, {"epsilon": 100.0}, {"epsilon": None}])
def test_the_settings_of_a_run_do_not_change(change, few_people, tmp_path):
    terms, nodes = trained(few_people, tmp_path, name="fcf")
    service = NodeService(NodeStore.open(nodes.paths[0]))
    members = EnrolledUsers.of({"0": roster_of(terms, service.store)})
    lying = replace(terms, config=terms.config | change)
    with pytest.raises(PolicyError, match="the server changed the terms of run a run after"):
        service.begin(lying, members.indices_for(service.store.users()))
    service.begin(terms, members.indices_for(service.store.users()))


# ---- limits


def limited(path: Path, limit: float) -> None:
    with closing(NodeStore.open(path)) as store:
        put_policy(store, NodePolicy(epsilon_limit=limit))


def test_a_run_within_the_limit_is_joined_and_the_next_one_refused(few_people, tmp_path):
    terms, paths = new_federation("fedease", few_people, tmp_path, 1, **PRIVATE | {"rounds": 1})
    limited(paths[0], 3.0)  # exactly the epsilon of the run
    served(tmp_path, terms, InProcessNodes(paths))
    assert set(counts(paths[0]).values()) == {1}
    service = NodeService(NodeStore.open(paths[0]))
    following = replace(terms, run="the next")
    with pytest.raises(
        ConfigError,
        match=r"40 of 40 users do not take part in run the next: their data has spent epsilon "
        r"up to 3, the run asks for 3 \(at delta 1e-05\), and together that exceeds the limit of "
        r"3\. Join with a higher epsilon_limit",
    ):
        service.answer(ENROL, following.to_json().encode())
    limited(paths[0], 5.0)  # two runs of 3 spend 4.5
    (tmp_path / "next").mkdir()
    served(tmp_path / "next", following, InProcessNodes(paths))
    assert set(counts(paths[0], "the next").values()) == {1}


def test_users_without_budget_stay_out_and_others_take_part(few_people, tmp_path):
    terms, paths = new_federation("fedease", few_people, tmp_path, 1, **PRIVATE | {"rounds": 1})
    limited(paths[0], 3.0)
    with closing(NodeStore.open(paths[0])) as store:
        spent_before = store.users()[:7]
        store.connection.executemany(
            "insert into spent values ('earlier', ?, 1, '3.0', 0, 0, x'')",
            [(user,) for user in spent_before],
        )
        log = Log()
        roster = NodeService(store, log).enrol(terms)
    assert [line.partition(":")[0] for line in log.lines] == [
        "7 of 40 users do not take part in run a run"
    ]
    out = {user for user, learns in zip(roster.users, roster.learning, strict=True) if not learns}
    assert out >= set(spent_before)
    served(tmp_path, terms, InProcessNodes(paths))
    assert counts(paths[0]).keys().isdisjoint(spent_before)
    assert len(counts(paths[0])) > 20


def test_a_server_that_selects_excluded_users_gets_nothing(few_people, tmp_path):
    """The limit came after enrolment, when the server had listed all users."""
    _, nodes = trained(few_people, tmp_path, name="fcf", rounds=3)
    (path,) = nodes.paths
    limited(path, 1.0)
    service = NodeService(NodeStore.open(path))
    with pytest.raises(ConfigError, match="40 of 40 users do not take part in run a run"):
        service.answer(TRAIN, split_preamble(nodes.of(TRAIN)[-1])[1])


@pytest.mark.parametrize("delta", [0.5, 1e-3])
def test_a_large_delta_does_not_get_around_a_limit(delta, few_people, tmp_path):
    """At delta 0.5 hardly any noise is needed for a small epsilon."""
    terms, paths = new_federation(
        "fedease",
        few_people,
        tmp_path,
        1,
        **PRIVATE | {"rounds": 1, "epsilon": 0.5, "delta": delta},
    )
    limited(paths[0], 0.6)
    with pytest.raises(ConfigError, match=r"the run asks for .* \(at delta 1e-05\)"):
        NodeService(NodeStore.open(paths[0])).enrol(terms)


def test_a_run_without_a_budget_is_refused_by_a_node_with_a_limit(few_people, tmp_path):
    terms, paths = new_federation("fcf", few_people, tmp_path, 1, rounds=1)
    limited(paths[0], 3.0)
    service = NodeService(NodeStore.open(paths[0]))
    with pytest.raises(PolicyError, match=r"run a run has no privacy budget .*epsilon_limit: 3"):
        service.answer(ENROL, terms.to_json().encode())


def test_a_limit_holds_until_another_is_given(tmp_path):
    table = tmp_path / "mine.csv"
    table.write_text("user_id,item_id\nann,x\nann,y\n")
    with closing(NodeStore.create(tmp_path / "mine.db")) as store:
        limited = [NodePolicy(epsilon_limit=limit) for limit in (2.0, 3.5)]
        steps = ((None, None), (limited[0], 2.0), (None, 2.0), (limited[1], 3.5))
        for given, expected in (*steps, (NodePolicy(), None)):
            users = NodeUsers(table, ReadOptions(), policy=given)
            users.put(store, users.read())
            assert policy_of(store).epsilon_limit == expected
    for malformed in (float("nan"), float("inf"), -1.0, 0.0):
        with pytest.raises(ConfigError, match="setting 'epsilon_limit' is"):
            NodePolicy.of({"epsilon_limit": malformed})


# ---- the store


def test_the_ledger_moves_with_its_users_and_is_erased_with_them(few_people, tmp_path):
    _, nodes = trained(few_people, tmp_path, 2)
    first, second = (NodeStore.open(path) for path in nodes.paths)
    user = next(iter(counts(nodes.paths[0])))
    permit = SignedPermit(Permit.new(RUN, [user], "0", "1").to_json(), "")
    package = user_package.pack(first, [user], permit)
    package = user_package.UserPackage.from_json(package.to_json())
    first.release([user])
    assert user not in counts(nodes.paths[0])
    user_package.unpack(package, second)
    assert counts(nodes.paths[1])[user] == 1
    (entry,) = second.export(user)["privacy_spent"]
    assert (entry["run"], entry["releases"]) == (RUN, 1)
    second.reset()  # as when another federation begins
    assert counts(nodes.paths[1])[user] == 1
    second.forget(user)
    assert user not in counts(nodes.paths[1])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: [*row[:2], 0, *row[3:]],
        lambda row: [*row[:2], -5, *row[3:]],
        lambda row: [*row[:3], "inf", *row[4:]],
        lambda row: [*row[:3], "much", *row[4:]],
        lambda row: [*row[:3], "0.0", *row[4:]],
        lambda row: row[:4],
    ],
)
def test_a_package_with_a_malformed_ledger_is_refused(
    spoil: Callable[[list[Any]], list[Any]], few_people, tmp_path
):
    _, nodes = trained(few_people, tmp_path)
    store = NodeStore.open(nodes.paths[0])
    user = next(iter(counts(nodes.paths[0])))
    permit = SignedPermit(Permit.new(RUN, [user], "0", "1").to_json(), "")
    values = json.loads(user_package.pack(store, [user], permit).to_json())
    values["spent"] = [spoil(row) for row in values["spent"]]
    path = tmp_path / "package"
    path.write_text(json.dumps(values))
    path.chmod(0o600)
    with pytest.raises(RunError, match="is not a package of users"):
        user_package.read(path)
    values["spent"] = []
    path.write_text(json.dumps(values))
    user_package.read(path)


@pytest.mark.parametrize(
    "damage",
    [
        "update spent set multiplier = 'nan'",
        "update spent set multiplier = '-1'",
        "update spent set releases = 0",
        "update spent set releases = 'many'",
    ],
)
def test_a_damaged_ledger_stops_the_node(damage, few_people, tmp_path):
    """Without it, nobody knows what was spent."""
    _, nodes = trained(few_people, tmp_path)
    store = NodeStore.open(nodes.paths[0])
    store.connection.execute(damage)
    with pytest.raises(StoreError, match=r"is damaged .the ledger has"):
        NodeService(store).answer(TRAIN, changed(nodes.of(TRAIN)[0], round=1))


def test_a_store_of_an_earlier_version_gets_a_ledger(few_people, tmp_path):
    _, paths = new_federation("fedease", few_people, tmp_path, 1)
    with closing(NodeStore.open(paths[0])) as store:
        for table in ("spent", "asked", "answered", "evaluated", "snapshot"):
            store.connection.execute(f"drop table {table}")
        store.connection.execute("pragma user_version = 2")
    assert counts(paths[0]) == {}
