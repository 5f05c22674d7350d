"""Real datasets, if they are available: the counts that their papers and documentation state."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import numpy as np
import pytest

from coterie import api
from coterie.data import pinterest, tripadvisor, yelp
from coterie.data.datasets import load
from coterie.data.fetch import find_local
from coterie.data.files import open_member
from coterie.data.filters import Filters, apply
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.data.splits import split

SAME = ("users", "items", "ratings", "times", "item_order")


@pytest.fixture
def path_of(real_data):
    """`place_of("ml-100k", "u.data")` is the dataset's path; skips the test if it is missing."""

    def find(name: str, file: str) -> Path:
        real_data(name, file)
        return find_local(name, (file,)) or pytest.skip(
            f"the dataset {name} is here, but not as it was distributed"
        )

    return find


def text_of(place: Path, name: str, encoding: str = "utf-8") -> str:
    with open_member(place, name, encoding) as lines:
        return lines.read()


def counts(data: Interactions) -> tuple[int, int, int]:
    return data.n_users, data.n_items, len(data)


def assert_same(one: Interactions, other: Interactions) -> None:
    for name in SAME:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.user_ids.tolist() == other.user_ids.tolist()
    assert one.item_ids.tolist() == other.item_ids.tolist()


def test_movielens_100k(path_of) -> None:
    data = read(path_of("ml-100k", "u.data"))
    assert counts(data) == (943, 1_682, 100_000)
    assert np.bincount(data.users).min() == 20
    assert set(data.ratings.tolist()) == {1, 2, 3, 4, 5}
    assert len({genre for genres in data.item_categories for genre in genres}) == 19
    assert data.item_texts[data.item_ids.tolist().index("1")] == "Toy Story (1995)"
    assert data.item_texts[data.item_ids.tolist().index("543")] == "Misérables, Les (1995)"
    assert {name: values[0] for name, values in data.user_features.items()} == {
        "age": "24",
        "gender": "M",
        "occupation": "technician",
        "zip_code": "85711",
    }


def test_movielens_100k_by_name_is_implicit_and_keeps_everything(path_of) -> None:
    path_of("ml-100k", "u.data")
    data = load("ml-100k")
    assert counts(data) == (943, 1_682, 100_000)
    assert (data.ratings, data.name, data.notes) == (None, "ml-100k", ())


def test_movielens_100k_in_recboles_layout_is_the_same(path_of, tmp_path: Path) -> None:
    original = path_of("ml-100k", "u.data")
    header = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    (tmp_path / "ml-100k.inter").write_text(header + text_of(original, "u.data"))
    assert_same(read(original), read(tmp_path))


@pytest.mark.parametrize("name", ["ml-100k.zip", "u.data.gz"])
def test_movielens_100k_packed_is_the_same(name: str, path_of, tmp_path: Path) -> None:
    original = path_of("ml-100k", "u.data")
    if name.endswith(".zip"):
        with zipfile.ZipFile(
            tmp_path / name, "w", zipfile.ZIP_DEFLATED, compresslevel=1
        ) as archive:
            for file in ("u.data", "u.item", "u.genre", "u.user"):
                archive.writestr(
                    f"ml-100k/{file}", text_of(original, file, "latin-1").encode("latin-1")
                )
    else:
        (tmp_path / name).write_bytes(gzip.compress(text_of(original, "u.data").encode(), 1))
    packed = read(tmp_path / name)
    assert_same(read(original), packed)
    assert (packed.item_texts is not None) == name.endswith(".zip")


def test_movielens_100k_in_another_row_order_is_the_same(path_of, tmp_path: Path) -> None:
    original = path_of("ml-100k", "u.data")
    lines = text_of(original, "u.data").splitlines(keepends=True)
    shuffled = np.random.default_rng(0).permutation(len(lines))
    (tmp_path / "u.data").write_text("".join(lines[n] for n in shuffled))
    one = read(original)
    other = read(tmp_path / "u.data")
    for name in ("users", "items", "ratings", "times"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_movielens_1m_and_its_core(path_of) -> None:
    data = read(path_of("ml-1m", "ratings.dat"))
    assert counts(data) == (6_040, 3_706, 1_000_209)
    assert data.item_texts[data.item_ids.tolist().index("1")] == "Toy Story (1995)"
    assert data.item_categories[data.item_ids.tolist().index("1")] == (
        "Animation",
        "Children's",
        "Comedy",
    )
    assert data.user_features["gender"].tolist().count("F") == 1_709
    assert counts(apply(data, Filters(core=20))) == (6_022, 3_043, 995_154)


def test_foursquare_italy(path_of) -> None:
    data = read(path_of("foursquare-italy", "Bologna.tsv"))
    assert counts(data) == (6_596, 34_332, 89_616)
    assert data.notes == ()
    assert all(len(category) == 1 for category in data.item_categories)


def test_foursquare_italy_as_its_paper_filters_and_splits_it(path_of) -> None:
    path_of("foursquare-italy", "Bologna.tsv")
    data = load("foursquare-italy")
    assert (data.n_users, len(data)) == (1_353, 66_971)
    per_user = np.bincount(data.users)
    assert per_user.min() == 20
    parts = split(data, "temporal", 0.2, seed=0)
    assert len(parts.train) == 54_088
    assert len(np.unique(parts.train.items)) == 25_498
    assert len(parts.test) == 66_971 - 54_088 == sum(int(0.2 * n) for n in per_user)


def records_of(place: Path, name: str) -> int:
    """Interactions in a file of lines `user item item ...`, counted without the reader."""
    return sum(len(line.split()) - 1 for line in text_of(place, name).splitlines())


def test_yelp(path_of) -> None:
    place = path_of("yelp", yelp.ITEMS)
    data = read(place)
    assert records_of(place, yelp.ITEMS) == 316_354
    assert counts(data) == (30_431, 20_033, 304_524)
    assert data.notes == (
        f"{316_354 - 304_524:,} repeated user-item pairs merged, the newest of each kept",
    )
    assert data.user_ids.tolist() == [str(n) for n in range(1, 30_432)]
    assert (data.times.min(), data.times.max()) == (1_546_300_809, 1_576_252_117)  # 2019
    # The last three visits, as at the end of the first lines.
    first = data.select(data.users == 0)
    assert first.item_ids[first.items[-3:]].tolist() == ["9306", "8320", "586"]
    assert first.times[-3:].tolist() == [1_571_473_990, 1_572_037_408, 1_572_225_311]


def test_yelp_as_fedfast_filters_it_and_as_many_users_as_it_had(path_of) -> None:
    path_of("yelp", yelp.ITEMS)
    data = load("yelp")
    assert counts(data) == (29_061, 20_017, 299_428)
    drawn = load("yelp", Filters(min_user_interactions=5, sample_users=7_975))
    assert counts(drawn) == (7_975, 18_102, 82_083)
    assert set(drawn.user_ids) < set(data.user_ids)
    assert drawn.name == "given"  # what is tuned for the whole is not tuned for a part


def test_tripadvisor(path_of) -> None:
    data = read(path_of("tripadvisor", tripadvisor.ARCHIVE))
    assert counts(data) == (2_371, 2_269, 13_697)
    assert data.notes == (
        f"{14_175 - 13_697} repeated user-item pairs merged, the last row of each kept",
    )
    assert (np.bincount(data.users) == 1).sum() == 2
    assert len({city for city, _ in data.item_categories}) == 107
    assert len({state for _, state in data.item_categories}) == 31
    assert len(set(data.user_features["time_zone"])) == 35
    someone = data.user_ids.tolist().index("5C28F393B23BB894523AE7126A7AE445")
    assert data.user_features["state"][someone] == "AK"


def test_tripadvisor_is_held_out_at_random_by_the_seed(path_of) -> None:
    path_of("tripadvisor", tripadvisor.ARCHIVE)
    data = load("tripadvisor")
    assert counts(data) == (2_109, 2_224, 12_696)
    first, again, other = (split(data, "leave-one-out", 0, seed).test for seed in (0, 0, 1))
    assert np.array_equal(first.users, np.arange(2_109))
    assert np.array_equal(first.items, again.items)
    # two draws of one of n agree with probability 1 / n
    alike = (1 / np.bincount(data.users)).sum()
    assert abs((first.items == other.items).sum() - alike) < 4 * np.sqrt(alike)


def pins_of(place: Path) -> dict[str, list[str]]:
    """The items of every user in both files, with repeats, read without the reader."""
    pins: dict[str, list[str]] = {}
    for name in (pinterest.TRAIN, pinterest.TEST):
        for user, *items in map(str.split, text_of(place, name).splitlines()):
            pins.setdefault(user, []).extend(items)
    return pins


def test_pinterest(path_of) -> None:
    place = path_of("pinterest", pinterest.TRAIN)
    data = read(place)
    assert records_of(place, pinterest.TRAIN) + records_of(place, pinterest.TEST) == 1_025_709
    assert counts(data) == (37_501, 9_836, 1_000_154)
    assert data.notes == (
        f"{1_025_709 - 1_000_154:,} repeated user-item pairs merged, the last row of each kept",
    )
    assert data.user_ids.tolist() == [str(n) for n in range(37_501)]
    assert data.item_ids.tolist() == [str(n) for n in range(9_836)]
    pins = pins_of(place)
    assert np.bincount(data.users).tolist() == [len(set(pins[user])) for user in data.user_ids]
    for user in (0, 8, 37_500):  # user 8 has pinned some images twice
        assert set(data.items[data.users == user].tolist()) == set(map(int, pins[str(user)]))


def test_pinterest_as_fedbso_filters_it(path_of) -> None:
    """Users with 20 pins or more; an image pinned twice counts twice, but is one interaction."""
    pins = pins_of(path_of("pinterest", pinterest.TRAIN))
    data = load("pinterest")
    assert (data.name, *counts(data)) == ("pinterest", 37_326, 9_832, 996_983)
    assert set(data.user_ids) == {user for user, items in pins.items() if len(items) >= 20}
    parts = split(data, "leave-one-out", 0, seed=0)
    assert (len(parts.test), len(parts.train)) == (37_326, 996_983 - 37_326)


@pytest.mark.parametrize(
    ("name", "file", "filters", "users", "popular"),
    [
        ("tripadvisor", tripadvisor.ARCHIVE, {}, 2_109, 0.5193),
        ("yelp", yelp.ITEMS, {"sample_users": 7_975}, 7_975, 0.4443),
    ],
)
def test_fedfast_s_other_datasets_run(
    name: str, file: str, filters, users: int, popular: float, path_of
) -> None:
    """Popularity depends on no setting; a random ranking has 10 of 51."""
    path_of(name, file)
    run = api.run("popular", name, **filters)
    assert (run.result["tested_users"], run.result["users"]) == (users, users)
    assert run.metrics["HR@10"] == pytest.approx(popular, abs=5e-4)


def test_bad_rows_in_a_real_file_are_skipped_and_counted(path_of, tmp_path: Path) -> None:
    lines = text_of(path_of("ml-100k", "u.data"), "u.data").splitlines(keepends=True)
    lines[5_000:5_000] = ["1\t2\tfive\t881250949\n", "1\t2\n"]
    lines.append("7\t8\t5\t881250949000\n")
    (tmp_path / "u.data").write_text("".join(lines))
    data = read(tmp_path, ReadOptions(skip_bad_rows=True))
    assert counts(data) == (943, 1_682, 100_000)
    assert sorted(note.split(" ")[0] for note in data.notes) == ["1", "1", "1"]
