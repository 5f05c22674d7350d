"""The Python API: the command line's settings, external ids, and files only on request."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from every_algorithm import HERE, two_steps

import coterie
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, DataError, RunError, UnknownName, UserError

SMALL: dict[str, Any] = {"n_users": 60, "n_items": 90, "mean_interactions": 9}


def frame(
    rows: str = "ann tea, ann jam, bob tea, bob rye, cat jam, cat rye, cat tea",
) -> pd.DataFrame:
    pairs = [pair.split() for pair in rows.split(", ")]
    return pd.DataFrame(pairs, columns=["user_id", "item_id"]).assign(timestamp=range(len(pairs)))


@pytest.fixture(scope="module")
def bpr() -> coterie.Run:
    return coterie.run("bpr", epochs=3, **SMALL)


# ---- names


def test_public_names_can_all_be_had() -> None:
    assert all(getattr(coterie, name) is not None for name in coterie.__all__)


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        coterie.nonsense  # noqa: B018


def test_every_error_on_purpose_is_a_coterie_error() -> None:
    for action in (
        lambda: coterie.run("gmff"),
        lambda: coterie.run("gmf", "ml100k"),
        lambda: coterie.run("gmf", epoch=3),
        lambda: coterie.run("gmf", epochs=0),
        lambda: coterie.load("nope.csv"),
        lambda: coterie.Run.load("nowhere"),
    ):
        with pytest.raises(coterie.CoterieError) as caught:
            action()
        assert isinstance(caught.value, UserError)
        assert "\n" not in str(caught.value)


# ---- load


def test_load_a_frame_and_get_its_ids_back() -> None:
    data = coterie.load(frame())
    assert list(data.user_ids) == ["ann", "bob", "cat"]
    assert sorted(data.item_ids) == ["jam", "rye", "tea"]
    assert len(data) == 7


def test_load_a_frame_with_other_column_names() -> None:
    renamed = frame().rename(columns={"user_id": "who", "item_id": "what"})
    data = coterie.load(renamed, columns={"user_id": "who", "item_id": "what"})
    assert (data.n_users, data.n_items, len(data)) == (3, 3, 7)
    with pytest.raises(DataError, match="user_id"):
        coterie.load(renamed)


def test_load_with_filters() -> None:
    assert list(coterie.load(frame(), min_user_interactions=3).user_ids) == ["cat"]
    with pytest.raises(ConfigError, match="Did you mean 'core'"):
        coterie.load(frame(), cor=3)


def test_frame_obeys_the_policy_for_repeated_pairs() -> None:
    twice = pd.concat([frame(), frame().head(1).assign(timestamp=99)])
    newest = coterie.load(twice)
    oldest = coterie.load(twice, duplicates="oldest")
    assert (newest.times.max(), oldest.times.max()) == (99, 6)
    with pytest.raises(UserError, match="ann"):
        coterie.load(twice, duplicates="error")


def test_load_a_file_by_path_or_text(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    assert len(coterie.load(tmp_path / "a.csv")) == len(coterie.load(str(tmp_path / "a.csv"))) == 7


def test_load_skips_bad_rows_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id,rating\na,x,1\na,y,one\n")
    with pytest.raises(coterie.CoterieError, match=r"a\.csv:3"):
        coterie.load(tmp_path / "a.csv")
    data = coterie.load(tmp_path / "a.csv", skip_bad_rows=True)
    assert len(data) == 1
    assert data.notes


# ---- run


def test_nothing_is_written_without_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = coterie.run("popular", **SMALL)
    assert list(tmp_path.iterdir()) == []
    assert run.result["run"] is None


def test_run_takes_the_settings_of_the_command_line(bpr: coterie.Run) -> None:
    assert (bpr.result["rounds"], bpr.result["users"], bpr.result["protocol"]) == (3, 60, "loo-50")
    assert bpr.metrics == bpr.result["metrics"]
    assert bpr.full == bpr.result["full"]


def test_run_on_loaded_data_equals_run_by_name() -> None:
    by_name = coterie.run("popular")
    by_data = coterie.run("popular", coterie.load("synthetic"))
    assert by_data.result["dataset"] == "synthetic"
    assert by_name.metrics == by_data.metrics


def test_run_on_a_file_equals_run_on_its_frame(tmp_path: Path, people: Interactions) -> None:
    ids = {"user_id": people.user_ids[people.users], "item_id": people.item_ids[people.items]}
    table = pd.DataFrame(ids | {"timestamp": people.times})
    table.to_csv(tmp_path / "a.csv", index=False)
    of_file = coterie.run("bpr", tmp_path / "a.csv", epochs=2)
    of_frame = coterie.run("bpr", coterie.load(table), epochs=2)
    assert of_file.metrics == of_frame.metrics


def test_row_order_of_the_source_does_not_matter(people: Interactions) -> None:
    ids = {"user_id": people.user_ids[people.users], "item_id": people.item_ids[people.items]}
    table = pd.DataFrame(ids | {"timestamp": people.times})
    shuffled = table.sample(frac=1, random_state=3)
    one, other = (coterie.run("gmf", coterie.load(t), epochs=2) for t in (table, shuffled))
    assert all(np.array_equal(a, other.model.arrays()[n]) for n, a in one.model.arrays().items())


def test_filters_are_never_ignored_for_data_already_loaded(people: Interactions) -> None:
    """Filters are applied or rejected: a result must not name filters that were not applied."""
    try:
        run = coterie.run("popular", people, min_user_interactions=25)
    except ConfigError:
        return
    assert run.result["users"] < people.n_users


def test_frame_in_place_of_data_is_taken_or_refused_in_one_line() -> None:
    try:
        run = coterie.run("popular", frame())  # type: ignore[arg-type]
    except (coterie.CoterieError, TypeError) as refused:
        message = str(refused)
        assert "coterie.load" in message
        assert "\n" not in message
    else:
        assert run.result["users"] == 3


def test_run_folder_of_data_from_python_says_what_is_missing(
    tmp_path: Path, people: Interactions
) -> None:
    """The config cannot name the data; the error must say so, not that `given` is no file."""
    from coterie.experiments.config import Experiment, read_file
    from coterie.experiments.preparation import load_data

    coterie.run("popular", people, out=tmp_path / "r")
    with pytest.raises(UserError, match=r"(?i)python|--dataset"):
        load_data(Experiment.of(read_file(str(tmp_path / "r" / "config.yaml"))))


def test_occupied_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(RunError, match="not empty"):
        coterie.run("popular", out=tmp_path, **SMALL)


# ---- recommend and score


@pytest.mark.parametrize("name", HERE)
def test_recommendations_are_the_best_unseen_items(name: str) -> None:
    """Equals a sorted list of `score`, item by item."""
    run = coterie.run(name, **SMALL, **two_steps(name))
    ids = [int(i) for i in run.catalogue.item_ids]
    for user in (1, 30, 60):
        seen = {int(run.catalogue.item_ids[i]) for i in run.catalogue.seen.of(user - 1)}
        scores = dict(zip(ids, run.score(user, ids), strict=True))
        got = run.recommend(user, 7)
        assert len(got) == 7
        assert not {r.item for r in got} & seen
        best = sorted((s for i, s in scores.items() if i not in seen), reverse=True)[:7]
        assert [r.score for r in got] == pytest.approx(best, abs=1e-5)
        assert all(r.score == pytest.approx(scores[r.item], abs=1e-5) for r in got)


def test_seen_items_come_back_on_request(bpr: coterie.Run) -> None:
    everything = bpr.recommend(3, 1000, exclude_seen=False)
    unseen = bpr.recommend(3, 1000)
    assert len({r.item for r in everything}) == len(everything) == bpr.result["items"]
    assert len(everything) - len(unseen) == len(bpr.catalogue.seen.of(2))


def test_test_item_can_be_recommended_and_training_items_cannot() -> None:
    run = coterie.run("popular", coterie.load(frame()))
    # the newest of each is held out: ann jam, bob rye, cat tea; ann keeps tea
    assert {r.item for r in run.recommend("ann")} == {"jam", "rye"}
    assert {r.item for r in run.recommend("cat")} == {"tea"}
    assert run.score("ann", ["tea", "jam", "rye"]) == [2.0, 1.0, 1.0]


def test_ids_as_number_or_text(bpr: coterie.Run) -> None:
    assert bpr.recommend(3, 4) == bpr.recommend("3", 4) == bpr.recommend(np.int64(3), 4)
    assert all(isinstance(r.item, int) for r in bpr.recommend(3, 4))


def test_recommendations_come_with_titles(bpr: coterie.Run) -> None:
    assert all(r.text for r in bpr.recommend(3, 4))


@pytest.mark.parametrize(("call", "thing"), [("recommend", "user"), ("score", "item")])
def test_unknown_ids_are_named(bpr: coterie.Run, call: str, thing: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown {thing} '999'"):
        bpr.recommend(999) if call == "recommend" else bpr.score(3, [1, 999])


@pytest.mark.parametrize("n", [0, -1])
def test_number_of_items_must_make_sense(bpr: coterie.Run, n: int) -> None:
    with pytest.raises(coterie.CoterieError, match=str(n)):
        bpr.recommend(3, n)


# ---- a run comes back from its folder


@pytest.mark.parametrize("name", HERE)
def test_loaded_run_is_the_run(name: str, tmp_path: Path) -> None:
    run = coterie.run(name, out=tmp_path / "r", **SMALL, **two_steps(name))
    loaded = coterie.Run.load(tmp_path / "r")
    assert loaded.result == run.result
    assert loaded.curve == run.curve
    assert loaded.recommend(7, 20) == run.recommend(7, 20)
    assert coterie.Run.load(str(tmp_path / "r")).metrics == run.metrics


def test_run_cannot_be_changed(bpr: coterie.Run) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        bpr.result = {}  # type: ignore[misc]
    bpr.metrics.clear()
    assert bpr.metrics
