"""Datasets by name or path, with their default filters."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.data.datasets import DATASETS, dataset, load
from coterie.data.filters import Filters
from coterie.data.options import ReadOptions
from coterie.data.reading import BY_CONTENT
from coterie.data.synthetic import Synthetic
from coterie.errors import DataError, FetchError, UnknownName


def test_every_dataset_has_terms_and_instructions() -> None:
    assert {
        "synthetic",
        "ml-100k",
        "ml-1m",
        "foursquare-italy",
        "yelp",
        "tripadvisor",
        "pinterest",
    } <= set(DATASETS)
    for name, record in DATASETS.items():
        assert record.name == name
        assert record.summary
        assert record.made_up == (name == "synthetic")
        assert record.made_up or (
            record.signature and record.terms and (record.sources or record.by_hand)
        )


def test_a_file_that_tells_of_a_dataset_tells_of_one_only() -> None:
    files = [file for record in DATASETS.values() for file in record.signature]
    assert len(set(files)) == len(files)
    assert set(BY_CONTENT) == set(files)


def test_an_unknown_dataset_gets_a_suggestion() -> None:
    with pytest.raises(
        UnknownName,
        match=r"unknown dataset 'ml-100'; no file has that name either\. Did you mean 'ml-100k'\?",
    ):
        dataset("ml-100")


@pytest.mark.parametrize("name", ["nowhere.csv", "some/where", "ratings.parquet"])
def test_what_looks_like_a_path_is_one(name: str) -> None:
    with pytest.raises(DataError, match=r"does not exist\. Check the path"):
        load(name)


def test_a_file_is_read_and_filtered(write) -> None:
    path = write("a.csv", "user_id,item_id,rating\n1,1,5\n1,2,1\n2,1,4\n")
    data = load(str(path), Filters(min_rating=4))
    assert (data.n_users, data.n_items, len(data)) == (2, 1, 2)
    assert data.ratings is None
    assert data.name == "given"


def test_the_policy_for_repeated_pairs_reaches_the_reader(write) -> None:
    path = str(write("a.csv", "user_id,item_id,rating,timestamp\n1,1,5,10\n1,1,2,20\n"))
    assert load(path, Filters(duplicates="oldest", feedback="explicit")).ratings.tolist() == [5.0]
    assert load(path, Filters(feedback="explicit")).ratings.tolist() == [2.0]
    with pytest.raises(DataError, match=":3: user '1' and item '1' are already on line 2"):
        load(path, Filters(duplicates="error"))


def test_a_file_can_be_read_with_other_columns_and_without_its_bad_rows(write) -> None:
    path = str(write("a.csv", "who,what,stars\n1,1,5\n1,2,five\n"))
    columns = {"user_id": "who", "item_id": "what", "rating": "stars"}
    data = load(path, options=ReadOptions(columns, skip_bad_rows=True))
    assert len(data) == 1
    assert data.notes == ("1 bad row skipped: expected a number (line 3)",)


def test_synthetic_data_is_embedded_and_keeps_its_name_only_as_it_usually_is() -> None:
    usual = load("synthetic")
    assert (usual.name, usual.n_users) == ("synthetic", 1_000)
    assert load("synthetic", synthetic=Synthetic(n_users=20)).name == "given"
    assert load("synthetic", Filters(core=2)).name == "given"


def test_a_dataset_that_lies_in_the_data_folder_is_read_from_there(
    tmp_path: Path, write, monkeypatch
) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    write("ml-100k/u.data", "1\t2\t3\t4\n1\t3\t3\t5\n")
    data = load("ml-100k")
    assert (data.name, len(data)) == ("ml-100k", 2)


def test_a_dataset_that_comes_by_hand_says_what_to_do(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(FetchError) as caught:
        load("foursquare-italy")
    message = str(caught.value)
    assert message.startswith(
        f"dataset 'foursquare-italy' is not in {tmp_path / 'foursquare-italy'} "
        "and cannot be fetched."
    )
    assert all(
        word in message for word in ("authors", "Bologna", "Venice", "NAME.tsv", "COTERIE_DATA")
    )
    assert not list(tmp_path.iterdir())
