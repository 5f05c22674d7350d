"""Evaluation and recommendations on nodes equal those of the simulation."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from deployment.test_enrolment import stores, terms_of
from deployment.test_server import InProcessNodes, served
from small_federation import FEDERATED

from coterie.algorithms.registry import algorithm
from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_evaluation import NodeMetrics, combine, metric_names
from coterie.deployment.node_policy import NodePolicy, put_policy
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import FINISH, SIMULATED, NodeService
from coterie.errors import ConfigError, RunError, UnknownName
from coterie.experiments import experiment
from coterie.experiments.finished_run import Run
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
    """Interactions and titles only: what the files of nodes and items hold."""
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
    ("sttfedrec-dssm", {"secure_aggregation": "ring", "ring_shares": "vector"}),
    ("fl-dssm", {"secure_aggregation": "secagg"}),
    ("fcf", {"secure_aggregation": "secagg", "group_size": 20}),
    ("fedavg", {"secure_aggregation": "secagg", "group_rows": "union"}),
]
"""Other kinds of models, protocols and protections."""


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in FEDERATED),
        *(pytest.param(*kind, marks=pytest.mark.long) for kind in KINDS),
    ],
)
def test_metrics_and_recommendations_equal_the_simulation(name, settings, bare, tmp_path):
    terms, paths = federation(name, bare, tmp_path, **settings)
    point = served(tmp_path, terms, InProcessNodes(paths))
    simulated = experiment.run(terms.experiment, bare)
    metrics = point.history.curve[-1]
    assert metrics["part"] == "test"
    exact = "tower" not in terms.experiment.settings.model_dump()
    tolerance = {"abs": rounding(paths, bare) if exact else 0.02}
    for metric, values in simulated.evaluation.table.items():  # type: ignore[union-attr]
        assert metrics[metric] == pytest.approx(values.mean(), **tolerance), metric
    for user in ("3", "8", "141"):
        recommends_alike(simulated, bare, user, paths, exact)


def rounding(paths: list[Path], people: Interactions) -> float:
    """How far means may be off: each node rounds its sums to hundredths of a user."""
    tested = np.count_nonzero(np.bincount(people.users) > 1)
    return 0.005 * len(paths) / float(tested) + 1e-12


def recommends_alike(
    simulated: Run, data: Interactions, user: str, paths: list[Path], exact: bool
) -> None:
    """A node recommends the best of all items outside the user's whole history."""
    (home,) = [path for path in paths if user in NodeStore.open(path).users()]
    service = NodeService(NodeStore.open(home))
    found = service.recommend(user, 5)
    explains_alike(simulated, service, user, [r.item for r in found])
    own = data.items[data.user_ids.astype(str)[data.users] == user]
    seen = {str(item) for item in data.item_ids[own]}
    others = [str(item) for item in data.item_ids if str(item) not in seen]
    scores = dict(zip(others, simulated.score(user, others), strict=True))
    assert [r.score for r in found] == [
        pytest.approx(scores[str(r.item)], abs=1e-6 if exact else 0.05) for r in found
    ]
    assert not {str(r.item) for r in found} & seen
    assert all(r.text for r in found)
    if exact:
        assert [str(r.item) for r in found] == sorted(scores, key=lambda item: -scores[item])[:5]


def explains_alike(simulated: Run, service: NodeService, user: str, items: list[object]) -> None:
    """A node names the reasons of the simulation, or refuses as it does."""
    name = simulated.result["algorithm"]
    if algorithm(name).item_based:
        expected = simulated.why(user, items)
        assert [[str(reason.item) for reason in why] for why in service.why(user, items)] == [
            [str(reason.item) for reason in why] for why in expected
        ]
        return
    with pytest.raises(ConfigError, match=f"algorithm is {re.escape(name)}, .*not item-based"):
        service.why(user, items)


@pytest.mark.parametrize("validation", [False, True])
def test_the_curve_while_training(validation, bare, tmp_path):
    """Evaluated every round: on the validation part if there is one, at the end on test."""
    terms, paths = federation(
        "fedfast", bare, tmp_path, rounds=3, evaluate_every=1, validation=validation
    )
    point = served(tmp_path, terms, InProcessNodes(paths))
    simulated = experiment.run(terms.experiment, bare)
    part = "validation" if validation else "test"
    assert [(line["round"], line["part"]) for line in point.history.curve] == [
        (1, part),
        (2, part),
        (3, "test"),
    ]
    for line, same in zip(point.history.curve[:2], simulated.curve, strict=False):
        assert line["NDCG@10"] == pytest.approx(same["NDCG@10"], abs=rounding(paths, bare))
    status = json.loads((tmp_path / "status.json").read_text())
    assert status["metrics"]["HR@10"] == pytest.approx(simulated.metrics["HR@10"], rel=1e-12)


def test_groups_below_the_least_size_report_nothing(bare, tmp_path):
    terms, paths = federation("fedfast", bare, tmp_path)
    for path, least in zip(paths, (101, 2), strict=True):
        put_policy(NodeStore.open(path), NodePolicy(smallest_evaluation_group=least))
    names = metric_names(terms.experiment.protocol)
    reports: dict[str, NodeMetrics] = {}

    class Recorded(InProcessNodes):
        def send(self, kind, out, seconds=None):
            replies = super().send(kind, out)
            if kind == FINISH:
                for name, data in replies.items():
                    reports[name] = NodeMetrics.parse(data, 200, names)
            return replies

    point = served(tmp_path, terms, Recorded(paths))
    assert (reports["0"].users, reports["0"].sums) == (0, {})
    assert reports["1"].users > 90
    mean = reports["1"].sums["HR@10"] / reports["1"].users
    assert point.history.curve[-1]["HR@10"] == pytest.approx(mean)
    for path in paths:
        put_policy(NodeStore.open(path), NodePolicy(smallest_evaluation_group=101))
    (tmp_path / "again").mkdir()
    point = served(tmp_path / "again", replace(terms, run="another"), InProcessNodes(paths))
    assert point.history.curve == ()
    assert json.loads((tmp_path / "again" / "status.json").read_text())["metrics"] == {}


def but_one(message: Message) -> Message:
    """Leave out one of a node's users."""
    return message.to(np.arange(1, len(message.users)))


def other_tag(message: Message) -> Message:
    """Report an update of one user as accepted that never was."""
    accepted = message.own["accepted"].copy()
    accepted[0] += 1
    return replace(message, own=message.own | {"accepted": accepted})


@pytest.mark.parametrize("change", [but_one, other_tag])
def test_nodes_report_no_metrics_of_a_subset_of_their_users(change, bare, tmp_path):
    terms, paths = federation("pfpl+", bare, tmp_path)

    class CuriousServer(InProcessNodes):
        def send(self, kind, out, seconds=None):
            if kind == FINISH:
                out = {
                    name: write_message(change(read_message(data))) for name, data in out.items()
                }
            return super().send(kind, out)

    assert served(tmp_path, terms, CuriousServer(paths)).history.curve == ()


@pytest.mark.parametrize(
    "metrics",
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
def test_impossible_metrics_are_refused(metrics):
    with pytest.raises(Malformed):
        NodeMetrics.parse(metrics.to_json().encode(), 5, {"HR@10"})


@pytest.mark.parametrize(
    "text",
    [b'{"users": 3, "part": "test", "sums": {"HR@10": NaN}}', b"[]", b"\x00", b'{"users": "3"}'],
)
def test_malformed_metrics_are_refused(text):
    with pytest.raises(Malformed):
        NodeMetrics.parse(text, 5, {"HR@10"})


def test_means_are_over_all_users():
    reports = [
        NodeMetrics(10, "test", {"HR@10": 5.0, "x": 1.0}),
        NodeMetrics(0, "test", {}),
        NodeMetrics(30, "test", {"HR@10": 3.0}),
    ]
    assert combine(reports) == {"HR@10": 0.2}
    assert combine([]) == {}


def test_a_node_gets_only_its_own_users_rows(bare, tmp_path):
    terms, paths = federation("fedfast", bare, tmp_path)
    point = served(tmp_path, terms, InProcessNodes(paths))
    store = NodeStore.open(paths[0])
    for index, user in list(store.numbers().items())[:20]:
        row = point.state.user_rows[index]
        assert np.array_equal(store.model_rows(user)["user_rows"], row)
        assert store.export(user)["from_server"]["user_rows"] == row.tolist()
    n_rows = store.connection.execute("select count(*) from given").fetchone()[0]
    assert n_rows == len(store.users())


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
def test_a_user_is_erased_and_the_federation_continues(name, bare, tmp_path):
    terms, paths = federation(name, bare, tmp_path)
    served(tmp_path, terms, InProcessNodes(paths))
    store = NodeStore.open(paths[0])
    user = store.users()[5]
    other = store.users()[6]
    store.forget(user)
    with pytest.raises(UnknownName, match=user):
        NodeService(store).recommend(user)
    assert NodeService(store).recommend(other)
    store.close()
    for table, column in (
        ("did", "person"),
        ("kept", "person"),
        ("given", "person"),
        ("person", "id"),
    ):
        left = NodeStore.open(paths[0]).connection.execute(
            f"select count(*) from {table} where {column} = ?", (user,)
        )
        assert left.fetchone()[0] == 0
    assert f'"{user}":' not in "".join(
        NodeStore.open(paths[0]).meta(key) or "" for key in ("numbers", "given", "layout")
    )
    point = served(tmp_path, terms, InProcessNodes(paths))  # evaluates the other users again
    assert point.history.curve[-1]["HR@10"] > 0


def test_a_node_without_a_model(bare, tmp_path):
    _, (path, _) = federation("fedfast", bare, tmp_path)
    with pytest.raises(RunError, match="holds no model yet"):
        NodeService(NodeStore.open(path)).recommend(NodeStore.open(path).users()[0])


def test_a_new_user_has_no_part_in_the_last_model(bare, tmp_path):
    terms, paths = federation("fedfast", bare, tmp_path)
    served(tmp_path, terms, InProcessNodes(paths))
    store = NodeStore.open(paths[0])
    store.put_interactions(Interactions.from_columns(["late"], [str(bare.item_ids[0])], None, [5]))
    with pytest.raises(RunError, match=r"user late of .* has no part in the last model"):
        NodeService(store).recommend("late")
    point = served(tmp_path, terms, InProcessNodes(paths))
    assert len(point.state.user_rows) == bare.n_users
