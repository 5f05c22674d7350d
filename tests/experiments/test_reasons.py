"""Why items are recommended: reasons by hand, for known and new users, for all users, refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from every_algorithm import HERE

from coterie import Reason, Run, api
from coterie.algorithms import registry
from coterie.errors import ConfigError, UnknownName
from coterie.experiments import recommendations
from coterie.experiments.run_folder import Catalogue
from coterie.models.linear import ItemWeights
from coterie.types import Rows

ITEM_BASED = registry.item_based()


def by_hand(texts: list[str] | None = None) -> Run:
    """User ann has the items a, b, c and d, but not e; user ben has none.

    To the score of e, a adds 2, b adds -1, and c and d add 4 each: 9 in all. To that of d, a adds
    1 and b adds -2.
    """
    weights = np.zeros((5, 5), np.float32)
    weights[:4, 4] = [2, -1, 4, 4]
    weights[:2, 3] = [1, -2]
    own = Rows(np.array([0, 4, 4]), np.arange(4, dtype=np.int32))
    titles = None if texts is None else np.array(texts, object)
    catalogue = Catalogue(np.array(["ann", "ben"]), np.array(list("abcde")), titles, own)
    model = ItemWeights(weights, own.offsets, own.items)
    return Run({"algorithm": "ease"}, model, catalogue)


@pytest.fixture(scope="module", params=ITEM_BASED)
def run(request: pytest.FixtureRequest) -> Run:
    """With a validation part, whose items a user has seen and the model has not."""
    return api.run(request.param, n_users=70, n_items=50, validation=True)


def test_item_based_algorithms_are_these() -> None:
    assert {"ease", "itemknn"} <= set(ITEM_BASED)
    assert not {"als", "userknn", "popular"} & set(ITEM_BASED)


def test_reasons_by_hand() -> None:
    """The largest first, ties in item order; what lowers the score is no reason."""
    (why,) = by_hand().why("ann", ["e"])
    assert why == [
        Reason(item="c", contribution=4.0, share=4 / 9, text=""),
        Reason(item="d", contribution=4.0, share=4 / 9, text=""),
        Reason(item="a", contribution=2.0, share=2 / 9, text=""),
    ]
    assert sum(reason.share or 0 for reason in why) > 1


def test_the_number_of_reasons_can_be_chosen() -> None:
    assert [reason.item for reason in by_hand().why("ann", ["e"], n=1)[0]] == ["c"]
    assert len(by_hand().why("ann", ["e"], n=9)[0]) == 3
    with pytest.raises(ConfigError, match="n is 0; expected at least one reason"):
        by_hand().why("ann", ["e"], n=0)


def test_reasons_have_titles_where_known() -> None:
    (why,) = by_hand(["Alien", "Brazil", "", "Dune", "Emma"]).why("ann", ["e"])
    assert [reason.text for reason in why] == ["", "Dune", "Alien"]


def test_a_score_that_is_not_positive_has_no_shares() -> None:
    """The score of d is -1."""
    (why,) = by_hand().why("ann", ["d"])
    assert why == [Reason(item="a", contribution=1.0, share=None, text="")]


def test_without_positive_contributions_there_are_no_reasons() -> None:
    assert by_hand().why("ann", ["a"]) == [[]]
    assert by_hand().why("ben", ["e", "d"]) == [[], []]
    assert by_hand().why("ann", []) == []


def test_a_new_user_gets_reasons_from_the_given_history() -> None:
    (why,) = by_hand().why_new_user(["b", "a", "a"], ["e"])
    assert why == [Reason(item="a", contribution=2.0, share=2.0, text="")]
    assert by_hand().why_new_user([], ["e"]) == [[]]


def test_unknown_ids_are_named() -> None:
    with pytest.raises(UnknownName, match="unknown user 'eve'"):
        by_hand().why("eve", ["e"])
    with pytest.raises(UnknownName, match="unknown item 'z'"):
        by_hand().why("ann", ["z"])
    with pytest.raises(UnknownName, match="unknown item 'z'"):
        by_hand().why_new_user(["z"], ["e"])


# ---- of trained models


def test_all_contributions_and_the_score_agree(run: Run) -> None:
    """Positive ones are all named here; together they are at least the score."""
    for user in (1, 20, 70):
        found = run.recommend(user, 5)
        for one, why in zip(found, run.why(user, [r.item for r in found], n=50), strict=True):
            contributions = [reason.contribution for reason in why]
            assert contributions == sorted(contributions, reverse=True)
            assert sum(contributions) >= one.score - 1e-5
            for reason in why:
                assert reason.share == pytest.approx(reason.contribution / one.score, rel=1e-4)
                assert reason.text


def test_reasons_are_items_that_the_model_knows_of_the_user(run: Run) -> None:
    """Not those of the validation part, although users have seen them."""
    known = run.model.histories()  # type: ignore[attr-defined]
    assert known.counts.sum() < run.catalogue.seen.counts.sum()
    for user in range(70):
        items = [one.item for one in run.recommend(user + 1, 5)]
        named = {reason.item for why in run.why(user + 1, items) for reason in why}
        assert named <= set(run.catalogue.item_ids[known.of(user)].tolist())


def test_a_new_user_gets_the_reasons_of_a_known_user(run: Run) -> None:
    history = run.catalogue.item_ids[run.model.histories().of(4)]  # type: ignore[attr-defined]
    items = [one.item for one in run.recommend(5, 5)]
    assert run.why_new_user(list(history), items) == run.why(5, items)


# ---- for all users


def test_lists_of_all_users_have_the_reasons_of_each_user(run: Run, monkeypatch) -> None:
    monkeypatch.setattr(recommendations, "BLOCK_CELLS", 7 * 50)
    frame = run.recommend_all(4, why=True)
    assert list(frame) == [*run.recommend_all(4), "why"]
    for user, mine in frame.groupby("user_id"):
        assert list(mine["why"]) == run.why(user, list(mine["item_id"]))


@pytest.mark.parametrize("name", ["lists.csv", "lists.parquet"])
def test_a_file_has_the_reasons_as_json(run: Run, tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    run.write_recommendations(path, 3, why=True)
    written = pd.read_csv(path) if name.endswith("csv") else pd.read_parquet(path)
    first = written.iloc[0]
    (expected,) = run.why(first["user_id"], [first["item_id"]])
    assert expected
    for one, reason in zip(json.loads(first["why"]), expected, strict=True):
        assert list(one) == ["item", "contribution", "share", "text"]
        assert (one["item"], one["text"]) == (reason.item, reason.text)
        numbers = one["contribution"], one["share"]
        assert numbers == pytest.approx((reason.contribution, reason.share), rel=1e-5)


# ---- refused


@pytest.mark.parametrize("name", sorted({"als", "userknn", "popular"} & set(HERE)))
def test_a_model_that_is_not_item_based_says_so(name: str, tmp_path: Path) -> None:
    run = api.run(name, n_users=60, n_items=40)
    message = rf"algorithm is {name}, .*not item-based.*; expected one of .*ease, slim, itemknn"
    with pytest.raises(ConfigError, match=message):
        run.why(1, [1])
    with pytest.raises(ConfigError, match=message):
        run.why_new_user([1], [2])
    with pytest.raises(ConfigError, match=message):
        run.recommend_all(why=True)
    with pytest.raises(ConfigError, match=message):
        run.write_recommendations(tmp_path / "lists.csv", why=True)
    assert list(tmp_path.iterdir()) == []
