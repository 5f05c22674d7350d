"""Users join a running federation, are erased from it, and move between its nodes."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.test_server import InProcessNodes, new_federation, same, served, simulated
from small_federation import play

from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment import user_package
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.fleet.keys import NodeKey, is_signed
from coterie.deployment.hosting import read_hosts
from coterie.deployment.node_private_store import FORGOTTEN, PERMITS, NodeStore
from coterie.deployment.node_service import SIMULATED, TRAIN, NodeService
from coterie.deployment.transfer import Permit, SignedPermit, approve
from coterie.engines.local import LocalEngine
from coterie.errors import RunError, UnknownName
from coterie.experiments import experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.federated import trainer
from coterie.federated.federation import AnyWorld

KEYS = {name: NodeKey.new() for name in ("0", "1")}


class ScriptedNodes(InProcessNodes):
    """Nodes named by the places of their stores. `events` happen before an exchange, by number."""

    keyed = True

    def __init__(
        self,
        paths: list[Path],
        events: Mapping[int, Callable[[], object]],
        joins: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(paths)
        self.events = dict(events)
        self.joins = joins or {}
        """Node -> the exchange before which it joins."""
        self.exchanges = 0
        self.connection = 0

    def joined(self) -> dict[str, int]:
        if event := self.events.pop(self.exchanges, None):
            event()
            self.connection += 1  # nodes connect anew when their users change
        names = [str(node) for node in range(len(self.paths))]
        return {
            name: self.connection for name in names if self.joins.get(name, 0) <= self.exchanges
        }

    def send(
        self, kind: str, out: Mapping[str, bytes], seconds: float | None = None
    ) -> dict[str, bytes]:
        self.exchanges += kind == TRAIN
        return super().send(kind, out, seconds)

    def signed(self, name: str, text: str, signature: str) -> bool:
        return is_signed(KEYS[name].public, text, b64decode(signature))


def groups_of(people: Interactions, folder: Path, first: int) -> list[Path]:
    """Two stores: the first users in order of ids, and the others."""
    paths = []
    for node, chosen in enumerate((people.users < first, people.users >= first)):
        store = NodeStore.create(folder / f"group-{node}.db")
        store.put_interactions(people.select(chosen).compact())
        NodeService(store).set_seed(SIMULATED)
        store.close()
        paths.append(store.path)
    return paths


def world_of(terms: FederationTerms, people: Interactions) -> tuple[AnyWorld, Prepared]:
    ready = prepare(terms.experiment, people, SILENT)
    settings = terms.experiment.settings
    return trainer.world_of(ready.training, settings, 0, terms.federation), ready


def with_late_users(
    terms: FederationTerms, people: Interactions, first: int, rounds: int
) -> dict[str, np.ndarray]:
    """The simulation whose users beyond the first ones appear after some rounds, in slow steps."""
    name = terms.experiment.choice.algorithm
    some = replace(
        people.select(people.users < first), user_ids=people.user_ids[:first], user_features={}
    )
    small, ready = world_of(terms, some)
    before = play(name, small, LocalEngine.over(small, ready.training, 1))[0][rounds]
    large, ready = world_of(terms, people)
    engine = LocalEngine.over(large, ready.training, 1)
    begun, _ = trainer.federated_trainer(
        terms.federation, large, engine, trainer.Context(0, SILENT)
    ).start()
    appended = {"user_rows": np.concatenate([before.user_rows, begun.user_rows[first:]])}
    if name == "fedfast":
        appended["clusters"] = np.append(
            before.clusters, np.where(large.members[first:], 0, -1).astype(np.int32)
        )
    return play(name, large, engine, replace(before, **appended), rounds + 1)[0][-1].arrays()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fedfast", "fcf"])
def test_users_join_an_open_federation_between_rounds(name, people, tmp_path):
    """The model is that of a simulation whose world grows, also where users' rows are private."""
    terms, _ = new_federation(name, people, tmp_path, 1)
    paths = groups_of(people, tmp_path, 150)
    setup = int(name == "fedfast")
    nodes = ScriptedNodes(paths, {}, joins={"1": setup + 2})
    point = served(tmp_path, terms, nodes, open=True)
    assert same(point.state, with_late_users(terms, people, 150, 2))
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["users"], status["nodes"], status["unanswered"]) == (200, 2, 0)
    members = json.loads((tmp_path / "members.json").read_text())
    whole, _ = world_of(terms, people)
    assert members["n_positives"] == whole.n_positives
    assert len(point.history.selections) == 200


def test_users_of_a_closed_federation_wait(people, tmp_path):
    terms, _ = new_federation("fedfast", people, tmp_path, 1)
    paths = groups_of(people, tmp_path, 150)
    nodes = ScriptedNodes(paths, {}, joins={"1": 3})
    point = served(tmp_path, terms, nodes)
    assert len(point.state.user_rows) == 150
    assert json.loads((tmp_path / "status.json").read_text())["users"] == 150


@pytest.mark.parametrize("stops", [3, 4])
def test_a_server_that_dies_after_users_joined_resumes(stops, people, tmp_path):
    """Killed in the first round with the new users, and in the one after it."""
    terms, _ = new_federation("fedfast", people, tmp_path, 1)
    paths = groups_of(people, tmp_path, 150)

    class Dying(ScriptedNodes):
        def send(self, kind: str, out: Mapping[str, bytes], seconds: Any = None) -> Any:
            if kind == TRAIN and self.exchanges == stops:
                raise KeyboardInterrupt
            return super().send(kind, out, seconds)

    with pytest.raises(KeyboardInterrupt):
        served(tmp_path, terms, Dying(paths, {}, joins={"1": 3}), open=True)
    point = served(tmp_path, terms, ScriptedNodes(paths, {}), open=True)
    assert same(point.state, with_late_users(terms, people, 150, 2))


@pytest.mark.parametrize("name", ["fedfast", "fedbso", "fcf", "fedease"])
def test_a_user_who_is_erased_is_erased_on_the_server(name, people, tmp_path):
    terms, paths = new_federation(name, people, tmp_path, 2, participation=1.0)
    user = str(people.user_ids[7])

    def forget() -> None:
        with closing(NodeStore.open(paths[1])) as store:
            store.forget(user)
            assert store.held_list(FORGOTTEN) == [7]

    nodes = ScriptedNodes(paths, {3: forget})
    if name == "fedease":  # its only round is the first exchange
        nodes = ScriptedNodes(paths, {1: forget})
    point = served(tmp_path, terms, nodes)
    with closing(NodeStore.open(paths[1])) as store:
        assert store.held_list(FORGOTTEN) == []
    ids = json.loads((tmp_path / "members.json").read_text())["users"]
    assert (ids[7], len(ids), user in ids) == ("", 200, False)
    assert user not in read_hosts(tmp_path)
    assert json.loads((tmp_path / "status.json").read_text())["users"] == 199
    world, _ = world_of(terms, people)
    members = world.members.copy()
    members[7] = False
    initial = terms.federation.init(replace(world, members=members))
    for field in point.state.of_users:
        if field != "profiles":
            assert np.array_equal(getattr(point.state, field)[7], getattr(initial, field)[7]), field
    if name == "fedfast":
        assert point.state.clusters[7] == -1
        assert not np.array_equal(point.state.user_rows[5], initial.user_rows[5])
        assert point.history.selections[7] < point.history.selections[5]


def test_a_node_that_loses_its_last_user_tells_the_server(people, tmp_path):
    terms, _ = new_federation("fedfast", people, tmp_path, 1)
    paths = groups_of(people, tmp_path, 199)

    def forget() -> None:
        with closing(NodeStore.open(paths[1])) as store:
            store.forget(str(people.user_ids[199]))

    served(tmp_path, terms, ScriptedNodes(paths, {2: forget}), least_nodes=2, quorum=0.4)
    assert json.loads((tmp_path / "members.json").read_text())["users"][199] == ""


def test_a_node_cannot_erase_the_users_of_another(people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 2)

    def lie() -> None:
        with closing(NodeStore.open(paths[1])) as store:
            store.put_list(FORGOTTEN, [6, 10**6, -1])  # even users are on the first node

    served(tmp_path, terms, ScriptedNodes(paths, {2: lie}))
    assert json.loads((tmp_path / "status.json").read_text())["refused"] == {
        "user of another node": 3
    }
    assert "" not in json.loads((tmp_path / "members.json").read_text())["users"]


def move(paths: list[Path], users: list[str], origin: int, to: int, **changes: Any) -> SignedPermit:
    """What `coterie node transfer` and `coterie node receive` do."""
    with closing(NodeStore.open(paths[origin])) as old:
        permit = replace(user_package.permit_for(old, users, str(to)), **changes)
        signed = signed_by(str(origin), permit)
        package = user_package.pack(old, users, signed)
        file = paths[0].parent / "package"
        user_package.write(package, file)
        old.release(users)
    with closing(NodeStore.open(paths[to])) as new:
        assert user_package.unpack(user_package.read(file), new) == users
    file.unlink()
    return signed


def signed_by(name: str, permit: Permit) -> SignedPermit:
    text = permit.to_json()
    return SignedPermit(text, KEYS[name].sign(SignedPermit(text, "").signed_text))


@pytest.mark.parametrize("name", ["fedfast", "fcf", "pfpl+"])
def test_users_move_with_their_private_state(name, people, tmp_path):
    """Some move to the other node and one of them back, and the model is that of a simulation."""
    terms, paths = new_federation(name, people, tmp_path, 2)
    users = [str(people.user_ids[k]) for k in (1, 7, 9)]
    nodes = ScriptedNodes(
        paths,
        {2: lambda: move(paths, users, 1, 0), 3: lambda: move(paths, users[:1], 0, 1)},
    )
    point = served(tmp_path, terms, nodes)
    assert same(point.state, simulated(terms, people))
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["refused"], status["dropped"]) == ({}, 0)
    assert [read_hosts(tmp_path)[user] for user in users] == ["1", "0", "0"]
    for path in paths:
        with closing(NodeStore.open(path)) as store:
            assert store.held_list(PERMITS) == []


@pytest.mark.parametrize(
    "fault", ["another key", "another node", "another federation", "expired", "no signature"]
)
def test_an_invalid_permit_moves_nobody(fault, people, tmp_path):
    terms, paths = new_federation("fedfast", people, tmp_path, 2)
    user = str(people.user_ids[7])
    run = "another run" if fault == "another federation" else terms.run
    permit = Permit.new(run, [user], "1", "2" if fault == "another node" else "0")
    if fault == "expired":
        permit = replace(permit, expires=(datetime.now(UTC) - timedelta(days=1)).isoformat())
    signed = signed_by("0" if fault == "another key" else "1", permit)
    if fault == "no signature":
        signed = replace(signed, signature="")

    def steal() -> None:
        with closing(NodeStore.open(paths[0])) as store:
            store.put_interactions(people.select(people.users == 7).compact())
            store.put_list(PERMITS, [signed.to_json()])

    served(tmp_path, terms, ScriptedNodes(paths, {2: steal}))
    assert read_hosts(tmp_path)[user] == "1"
    refused = json.loads((tmp_path / "status.json").read_text())["refused"]
    assert refused == {"invalid transfer": 1, "user of another node": 1}


def test_a_permit_counts_once(people, tmp_path):
    """A user moves and returns. The first permit, kept for later, does not move it again."""
    terms, paths = new_federation("fedfast", people, tmp_path, 2, rounds=6)
    user = str(people.user_ids[7])
    kept: list[str] = []

    def replay() -> None:
        with closing(NodeStore.open(paths[0])) as store:
            store.put_interactions(people.select(people.users == 7).compact())
            store.put_list(PERMITS, kept)

    nodes = ScriptedNodes(
        paths,
        {
            2: lambda: kept.append(move(paths, [user], 1, 0).to_json()),
            3: lambda: move(paths, [user], 0, 1),
            4: replay,
        },
    )
    served(tmp_path, terms, nodes)
    assert read_hosts(tmp_path)[user] == "1"


@pytest.mark.parametrize("name", ["fedfast", "fcf"])
def test_the_owner_approves_a_move(name, people, tmp_path):
    """The users of a lost node begin again on another one, from the initial private state."""
    terms, paths = new_federation(name, people, tmp_path, 2, participation=1.0)
    lost = people.select(people.users % 2 == 1).compact()

    def give_up() -> None:
        with closing(NodeStore.open(paths[0])) as store:
            store.put_interactions(lost)
        assert approve(tmp_path, "1", "0", [], read_hosts(tmp_path)) == 100

    nodes = ScriptedNodes(paths, {2 + int(name == "fedfast"): give_up})
    nodes.fails = lambda kind, node, call: kind == TRAIN and node == 1 and nodes.exchanges > 3
    point = served(tmp_path, terms, nodes)
    assert set(read_hosts(tmp_path).values()) == {"0"}
    assert not (tmp_path / "approved.json").exists()
    assert point.history.dropped == 0
    assert point.history.updates == 4 * 200


def test_moves_that_make_no_sense_are_refused(people, tmp_path):
    homes = {"ann": "a", "bob": "b"}
    with pytest.raises(UnknownName, match="node 'c'"):
        approve(tmp_path, "c", "a", [], homes)
    with pytest.raises(UnknownName, match="user 'bob'"):
        approve(tmp_path, "a", "b", ["bob"], homes)
    with pytest.raises(RunError, match="--from and --to are both a"):
        approve(tmp_path, "a", "a", [], homes)
    for text in ("", "{}", '{"version": 1}'):
        package = tmp_path / "package"
        package.write_text(text)
        package.chmod(0o600)
        with pytest.raises(RunError, match="is not a package of users"):
            user_package.read(package)
    package.chmod(0o644)
    with pytest.raises(RunError, match="can be read by others"):
        user_package.read(package)


def test_early_stopping(people, tmp_path):
    """The server stops where the simulation does, and the final model is the best one."""
    few = {"rounds": 40, "validation": True, "patience": 2, "evaluate_every": 2}
    terms, paths = new_federation(
        "fedavg", people, tmp_path, 2, **few, participation=0.5, learning_rate=2.0
    )
    point = served(tmp_path, terms, InProcessNodes(paths))
    run = experiment.run(terms.experiment, people)
    assert run.result is not None
    best = point.history.curve[point.history.best]["round"]
    assert 0 < best == run.result["best_round"] < point.history.round < 40
    arrays = np.load(tmp_path / "model.npz")
    expected = run.model.shared_arrays()
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)
    assert point.history.curve[-1]["part"] == "test"
    again = served(tmp_path, terms, InProcessNodes(paths))
    assert again.history.to_json() == point.history.to_json()
