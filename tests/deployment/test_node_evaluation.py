"""What a federation's model is worth, and what it recommends, on nodes: the simulation's figures, with nobody's history on the server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deployment.test_enrolment import stores, terms_of
from deployment.test_server import Together, served
from small_federation import FEDERATED

from coterie.algorithms.registry import algorithm
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_evaluation import NodeMetrics, metric_names, combine
from coterie.deployment.node_service import SIMULATED, NodeService
from coterie.deployment.node_store import NodeStore
from coterie.errors import RunError, UnknownName
from coterie.experiments import experiment
from coterie.experiments.run import Run
from coterie.federated.nodes import read_message, write_message
from coterie.federated.wire import Malformed
from coterie.types import Message

FEW = {
    "embedding_size": 5,
    "inputs": 60,
    "widths": "12,6",
    "users_per_round": 40,
    "participation": 0.3,
    "clusters": 4,
    "titles": 3,
}


def few(name: str) -> dict[str, object]:
    known = algorithm(name).settings.model_fields
    steps = {"rounds": 2} if "rounds" in known else {"epochs": 1, "rounds_an_epoch": 2}
    return {key: value for key, value in FEW.items() if key in known} | steps


def federation(
    name: str, people: Interactions, folder: Path, n: int = 2, **settings: object
) -> tuple[FederationTerms, list[Path]]:
    terms = terms_of(people, name, **few(name) | settings)
    terms = replace(terms, run="a run", titles=[str(text) for text in people.item_texts])  # type: ignore[union-attr]
    made = stores(people, folder, n)
    for store in made:
        NodeService(store).set_seed(SIMULATED)
        store.close()
    return terms, [store.path for store in made]


@pytest.fixture(scope="module")
def bare(people) -> Interactions:
    """Nothing is known but who did what and what things are called: all that files of nodes and of items say."""
    return replace(people, user_features={}, item_categories=None, item_bodies=None)


KINDS = [
    ("fedfast", {"model": "neumf"}),
    ("fedbso", {"aggregate": "cluster"}),
    ("sttfedrec-dssm", {"precision": "int8"}),
    ("fedfast", {"protocol": "loo-50"}),
    ("fedfast", {"protocol": "holdout-10"}),
    ("fedavg", {"secure_aggregation": "ring", "ring_rows": "union"}),
    ("fcf", {"secure_aggregation": "ring", "ring_size": 7}),
    ("pfpl+", {"secure_aggregation": "ring"}),
    ("sttfedrec-dssm", {"secure_aggregation": "ring", "ring_way": "numbers"}),
    ("fl-dssm", {"secure_aggregation": "ring"}),
]
"""Other kinds of models than the usual ones, and other protocols."""


@pytest.mark.parametrize(("name", "settings"), [*((name, {}) for name in FEDERATED), *KINDS])
def test_metrics_and_recommendations_are_the_simulations(name, settings, bare, tmp_path):
    terms, paths = federation(name, bare, tmp_path, **settings)
    point = served(tmp_path, terms, Together(paths))
    here = experiment.run(terms.experiment, bare)
    told = point.history.curve[-1]
    assert told["part"] == "test"
    tolerance = (
        {"abs": 0.02} if "tower" in terms.experiment.settings.model_dump() else {"rel": 1e-12}
    )
    for metric, values in here.evaluation.table.items():  # type: ignore[union-attr]
        assert told[metric] == pytest.approx(values.mean(), **tolerance), metric
    for user in ("3", "8", "141"):
        recommends_alike(here, bare, user, paths, exact="rel" in tolerance)


def recommends_alike(
    here: Run, data: Interactions, user: str, paths: list[Path], exact: bool
) -> None:
    """The best of all that the person has not done, the held-out item included."""
    (home,) = [path for path in paths if user in NodeStore.open(path).users()]
    found = NodeService(NodeStore.open(home)).recommend(user, 5)
    did = {
        str(item)
        for item in data.item_ids[data.items[data.user_ids.astype(str)[data.users] == user]]
    }
    others = [str(item) for item in data.item_ids if str(item) not in did]
    scores = dict(zip(others, here.score(user, others), strict=True))
    assert [r.score for r in found] == [
        pytest.approx(scores[str(r.item)], abs=1e-6 if exact else 0.05) for r in found
    ]
    assert not {str(r.item) for r in found} & did
    assert all(r.text for r in found)
    if exact:
        assert [str(r.item) for r in found] == sorted(scores, key=lambda item: -scores[item])[:5]


@pytest.mark.parametrize("validation", [False, True])
def test_the_curve_while_training(validation, bare, tmp_path):
    """Measured every round: on the part that training is followed by, at the end on the test part."""
    terms, paths = federation(
        "fedfast", bare, tmp_path, rounds=3, evaluate_every=1, validation=validation
    )
    point = served(tmp_path, terms, Together(paths))
    here = experiment.run(terms.experiment, bare)
    part = "validation" if validation else "test"
    assert [(line["round"], line["part"]) for line in point.history.curve] == [
        (1, part),
        (2, part),
        (3, "test"),
    ]
    for line, same in zip(point.history.curve[:2], here.curve, strict=False):
        assert line["NDCG@10"] == pytest.approx(same["NDCG@10"], rel=1e-12)
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["metrics"]["HR@10"] == pytest.approx(here.metrics["HR@10"], rel=1e-12)


def test_fewer_than_a_least_group_say_nothing(bare, tmp_path):
    terms, paths = federation("fedfast", bare, tmp_path)
    for path, least in zip(paths, (101, 2), strict=True):
        NodeStore.open(path).put_meta(least_group=str(least))
    said: dict[str, NodeMetrics] = {}

    class Aggregate(Together):
        def send(self, kind, out):
            back = super().send(kind, out)
            if kind == FINISH:
                said.update(
                    {
                        name: NodeMetrics.parse(data, 200, metric_names(terms.experiment.protocol))
                        for name, data in back.items()
                    }
                )
            return back

    point = served(tmp_path, terms, Aggregate(paths))
    assert (said["0"].people, said["0"].sums) == (0, {})
    assert said["1"].people > 90
    assert point.history.curve[-1]["HR@10"] == pytest.approx(
        said["1"].sums["HR@10"] / said["1"].people
    )
    for path in paths:
        NodeStore.open(path).put_meta(least_group="101")
    (tmp_path / "again").mkdir()
    point = served(tmp_path / "again", replace(terms, run="another"), Together(paths))
    assert point.history.curve == ()
    assert json.loads((tmp_path / "again" / "status.json").read_text())["metrics"] == {}


def but_one(message: Message) -> Message:
    """To all people of a node but one."""
    return message.to(np.arange(1, len(message.users)))


def other_tag(message: Message) -> Message:
    """To all, and one of them is told that something was accepted which never was."""
    accepted = message.own["accepted"].copy()
    accepted[0] += 1
    return replace(message, own=message.own | {"accepted": accepted})


@pytest.mark.parametrize("pry", [but_one, other_tag])
def test_sums_over_some_and_over_some_more_are_told_to_nobody(pry, bare, tmp_path):
    terms, paths = federation("pfpl+", bare, tmp_path)

    class Prying(Together):
        def send(self, kind, out):
            if kind == FINISH:
                out = {name: write_message(pry(read_message(data))) for name, data in out.items()}
            return super().send(kind, out)

    assert served(tmp_path, terms, Prying(paths)).history.curve == ()


@pytest.mark.parametrize(
    "said",
    [
        NodeMetrics(3, "test", {"HR@10": 4.0}),
        NodeMetrics(3, "test", {"HR@10": -1.0}),
        NodeMetrics(0, "test", {"HR@10": 0.0}),
        NodeMetrics(3, "test", {}),
        NodeMetrics(-1, "test", {}),
        NodeMetrics(6, "test", {"HR@10": 1.0}),
        NodeMetrics(10**400, "test", {"HR@10": 1.0}),
        NodeMetrics(3, "x", {"HR@10": 1.0}),
        NodeMetrics(3, "test", {"made up": 1.0}),
    ],
)
def test_sums_that_nobody_can_have(said):
    with pytest.raises(Malformed):
        NodeMetrics.parse(said.to_json().encode(), 5, {"HR@10"})


@pytest.mark.parametrize(
    "text",
    [b'{"people": 3, "part": "test", "sums": {"HR@10": NaN}}', b"[]", b"\x00", b'{"people": "3"}'],
)
def test_what_is_no_worth(text):
    with pytest.raises(Malformed):
        NodeMetrics.parse(text, 5, {"HR@10"})


def test_means_are_over_all_people():
    said = [
        NodeMetrics(10, "test", {"HR@10": 5.0, "x": 1.0}),
        NodeMetrics(0, "test", {}),
        NodeMetrics(30, "test", {"HR@10": 3.0}),
    ]
    assert combine(said) == {"HR@10": 0.2}
    assert combine([]) == {}


def test_a_person_gets_their_own_rows_and_no_others(bare, tmp_path):
    terms, paths = federation("fedfast", bare, tmp_path)
    point = served(tmp_path, terms, Together(paths))
    store = NodeStore.open(paths[0])
    for number, person in list(store.numbers().items())[:20]:
        assert np.array_equal(store.given(person)["user_rows"], point.state.user_rows[number])
        assert (
            store.export(person)["from_server"]["user_rows"]
            == point.state.user_rows[number].tolist()
        )
    held = store.connection.execute("select count(*) from given").fetchone()[0]
    assert held == len(store.users())


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
def test_who_is_forgotten_is_gone_and_the_federation_goes_on(name, bare, tmp_path):
    terms, paths = federation(name, bare, tmp_path)
    served(tmp_path, terms, Together(paths))
    store = NodeStore.open(paths[0])
    person = store.users()[5]
    other = store.users()[6]
    store.forget(person)
    with pytest.raises(UnknownName, match=person):
        NodeService(store).recommend(person)
    assert NodeService(store).recommend(other)
    store.close()
    for table, column in (
        ("did", "person"),
        ("kept", "person"),
        ("given", "person"),
        ("person", "id"),
    ):
        left = NodeStore.open(paths[0]).connection.execute(
            f"select count(*) from {table} where {column} = ?", (person,)
        )
        assert left.fetchone()[0] == 0
    assert f'"{person}":' not in "".join(
        NodeStore.open(paths[0]).meta(key) or "" for key in ("numbers", "given", "layout")
    )
    point = served(tmp_path, terms, Together(paths))  # the end again: the others are measured
    assert point.history.curve[-1]["HR@10"] > 0


def test_before_any_model_came(bare, tmp_path):
    _, (path, _) = federation("fedfast", bare, tmp_path)
    with pytest.raises(RunError, match="has had no model yet"):
        NodeService(NodeStore.open(path)).recommend(NodeStore.open(path).users()[0])


def test_somebody_who_came_later_has_no_part_in_the_model(bare, tmp_path):
    terms, paths = federation("fedfast", bare, tmp_path)
    served(tmp_path, terms, Together(paths))
    store = NodeStore.open(paths[0])
    store.put_interactions(Interactions.from_columns(["late"], [str(bare.item_ids[0])], None, [5]))
    with pytest.raises(RunError, match=r"user late of .* has no part in the model"):
        NodeService(store).recommend("late")
    point = served(tmp_path, terms, Together(paths))
    assert len(point.state.user_rows) == bare.n_users
