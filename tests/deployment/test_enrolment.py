"""Enrolment: the world and the histories equal those of a simulation over all the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_federation import play

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import (
    EnrolledUsers,
    FederationTerms,
    ItemContent,
    Roster,
    UserIndices,
)
from coterie.deployment.node import Node, NodeEngine
from coterie.deployment.node_data import node_data_of, roster_of, simulated_seed
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.world import node_world, server_world
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError, DataError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.wire import Malformed


def stores(people: Interactions, folder: Path, n: int) -> list[NodeStore]:
    """Stores of n nodes; user u is on node u modulo n."""
    made = []
    for node in range(n):
        store = NodeStore.create(folder / f"{node}.db")
        store.put_interactions(people.select(people.users % n == node).compact())
        made.append(store)
    return made


def terms_of(people: Interactions, name: str, **settings) -> FederationTerms:
    sized = "embedding_size" in algorithm(name).settings.model_fields
    few = {"algorithm": name, "dataset": "given.csv"} | settings
    few |= {"embedding_size": few.get("embedding_size", 5)} if sized else {}
    return FederationTerms(
        Experiment.of({"popularity_prior": 0.0, **few}).flat(),
        [str(item) for item in people.item_ids],
    )


def through_json(message):
    return type(message).from_json(message.to_json())


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize(
    ("n", "split"), [(1, "leave-one-out"), (4, "leave-one-out"), (3, "temporal"), (3, "random")]
)
def test_a_federation_from_files_is_the_simulation(name, n, split, people, tmp_path):
    few = {"rounds": 2} if name == "fedfast" else {"epochs": 2}
    terms = through_json(terms_of(people, name, split=split, **few))
    made = stores(people, tmp_path, n)
    rosters = {str(node): through_json(roster_of(terms, store)) for node, store in enumerate(made)}
    members = through_json(EnrolledUsers.of(rosters))
    indices = [through_json(members.indices_for(roster.users)) for roster in rosters.values()]
    hosts = np.empty(len(members.users), np.int32)
    for node, assigned in enumerate(indices):
        hosts[list(assigned.numbers.values())] = node
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    nodes = []
    for assigned, store in zip(indices, made, strict=True):
        store.put_numbers(assigned.numbers)
        data = node_data_of(terms, assigned, store, simulated_seed(terms))
        node = Node(federation, node_world(terms, assigned), data, store)
        node.initialise()
        nodes.append(node)
    world = server_world(terms, indices[0], ItemContent())
    engine = NodeEngine.over(
        hosts, lambda out: {at: nodes[at].receive(data) for at, data in out.items()}
    )
    deployed = play(name, world, engine)[0][-1]

    ready = prepare(terms.experiment, people, SILENT)
    whole = trainer.world_of(ready.training, terms.experiment.settings, 0, federation)
    assert (whole.n_users, whole.n_items, whole.n_positives) == (
        world.n_users,
        world.n_items,
        world.n_positives,
    )
    assert np.array_equal(whole.members, world.members)
    simulated = play(name, whole, LocalEngine.over(whole, ready.training, 1))[0][-1]
    for field, array in simulated.shared_arrays().items():
        assert np.array_equal(deployed.shared_arrays()[field], array), field


def test_a_roster_holds_user_ids_and_totals_only(people, tmp_path):
    (store,) = stores(people, tmp_path, 1)
    roster = roster_of(terms_of(people, "fedfast"), store)
    assert (roster.forgotten, roster.permits, roster.signing_keys) == ([], [], [])
    assert (roster.rollbacks, roster.snapshots, roster.unchanged_since) == (0, [], 0)
    fields = {"users", "learning", "positives", "forgotten", "permits", "signing_keys"}
    fields |= {"rollbacks", "most_rollbacks", "snapshots", "unchanged_since"}
    assert set(roster.__dataclass_fields__) == fields
    held_out = int((people.rows.counts > 1).sum())
    assert roster.positives == len(people) - held_out
    assert roster.users == [str(u) for u in people.user_ids]


def test_each_user_is_on_one_node():
    with pytest.raises(DataError, match="user ann is on 2 nodes; expected every user on one node"):
        EnrolledUsers.of(
            {
                "x": Roster(["ann", "bob"], [True, True], 4),
                "y": Roster(["cem", "ann"], [True, True], 2),
            }
        )


def test_indices_depend_on_ids_not_on_nodes():
    members = EnrolledUsers.of(
        {"x": Roster(["10", "9"], [True, False], 3), "y": Roster(["100"], [True], 2)}
    )
    expected = UserIndices({"10": 1, "9": 0}, 3, [1, 2], 5)
    assert members.indices_for(["10", "9", "unknown"]) == expected
    assert members.indices_for(["100"]).numbers == {"100": 2}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"nonsense",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"users": 3, "learning": [], "positives": 0}',
        b'{"users": ["ann"], "learning": [true], "positives": 1, "more": 2}'[:-20],
        b'{"users": ["ann"], "learning": [true, true], "positives": 3}',
        b'{"users": ["ann"], "learning": [1], "positives": 3}',
        b'{"users": ["ann", "ann"], "learning": [true, true], "positives": 3}',
        b'{"users": [""], "learning": [true], "positives": 3}',
        b'{"users": ["ann"], "learning": [true], "positives": -1}',
        b'{"users": ["ann"], "learning": [true], "positives": 1e30}',
        b'{"users": ["ann"], "learning": [true], "positives": 0}',
        b'{"users": [], "learning": [], "positives": 0}',
        b'{"users": ["ann"], "learning": [true], "positives": 9999999999999999999}',
        b'{"users": ["' + b"x" * 300 + b'"], "learning": [true], "positives": 3}',
    ],
)
def test_malformed_rosters_are_refused(data):
    with pytest.raises(Malformed):
        Roster.parse(data)


def test_items_outside_the_catalogue_are_left_out(tmp_path):
    data = Interactions.from_columns(
        ["ann"] * 3 + ["bob"] * 2, ["x", "y", "unlisted", "x", "y"], None, [1, 2, 3, 1, 2]
    )
    store = NodeStore.create(tmp_path / "node.db")
    store.put_interactions(data)
    terms = terms_of(data, "fedavg")
    assert roster_of(FederationTerms(terms.config, ["x", "y"]), store).positives == 2
    with pytest.raises(DataError, match="no interaction is with one of the federation's 1 items"):
        roster_of(FederationTerms(terms.config, ["z"]), store)


def test_a_split_that_needs_all_users_is_refused(people, tmp_path):
    (store,) = stores(people, tmp_path, 1)
    with pytest.raises(
        ConfigError, match="'global-time', which needs the interactions of all users in one place"
    ):
        roster_of(terms_of(people, "fedavg", split="global-time"), store)
