"""Nodes come and go: who belongs stays who belongs, whoever hosts them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from deployment.test_node import Losing
from deployment.test_server import IN_RING, Together, beginning, same, served, simulated
from small_federation import play

from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import Terms
from coterie.engines.local import LocalEngine
from coterie.errors import NoQuorum
from coterie.experiments.preparation import prepare
from coterie.federated import trainer

There = Callable[[int], dict[str, int]]


class Changing(Together):
    """`there(asks)` -> nodes by name, after so many rounds were asked for; the second dies while it answers the one numbered `dies`."""

    def __init__(self, paths: list[Path], there: There, keyed: bool = False, dies: int = 0) -> None:
        super().__init__(paths)
        self.there = there
        self.keyed = keyed
        self.dies = dies
        self.asks = 0

    def joined(self) -> list[str]:
        return sorted(self.there(self.asks))

    def send(self, kind: str, out: Mapping[str, bytes]) -> dict[str, bytes]:
        here = self.there(self.asks)
        self.asks += kind == "ask"
        dead = 1 if kind == "ask" and self.asks == self.dies else -1
        return {
            name: self._call(kind, here[name], data)
            for name, data in out.items()
            if here[name] != dead
        }  # type: ignore[misc]


def without(terms: Terms, people: Interactions, node: int, n: int, t: int) -> dict[str, np.ndarray]:
    """The simulation in which a node's people are absent in one round."""
    ready = prepare(terms.experiment, people, SILENT)
    world = trainer.world_of(ready.training, terms.experiment.settings, 0, terms.federation)
    engine = Losing(LocalEngine.over(world, ready.training, n), node, t)
    name = terms.experiment.choice.algorithm
    return play(name, world, engine)[0][-1].arrays()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
@pytest.mark.parametrize("again", ["1", "a new name"])
def test_a_node_that_dies_in_a_round_was_absent_and_comes_back(name, again, people, tmp_path):
    terms, paths = beginning(name, people, tmp_path, 2)
    second = 2 + int(name == "fedfast")  # after the opening, where there is one
    nodes = Changing(paths, lambda asks: {"0": 0, "1" if asks < second else again: 1}, dies=second)
    point = served(tmp_path, terms, nodes, quorum=0.3)
    assert same(point.state, without(terms, people, 1, 2, 1))
    assert not same(point.state, simulated(terms, people))


@pytest.mark.parametrize("stage", ["announce", "deal", "upload"])
def test_a_node_that_dies_in_a_ring_was_absent(stage, people, tmp_path):
    """Its people vanish at a stage of the second round's ring, which heals; private rows and all are those of a round without them."""
    terms, paths = beginning("fcf", people, tmp_path, 3, **IN_RING)
    call = (
        1 + 4 + 1 + ["announce", "deal", "upload"].index(stage)
    )  # enrolment, a round of four stages, and then
    nodes = Together(
        paths, lambda kind, node, number: kind == "ask" and node == 1 and number == call
    )
    point = served(tmp_path, terms, nodes)
    assert same(point.state, without(terms, people, 1, 3, 1))
    assert not same(point.state, simulated(terms, people))


def test_with_keys_nobody_speaks_for_anothers_people(people, tmp_path):
    """A node that shows another key says to host the people of one that is away: they are not asked."""
    terms, paths = beginning("fedfast", people, tmp_path, 2, participation=1.0)

    def there(asks: int) -> dict[str, int]:
        return {"0": 0, "1": 1} if asks < 2 else {"0": 0, "thief": 1}

    point = served(tmp_path, terms, Changing(paths, there, keyed=True), quorum=0.3)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["refused"] == {"another node's person": people.n_users // 2}
    here = int((np.arange(people.n_users) % 2 == 0).sum())
    assert point.history.updates <= people.n_users + 3 * here
    homes = json.loads((tmp_path / "homes.json").read_text())
    assert set(homes.values()) == {"0", "1"}


def test_a_server_that_goes_on_knows_who_belongs(people, tmp_path):
    """Started again while a node is away: the world is the same, and the node's people are absent until it comes."""
    terms, paths = beginning("fedfast", people, tmp_path, 3)

    def stop(asks: int) -> dict[str, int]:
        if asks == 3:
            raise KeyboardInterrupt
        return {"0": 0, "1": 1, "2": 2}

    with pytest.raises(KeyboardInterrupt):
        served(tmp_path, terms, Changing(paths, stop), least_nodes=2)
    assert json.loads((tmp_path / "status.json").read_text())["round"] >= 1
    point = served(
        tmp_path,
        terms,
        Changing(paths, lambda asks: {"0": 0, "2": 2}),
        least_nodes=2,
        round_seconds=0.2,
    )
    assert len(point.state.user_rows) == people.n_users
    assert point.history.round == 4


def test_too_few_to_begin(people, tmp_path):
    terms, paths = beginning("fedfast", people, tmp_path, 2)
    nodes = Changing(paths, lambda asks: {"0": 0})
    with pytest.raises(NoQuorum, match=r"1 of 2 nodes joined within 0\.2 seconds"):
        served(tmp_path, terms, nodes, least_nodes=2, wait_seconds=0.2)
    assert json.loads((tmp_path / "status.json").read_text()) == {
        "state": "waiting",
        "nodes": 1,
        "least_nodes": 2,
    }


def test_a_node_that_does_not_answer_is_left_alone_for_a_while(people, tmp_path):
    """It costs everybody a deadline."""
    terms, paths = beginning("fedfast", people, tmp_path, 2, rounds=12)
    asked: list[int] = []

    class Deaf(Changing):
        def send(self, kind, out):
            if "deaf" in out:
                asked.append(self.asks)
            return super().send(kind, {name: data for name, data in out.items() if name != "deaf"})

    served(tmp_path, terms, Deaf(paths, lambda asks: {"0": 0, "1": 1, "deaf": 0}), least_nodes=2)
    assert 2 <= len(asked) <= 4


@pytest.mark.parametrize("keyed", [True, False])
def test_whose_people_they_are_when_it_begins(keyed, people, tmp_path):
    """Two nodes say that they host the same people: with keys who came first does; without, one of them."""
    terms, paths = beginning("fedfast", people, tmp_path, 2)
    there = {"0": 0, "1": 1, "2 again": 1}
    served(tmp_path, terms, Changing(paths, lambda asks: there, keyed=keyed), least_nodes=2)
    homes = json.loads((tmp_path / "homes.json").read_text())
    assert set(homes.values()) in ([{"0", "1"}] if keyed else [{"0", "1"}, {"0", "2 again"}])
    refused = json.loads((tmp_path / "status.json").read_text())["refused"]
    assert bool(refused.get("another node's person")) == keyed


def test_nobody_is_left(people, tmp_path):
    """A federation goes on, and those who are there host nobody of it: that is no round, and no end."""
    terms, paths = beginning("fedfast", people, tmp_path, 2)
    with pytest.raises(KeyboardInterrupt):
        served(tmp_path, terms, Changing(paths, stop_after(2), keyed=True))
    with pytest.raises(NoQuorum, match="nobody who belongs to the federation is on a node"):
        served(
            tmp_path,
            terms,
            Changing(paths, lambda asks: {"thief": 0}, keyed=True),
            round_seconds=0.1,
        )


def stop_after(n: int) -> There:
    def there(asks: int) -> dict[str, int]:
        if asks > n:
            raise KeyboardInterrupt
        return {"0": 0, "1": 1}

    return there
