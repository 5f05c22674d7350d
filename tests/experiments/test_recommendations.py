"""Lists for all users, similar items and titles from files: through the Python API."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from every_algorithm import HERE, two_steps

from coterie import Run, api
from coterie.errors import ConfigError
from coterie.experiments import recommendations
from coterie.models.recommender import Recommender

COMPARE_NOTHING = {"random", "popular"}
ONE_OF_EACH_KIND = {
    "als",
    "pfpl",
    "gmf",
    "fedbso",
    "neumf",
    "ease",
    "userknn",
    "itemknn",
    "slim",
    "multivae",
    "lightgcn",
    "dssm",
}
"""An algorithm for every kind of model that compares items."""


@pytest.fixture(scope="module")
def als() -> Run:
    return api.run("als", n_users=70, n_items=50, epochs=3)


def lists_of(frame: pd.DataFrame) -> dict[object, list[object]]:
    return {user: list(rows["item_id"]) for user, rows in frame.groupby("user_id")}


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_lists_of_all_users_are_those_of_each_user(als: Run, monkeypatch, exclude_seen) -> None:
    """Also with several blocks: here seven users each."""
    monkeypatch.setattr(recommendations, "BLOCK_CELLS", 7 * 50)
    frame = als.recommend_all(4, exclude_seen)
    assert list(frame["rank"][:4]) == [1, 2, 3, 4]
    for user in als.catalogue.user_ids:
        mine = frame[frame["user_id"] == user]
        alone = als.recommend(user, 4, exclude_seen)
        assert list(mine["item_id"]) == [each.item for each in alone]
        assert list(mine["title"]) == [each.text for each in alone]
        assert list(mine["score"]) == pytest.approx([each.score for each in alone], abs=1e-5)


def test_a_list_is_as_long_as_there_are_unseen_items(als: Run) -> None:
    counts = als.recommend_all(1000).groupby("user_id").size()
    wanted = 50 - als.catalogue.seen.counts
    assert [counts.get(user, 0) for user in als.catalogue.user_ids] == list(wanted)


@pytest.mark.parametrize("name", ["lists.csv", "lists.parquet"])
def test_a_file_has_the_same_lists_and_is_its_owners_alone(
    als: Run, tmp_path: Path, monkeypatch, name: str
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    monkeypatch.setattr(recommendations, "BLOCK_CELLS", 9 * 50)
    path = tmp_path / name
    path.write_text("an older file, readable by all")
    n_rows = als.write_recommendations(path, 3)
    written = pd.read_csv(path) if name.endswith("csv") else pd.read_parquet(path)
    frame = als.recommend_all(3)
    assert n_rows == len(written) == len(frame)
    assert lists_of(written) == lists_of(frame)
    assert list(written["title"]) == list(frame["title"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [name]


def test_another_ending_is_an_error(als: Run, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the ending is '.txt'; expected .csv or .parquet"):
        als.write_recommendations(tmp_path / "lists.txt")


# ---- similar items


def test_similar_items_have_the_largest_cosines(als: Run) -> None:
    rows = als.model.arrays()["item_rows"].astype(np.float64)
    item = 7
    cosine = [row @ rows[item] / np.sqrt((row @ row) * (rows[item] @ rows[item])) for row in rows]
    cosine[item] = -2
    best = np.argsort(cosine)[::-1][:5]
    similar = als.similar_items(als.catalogue.item_ids[item], 5)
    assert [each.item for each in similar] == list(als.catalogue.item_ids[best])
    assert [each.score for each in similar] == pytest.approx([cosine[k] for k in best], abs=1e-5)


@pytest.mark.parametrize("name", sorted(ONE_OF_EACH_KIND & set(HERE)))
def test_every_model_compares_items(name: str) -> None:
    """The item itself is never in its list."""
    run = api.run(name, n_users=60, n_items=40, **two_steps(name))
    assert type(run.model).similar_items is not Recommender.similar_items
    item = run.catalogue.item_ids[5]
    similar = run.similar_items(item, 6)
    assert len(similar) == 6
    assert item not in [each.item for each in similar]
    scores = [each.score for each in similar]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("name", sorted(COMPARE_NOTHING))
def test_a_model_without_item_rows_says_so(name: str) -> None:
    run = api.run(name, n_users=60, n_items=40)
    with pytest.raises(ConfigError, match=f"algorithm is {name}, .*; expected one with item rows"):
        run.similar_items(run.catalogue.item_ids[0])


def test_similar_items_of_neighbours_are_their_cosines() -> None:
    """Items a and b share two of three users each: 2 / sqrt(3 * 3)."""
    pairs = [("1", "a"), ("2", "a"), ("3", "a"), ("1", "b"), ("2", "b"), ("4", "b"), ("4", "c")]
    held_out = [(user, "z") for user in "1234"]
    frame = pd.DataFrame(pairs + held_out, columns=["user_id", "item_id"])
    frame["timestamp"] = [1] * len(pairs) + [2] * len(held_out)
    everything = api.load(frame)
    for name in ("userknn", "itemknn"):
        run = api.run(name, everything, protocol="full", shrink=0)
        found = {each.item: each.score for each in run.similar_items("a")}
        assert found["b"] == pytest.approx(2 / 3)
        assert found["c"] == 0
