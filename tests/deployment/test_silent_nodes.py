"""Users of nodes that do not answer are in no ring or group of the next rounds."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from deployment.test_server import RING, SECAGG, InProcessNodes, Stop, new_federation, same, served
from small_federation import world_for

from coterie.algorithms import fcf
from coterie.data.splits import split
from coterie.deployment.reachable_users import ReachableUsers
from coterie.errors import NoQuorum
from coterie.federated.secagg import server as secagg
from coterie.types import Bools

pytest.importorskip("cryptography")

N_NODES = 6
ALL = set(range(N_NODES))
HALF = {3, 4, 5}

COHORT = 40
"""Of 200 users."""

Groups = dict[int, list[set[int]]]
"""Round -> the users of all its groups, once for each time that it was tried."""


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Notes whom the server assigns to groups."""
    noted: Groups = {}
    assign = secagg.assign_groups

    def noting(world, users, t):
        noted.setdefault(t, []).append(set(users.tolist()))
        return assign(world, users, t)

    monkeypatch.setattr(secagg, "assign_groups", noting)
    return noted


def nodes_of(folder: Path, users: set[int]) -> set[int]:
    """The nodes that host users, by index."""
    homes = json.loads((folder / "homes.json").read_text())
    ids = json.loads((folder / "members.json").read_text())["users"]
    return {int(homes[ids[user]]) for user in users}


# A server and its nodes


@pytest.mark.parametrize("settings", [SECAGG, RING], ids=["secagg", "ring"])
def test_users_of_silent_nodes_are_in_no_group(settings, people, tmp_path, groups):
    """Half of the nodes are silent in the second and the third round. A group of the second is
    aborted, and a ring goes on without them; those of the third are of the other half."""
    terms, paths = new_federation("fcf", people, tmp_path, N_NODES, **settings | {"rounds": 5})
    nodes = InProcessNodes(
        paths, lambda kind, node, call: node in HALF and 1 in groups and 3 not in groups
    )
    point = served(tmp_path, terms, nodes)
    hosting = [nodes_of(tmp_path, groups[t][0]) for t in range(5)]
    # They are tried again before the third round and before the fifth.
    assert hosting == [ALL, ALL, ALL - HALF, ALL - HALF, ALL]
    assert [len(groups[t][0]) for t in range(5)] == [COHORT] * 5
    answering = [user for user in groups[1][0] if not nodes_of(tmp_path, {user}) & HALF]
    in_second_round = len(answering) if settings is RING else 0
    assert point.history.updates == 4 * COHORT + in_second_round


@pytest.mark.long
def test_a_quorum_counts_silent_nodes(people, tmp_path, groups):
    """Nodes fall silent one after the other. With fewer than half of them no round counts."""
    terms, paths = new_federation("fcf", people, tmp_path, N_NODES, **SECAGG | {"rounds": 8})
    nodes = InProcessNodes(paths, lambda kind, node, call: node < 4 and node + 1 in groups)
    with pytest.raises(NoQuorum, match="2 of 6 nodes answered before the deadline"):
        served(tmp_path, terms, nodes, wait_seconds=0.2)
    assert json.loads((tmp_path / "status.json").read_text())["round"] == 5


@pytest.mark.long
def test_a_server_that_dies_repeats_a_round_with_the_same_groups(people, tmp_path, groups):
    """Users who were left out stay left out in that round, though their nodes have returned."""
    states = []
    for stage in (None, 3):
        folder = tmp_path / f"dies at {stage}"
        folder.mkdir()
        groups.clear()
        calls: set[int] = set()

        def fails(kind: str, node: int, call: int, stage=stage, calls=calls) -> bool:
            if 2 in groups:
                calls.add(call)
            if len(calls) == stage:
                raise Stop
            return node in HALF and 1 in groups

        settings = SECAGG | {"rounds": 3}
        terms, paths = new_federation("fcf", people, folder, N_NODES, **settings)
        if stage is None:
            states.append(served(folder, terms, InProcessNodes(paths, fails)).state)
            continue
        with pytest.raises(Stop):
            served(folder, terms, InProcessNodes(paths, fails))
        states.append(served(folder, terms, InProcessNodes(paths)).state)
        assert groups[2][0] == groups[2][1]
        assert nodes_of(folder, groups[2][1]) == ALL - HALF
    assert same(states[1], states[0].shared_arrays())


# One round


@dataclass
class Enrolled:
    """A membership of which some users are reachable."""

    users: Bools | None

    def reachable_users(self) -> Bools | None:
        return self.users


@pytest.fixture(scope="module")
def world(people):
    return world_for("fcf", split(people, "temporal", 0.2, seed=0).training(), **SECAGG)


def select(reachable: ReachableUsers, world, t: int) -> list[int]:
    federation = reachable.selecting(fcf.ALGORITHM.train)
    cohort: list[int] = federation.sample(world, fcf.ALGORITHM.train.init(world), t).tolist()
    return cohort


def reachable_in(folder: Path, world, n: int) -> ReachableUsers:
    """After a first round: the first n users are reachable."""
    membership = Enrolled(np.arange(world.n_users) < n)
    reachable = ReachableUsers(folder, membership)  # type: ignore[arg-type]
    select(reachable, world, 0)
    return reachable


def test_only_reachable_users_are_selected(world, tmp_path):
    assert max(select(reachable_in(tmp_path, world, 100), world, 1)) < 100


def test_a_plain_round_selects_all_users(world, tmp_path):
    """Without groups, users who are away cost nothing but their own updates."""
    settings = world.settings.model_copy(update={"secure_aggregation": "none"})
    plain = replace(world, settings=settings)
    assert max(select(reachable_in(tmp_path, plain, 100), plain, 1)) > 100


def test_all_users_are_selected_if_too_few_are_reachable_for_a_group(world, tmp_path):
    fewest = world.settings.fewest_clients
    assert len(select(reachable_in(tmp_path, world, fewest), world, 1)) == fewest
    assert len(select(reachable_in(tmp_path, world, fewest - 1), world, 1)) == COHORT


def test_a_round_that_is_tried_again_has_the_same_users(world, tmp_path):
    """Also after a restart. The next round has those who are reachable then."""
    reachable = reachable_in(tmp_path, world, 100)
    cohort = select(reachable, world, 1)
    reachable.membership.users = None
    assert select(reachable, world, 1) == cohort
    restarted = ReachableUsers(tmp_path, reachable.membership)
    assert select(restarted, world, 1) == cohort
    assert max(select(restarted, world, 2)) >= 100


def test_the_first_round_after_a_restart_leaves_out_nobody_else(world, tmp_path):
    """The round may have begun before with all users."""
    reachable_in(tmp_path, world, 100)
    restarted = ReachableUsers(tmp_path, Enrolled(np.arange(world.n_users) < 100))
    assert max(select(restarted, world, 4)) >= 100
    assert max(select(restarted, world, 5)) < 100
