"""From files on nodes to a federation: the world and the histories are those of a simulation over all the data in one place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_federation import play

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import (
    Members,
    Numbers,
    Roster,
    Terms,
    Told,
    histories,
    roll,
    simulated_seed,
    world_of,
)
from coterie.deployment.node import Node, NodeEngine
from coterie.deployment.node_store import NodeStore
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError, DataError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.wire import Malformed


def stores(people: Interactions, folder: Path, n: int) -> list[NodeStore]:
    made = []
    for node in range(n):
        mine = people.select(people.users % n == node).compact()
        made.append(NodeStore.create(folder / f"{node}.db"))
        made[-1].put_interactions(mine)
    return made


def terms_of(people: Interactions, name: str, **settings) -> Terms:
    few = {"algorithm": name, "embedding_size": 5, "dataset": "given.csv"} | settings
    return Terms(Experiment.of(few).flat(), [str(item) for item in people.item_ids])


def through_json(said):
    return type(said).from_json(said.to_json())


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize(
    ("n", "split"), [(1, "leave-one-out"), (4, "leave-one-out"), (3, "temporal"), (3, "random")]
)
def test_a_federation_from_files_is_the_simulation(name, n, split, people, tmp_path):
    few = {"rounds": 2} if name == "fedfast" else {"epochs": 2}
    terms = through_json(terms_of(people, name, split=split, **few))
    made = stores(people, tmp_path, n)
    rolls = {str(node): through_json(roll(terms, store)) for node, store in enumerate(made)}
    members = through_json(Members.of(rolls))
    told = [members.told(said.people) for said in rolls.values()]
    homes = np.empty(len(members.people), np.int32)
    for node, each in enumerate(told):
        homes[list(each.numbers.values())] = node
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    parties = []
    for node, store in enumerate(made):
        numbers = through_json(told[node])
        store.put_numbers(numbers.numbers)
        mine = histories(terms, numbers, store, simulated_seed(terms))
        parties.append(Node(federation, world_of(terms, numbers), mine, store))
        parties[-1].begin()
    world = world_of(terms, told[0], Told())
    engine = NodeEngine.over(
        homes, lambda out: {at: parties[at].receive(data) for at, data in out.items()}
    )
    there = play(name, world, engine)[0][-1]

    ready = prepare(terms.experiment, people, SILENT)
    whole = trainer.world_of(ready.training, terms.experiment.settings, 0, federation)
    assert (whole.n_users, whole.n_items, whole.n_positives) == (
        world.n_users,
        world.n_items,
        world.n_positives,
    )
    assert np.array_equal(whole.members, world.members)
    here = play(name, whole, LocalEngine.over(whole, ready.training, 1))[0][-1]
    for field, array in here.shared_arrays().items():
        assert np.array_equal(there.shared_arrays()[field], array), field


def test_the_server_learns_who_there_is_and_no_more(people, tmp_path):
    (store,) = stores(people, tmp_path, 1)
    said = roll(terms_of(people, "fedfast"), store)
    assert set(said.__dataclass_fields__) == {"people", "learning", "positives"}
    held_out = int((people.rows.counts > 1).sum())
    assert said.positives == len(people) - held_out
    assert said.people == [str(u) for u in people.user_ids]


def test_everybody_is_on_one_node():
    with pytest.raises(DataError, match="user ann is on 2 nodes; expected everybody on one node"):
        Members.of(
            {
                "x": Roster(["ann", "bob"], [True, True], 4),
                "y": Roster(["cem", "ann"], [True, True], 2),
            }
        )


def test_numbers_go_by_ids_whatever_the_nodes():
    members = Members.of(
        {"x": Roster(["10", "9"], [True, False], 3), "y": Roster(["100"], [True], 2)}
    )
    assert members.told(["10", "9", "stranger"]) == Numbers({"10": 1, "9": 0}, 3, [1, 2], 5)
    assert members.told(["100"]).numbers == {"100": 2}


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"[]",
        b"{}",
        b"nonsense",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"people": 3, "learning": [], "positives": 0}',
        b'{"people": ["ann"], "learning": [true], "positives": 1, "more": 2}'[:-20],
        b'{"people": ["ann"], "learning": [true, true], "positives": 3}',
        b'{"people": ["ann"], "learning": [1], "positives": 3}',
        b'{"people": ["ann", "ann"], "learning": [true, true], "positives": 3}',
        b'{"people": [""], "learning": [true], "positives": 3}',
        b'{"people": ["ann"], "learning": [true], "positives": -1}',
        b'{"people": ["ann"], "learning": [true], "positives": 1e30}',
        b'{"people": ["ann"], "learning": [true], "positives": 0}',
        b'{"people": [], "learning": [], "positives": 0}',
        b'{"people": ["ann"], "learning": [true], "positives": 9999999999999999999}',
        b'{"people": ["' + b"x" * 300 + b'"], "learning": [true], "positives": 3}',
    ],
)
def test_what_is_no_roll(said):
    with pytest.raises(Malformed):
        Roster.heard(said)


def test_items_of_nobodys_catalogue_are_left_out(tmp_path):
    data = Interactions.from_columns(
        ["ann"] * 3 + ["bob"] * 2, ["x", "y", "strange", "x", "y"], None, [1, 2, 3, 1, 2]
    )
    store = NodeStore.create(tmp_path / "node.db")
    store.put_interactions(data)
    terms = terms_of(data, "fedavg")
    assert roll(Terms(terms.config, ["x", "y"]), store).positives == 2
    with pytest.raises(DataError, match="nobody has any of the federation's 1 items"):
        roll(Terms(terms.config, ["z"]), store)


def test_a_split_that_needs_everybody_is_refused(people, tmp_path):
    (store,) = stores(people, tmp_path, 1)
    with pytest.raises(
        ConfigError, match="'global-time', which needs everybody's interactions in one place"
    ):
        roll(terms_of(people, "fedavg", split="global-time"), store)
