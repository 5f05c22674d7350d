"""Popularity in the scores of runs: which runs have it, and that everything else stays the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coterie
from coterie.algorithms import registry
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.experiments.derived_defaults import count_items, origin_of_settings, uses_prior
from coterie.experiments.experiment import resume
from coterie.experiments.plan import cells
from coterie.experiments.preparation import prepare
from coterie.report.table import notes
from coterie.reproduce.items import Trial
from coterie.reproduce.papers import NAMES, paper
from coterie.reproduce.running import plan_of

FEW = {"protocol": "loo-50", "embedding_size": 4, "seed": 1}


def arrays_of(run: coterie.Run) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.model.arrays().items()}


@pytest.mark.parametrize("name", ["fedavg", "fedfast", "pfpl+", "gmf"])
def test_popularity_changes_scores_and_no_bit_of_the_model(name: str, people: Interactions) -> None:
    length = {"rounds": 5} if name in ("fedavg", "fedfast") else {"epochs": 2}
    run = coterie.run(name, people, **FEW, **length)
    alone = coterie.run(name, people, **FEW, **length, popularity_prior=0)
    assert arrays_of(run) == arrays_of(alone)
    assert run.result["popularity_prior"] > 0 == alone.result["popularity_prior"]
    assert run.full["NDCG@10"] != alone.full["NDCG@10"]
    assert run.result["without_popularity"]["NDCG@10"] == alone.full["NDCG@10"]
    assert "without_popularity" not in alone.result


def test_a_run_says_how_much_popularity_counts(people: Interactions) -> None:
    run = coterie.run("fedavg", people, **FEW, rounds=3, popularity_prior=7)
    text = " ".join(notes(run))
    assert "Popularity counts as 7 interactions of a user" in text
    assert "popularity_prior=0" in text


def test_counting_is_part_of_the_costs(people: Interactions) -> None:
    run = coterie.run("fedavg", people, **FEW, rounds=3)
    alone = coterie.run("fedavg", people, **FEW, rounds=3, popularity_prior=0)
    more = run.result["bytes_up"] - alone.result["bytes_up"]
    # A word of four bytes for every item, and what a group takes around it.
    assert 4 * 120 * 200 < more < (4 * 120 + 9000) * 200
    assert run.result["bytes_down"] > alone.result["bytes_down"]


def test_counting_costs_what_secure_aggregation_costs(people: Interactions) -> None:
    """Of a run in the clear, whose simulation leaves the masks out."""
    pytest.importorskip("cryptography")
    experiment = Experiment.of({"algorithm": "fedavg", **FEW})
    secagg = Experiment.of({"algorithm": "fedavg", "secure_aggregation": "secagg", **FEW})
    training = prepare(experiment, people, SILENT).training
    counts, costs = count_items(experiment, training)
    protected, measured = count_items(secagg, training)
    np.testing.assert_array_equal(counts, protected)
    # But for chance: clients draw their holders.
    assert costs.bytes_up == pytest.approx(measured.bytes_up, rel=0.03)
    assert costs.bytes_down == pytest.approx(measured.bytes_down, rel=0.03)


@pytest.mark.parametrize("name", ["als", "ease", "fedals", "fedease", "fcf", "bpr", "itemknn"])
def test_models_of_all_items_stay_alone_by_default(name: str) -> None:
    assert not registry.algorithm(name).popularity_prior


def test_tuned_settings_are_without_it(people: Interactions) -> None:
    """Synthetic data as it is by default has settings tuned for fedavg; other sizes have none."""
    assert not uses_prior(Experiment.of({"algorithm": "fedavg"}))
    assert uses_prior(Experiment.of({"algorithm": "fedavg", "n_users": 90}))
    assert uses_prior(Experiment.of({"algorithm": "fedavg", "popularity_prior": 3}))


def test_counting_never_shows_which_items_a_client_counts(people: Interactions) -> None:
    """The union of a ring's rows would: with it, vectors are shorter than the catalogue."""
    pytest.importorskip("cryptography")
    keys = {"algorithm": "fedavg", "secure_aggregation": "ring", **FEW}
    few = people.select(people.users < 10)
    union = Experiment.of(keys | {"ring_rows": "union"})
    whole = Experiment.of(keys)
    training = prepare(whole, few, SILENT).training
    _, costs = count_items(union, training)
    assert costs.bytes_up == count_items(whole, training)[1].bytes_up


def test_any_model_can_have_it(people: Interactions) -> None:
    run = coterie.run("ease", people, protocol="loo-50", popularity_prior=5)
    assert run.result["popularity_prior"] == 5
    assert run.full["NDCG@10"] != run.result["without_popularity"]["NDCG@10"]


def test_a_loaded_run_recommends_as_before(people: Interactions, tmp_path: Path) -> None:
    run = coterie.run("fedavg", people, **FEW, rounds=5, out=tmp_path / "run")
    again = coterie.Run.load(tmp_path / "run")
    user = people.user_ids[3]
    assert again.recommend(user) == run.recommend(user)
    items = [one.item for one in run.recommend(user, 3)]
    assert run.score(user, items) == pytest.approx([one.score for one in run.recommend(user, 3)])
    history = list(people.item_ids[:4])
    assert again.recommend_new_user(history) == run.recommend_new_user(history)
    everyone = run.recommend_all(3)
    of_user = everyone[everyone["user_id"] == user]
    assert of_user["item_id"].tolist() == items


def test_new_users_without_history_get_the_most_popular_items(people: Interactions) -> None:
    run = coterie.run("fedavg", people, **FEW, rounds=3)
    assert run.prior is not None
    best = np.argsort(-run.prior.popularity, kind="stable")[:5]
    found = [one.item for one in run.recommend_new_user([], 5)]
    assert found == list(people.item_ids[best])


def test_a_resumed_run_is_the_same(people: Interactions, tmp_path: Path) -> None:
    same = {**FEW, "rounds": 6, "checkpoint_every": 1, "evaluate_every": 2}
    synthetic = {"dataset": "synthetic", "n_users": 120, "n_items": 80, "mean_interactions": 10}
    whole = coterie.run("fedavg", **same, **synthetic, out=tmp_path / "whole")
    (tmp_path / "whole" / "result.json").unlink()
    again = resume(tmp_path / "whole")
    assert again.metrics == whole.metrics
    assert again.result["bytes_up"] == whole.result["bytes_up"]
    assert again.result["popularity_prior"] == whole.result["popularity_prior"]


def test_ratings_have_no_prior() -> None:
    keys = {"algorithm": "gmf", "dataset": "ml-100k", "feedback": "explicit"}
    with pytest.raises(ConfigError, match="does not predict ratings"):
        Experiment.of(keys | {"popularity_prior": 3, "protocol": "ratings"})


@pytest.mark.parametrize("name", NAMES)
def test_papers_are_reproduced_without_it(name: str) -> None:
    trials = [trial for item in paper(name).items for trial in item.trials]
    for trial in trials:
        if isinstance(trial, Trial):
            for cell in cells(plan_of(trial)):
                assert cell.experiment.course.popularity_prior == 0


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (
            {"algorithm": "fedavg", "dataset": "mine.csv"},
            "Defaults of fedavg: not tuned for mine.csv (coterie tune finds better ones); "
            "how much popularity counts is derived from the data. --set overrides them.",
        ),
        (
            {"algorithm": "als", "dataset": "ml-1m"},
            "Defaults of als: tuned on the validation part of ml-1m. --set overrides them.",
        ),
        ({"algorithm": "popular", "dataset": "ml-1m"}, ""),
    ],
)
def test_a_run_says_where_its_settings_come_from(keys: dict[str, object], expected: str) -> None:
    assert origin_of_settings(Experiment.of(keys)) == expected


@pytest.mark.parametrize(
    ("in_file", "expected"),
    [
        (
            ["algorithm", *registry.algorithm("als").settings.search_space],
            "Settings of als: from als.yaml. --set overrides them.",
        ),
        (
            ["algorithm", "reg"],
            "Settings of als: reg from als.yaml; other defaults are not tuned for mine.csv "
            "(coterie tune finds better ones). --set overrides them.",
        ),
        (
            ["algorithm", "epochs"],
            "Defaults of als: not tuned for mine.csv (coterie tune finds better ones). "
            "--set overrides them.",
        ),
    ],
)
def test_a_run_of_a_file_says_which_settings_come_from_it(
    in_file: list[str], expected: str
) -> None:
    experiment = Experiment.of({"algorithm": "als", "dataset": "mine.csv"})
    assert origin_of_settings(experiment, "als.yaml", in_file) == expected
