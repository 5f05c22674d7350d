"""Candidates: distinct, unseen and seeded; and NCF's published lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from coterie import api
from coterie.core.paths import data_folder
from coterie.data import splits
from coterie.data.interactions import Interactions
from coterie.data.splits import split
from coterie.errors import DataError
from coterie.evaluation.candidates import read_published, sample


def test_a_sample_has_the_test_items_first_and_only_unseen_negatives(people):
    parts = split(people, "temporal", 0.2, seed=0, validation=True)
    candidates = sample(parts.test, parts.everything(), 30, seed=1)
    held = parts.test.rows
    known = parts.everything()
    assert candidates.users.tolist() == np.flatnonzero(held.counts).tolist()
    for user, items, relevant in zip(
        candidates.users, candidates.items, candidates.relevant, strict=True
    ):
        assert items[:relevant].tolist() == held.of(user).tolist()
        negatives = items[relevant:][items[relevant:] >= 0]
        assert (
            len(set(negatives)) == len(negatives) == min(30, people.n_items - len(known.of(user)))
        )
        assert not set(negatives) & set(known.of(user))
        assert (items[relevant + len(negatives) :] == -1).all()


def test_users_without_test_items_are_left_out():
    data = Interactions.from_columns(
        ["a", "a", "b", "c", "c"], [1, 2, 3, 1, 3], None, [1, 2, 3, 4, 5]
    )
    parts = split(data, "leave-one-out", 0.2, seed=0)
    candidates = sample(parts.test, parts.everything(), 5, seed=0)
    assert data.user_ids[candidates.users].tolist() == ["a", "c"]
    assert candidates.items.tolist() == [[1, 2, -1, -1, -1, -1], [2, 1, -1, -1, -1, -1]]


def test_the_seed_decides(people):
    parts = split(people, "leave-one-out", 0.2, seed=0)
    one, again, other = (
        sample(parts.test, parts.everything(), 30, seed=s).items for s in (1, 1, 2)
    )
    assert (one == again).all()
    assert (one != other).any()


# NCF's files.


@pytest.fixture
def three_items() -> Interactions:
    """Users 10 and 20; the items appear in the order c, a, b and are numbered a, b, c."""
    return Interactions.from_columns([10, 10, 20, 20], ["c", "a", "b", "c"], None, [1, 2, 3, 4])


def test_published_lists_number_items_by_first_appearance(tmp_path, three_items):
    file = tmp_path / "test.negative"
    file.write_bytes(b"(0,1)\t2\r\n(1,0)\t1\n")
    published = read_published(file, three_items)
    assert published.users.tolist() == [0, 1]
    assert three_items.item_ids[published.items].tolist() == [["a", "b"], ["c", "a"]]
    assert published.relevant.tolist() == [1, 1]
    parts = splits.from_test_pairs(three_items, published.users, published.items[:, 0])
    assert parts.test.to_frame()[["user_id", "item_id"]].to_numpy().tolist() == [
        [10, "a"],
        [20, "c"],
    ]


@pytest.mark.parametrize(
    "row",
    [
        "(1,0)",
        "1,0\t1",
        "(1,0) 1",
        "(1,0)\tone",
        "(1,0)\t-1",
        "(1)\t1",
        "(1,0)\t1.5",
        "",
        "\x00\xff",
        "(2,0)\t1",
        "(1,3)\t1",
        "(1,0)\t3",
        "(1,0)\t1\t2",
        "(0,2)\t1",
    ],
    ids=[
        "no negatives",
        "no brackets",
        "no tab",
        "text",
        "minus",
        "no item",
        "fraction",
        "blank",
        "bytes",
        "unknown user",
        "unknown item",
        "unknown negative",
        "more negatives than the others",
        "a user twice",
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path, three_items, row):
    file = tmp_path / "test.negative"
    file.write_text(f"(0,1)\t2\n{row}\n", encoding="latin-1")
    with pytest.raises(DataError) as error:
        read_published(file, three_items)
    assert str(error.value).startswith(f"{file}:2: ")


def test_an_empty_file_is_called_empty(tmp_path, three_items):
    file = tmp_path / "test.negative"
    file.write_text("")
    with pytest.raises(DataError) as error:
        read_published(file, three_items)
    assert "is empty" in str(error.value).removeprefix(str(file))


def test_test_pairs_that_the_data_does_not_have_are_refused(tmp_path, three_items):
    file = tmp_path / "test.negative"
    file.write_text("(0,2)\t1\n(1,0)\t1\n")
    published = read_published(file, three_items)
    with pytest.raises(DataError, match=r"1 published test pairs are not in the data.* unfiltered"):
        splits.from_test_pairs(three_items, published.users, published.items[:, 0])


@pytest.mark.long
def test_ncf_published_lists_of_ml_1m(real_data):
    real_data("ml-1m", "ratings.dat", "ml-1m.inter")
    file: Path = data_folder() / "ml-1m" / "ncf.test.negative.gz"
    if not file.exists():
        pytest.skip(f"{file} does not exist")
    data = api.load("ml-1m")
    published = read_published(file, data)
    assert published.items.shape == (6_040, 100)
    assert sorted(published.users.tolist()) == list(range(6_040))
    parts = splits.from_test_pairs(data, published.users, published.items[:, 0])
    assert (len(parts.test), len(parts.train)) == (6_040, 1_000_209 - 6_040)
    newest = np.zeros(6_040, np.int64)
    np.maximum.at(newest, data.users, data.times)
    assert (parts.test.times == newest[parts.test.users]).all()
    negatives = published.users[:, None].astype(np.int64) * data.n_items + published.items[:, 1:]
    assert np.isin(negatives, data.pairs()).sum() == 156  # known errors of the published file


def test_every_user_has_an_own_stream(people):
    """Candidates do not depend on other users, and differ from those of the validation part."""
    parts = split(people, "leave-one-out", 0.2, seed=0)
    known = parts.everything()
    whole = sample(parts.test, known, 20, seed=4)
    some = sample(parts.test.select(parts.test.users >= 50), known, 20, seed=4)
    np.testing.assert_array_equal(whole.items[whole.users >= 50], some.items)
    other = sample(parts.test, known, 20, seed=4, part="validation")
    shared = [
        len(set(a) & set(b)) for a, b in zip(whole.items[:, 1:], other.items[:, 1:], strict=True)
    ]
    assert np.mean(shared) < 20 * 20 / 80  # about what chance gives with some hundred items
