"""All formats: csv, tsv, parquet, RecBole, MovieLens and Foursquare as they are distributed."""

from __future__ import annotations

import gc
import gzip
import io
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.data import foursquare
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.errors import DataError

ROWS = [("1", "10", 3.0, 100), ("1", "9", 4.0, 200), ("2", "10", 5.0, 50)]
CSV = "user_id,item_id,rating,timestamp\n" + "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in ROWS)
U_DATA = "".join(f"{u}\t{i}\t{r:g}\t{t}\n" for u, i, r, t in ROWS)
RATINGS = U_DATA.replace("\t", "::")
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + U_DATA


def rows_of(data: Interactions) -> list[tuple[str, str, float, int]]:
    users = data.user_ids[data.users]
    items = data.item_ids[data.items]
    columns = map(str, users), map(str, items), data.ratings.tolist(), data.times.tolist()
    return list(zip(*columns, strict=True))


def zipped(**members: str | bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), content)
    return buffer.getvalue()


PACKED = {
    "ratings.csv": CSV.encode(),
    "ratings.txt": CSV.encode(),
    "ratings.tsv": CSV.replace(",", "\t").encode(),
    "ratings.csv.gz": gzip.compress(CSV.encode()),
    "ratings.gz": gzip.compress(CSV.encode()),
    "ratings.zip": zipped(ratings_dot_csv=CSV),
    "ratings.csv.zip": zipped(folder__ratings_dot_csv=CSV),
    "packed.zip": zipped(ratings_dot_csv_dot_gz=gzip.compress(CSV.encode())),
    "RATINGS.CSV": CSV.encode(),
    "mine.inter": INTER.encode(),
    "mine.inter.gz": gzip.compress(INTER.encode()),
    "u.data": U_DATA.encode(),
    "u.data.gz": gzip.compress(U_DATA.encode()),
    "ml-100k.zip": zipped(
        **{"ml-100k__u_dot_data": U_DATA, "ml-100k__u1_dot_base": "1\t2\t3\t4\n"}
    ),
    "odd.zip": zipped(u_dot_data_dot_gz=gzip.compress(U_DATA.encode())),
    "ratings.dat": RATINGS.encode(),
    "ratings.dat.gz": gzip.compress(RATINGS.encode()),
    "ml-1m.zip": zipped(**{"ml-1m__ratings_dot_dat": RATINGS}),
    "ml-100k.inter": INTER.encode(),
    "ml-100k.inter.gz": gzip.compress(INTER.encode()),
    "wheel.zip": zipped(**{"ml-100k__ml-100k_dot_inter": INTER}),
}


@pytest.mark.parametrize(("name", "content"), PACKED.items(), ids=PACKED)
def test_the_same_rows_come_out_of_every_packing(name: str, content: bytes, write) -> None:
    assert rows_of(read(write(name, content))) == ROWS


FOLDERS = {
    "u.data": U_DATA.encode(),
    "u.data.gz": gzip.compress(U_DATA.encode()),
    "ratings.dat": RATINGS.encode(),
    "ratings.dat.gz": gzip.compress(RATINGS.encode()),
    "ml-100k.inter": INTER.encode(),
    "ml-100k.inter.gz": gzip.compress(INTER.encode()),
    "ml-1m.inter": INTER.replace("\n1\t", "\n1m_1\t").replace("\n2\t", "\n1m_2\t").encode(),
}


@pytest.mark.parametrize(("name", "content"), FOLDERS.items(), ids=FOLDERS)
def test_a_folder_is_known_by_what_it_holds(name: str, content: bytes, write) -> None:
    assert rows_of(read(write(f"some/{name}", content).parent)) == ROWS


@pytest.mark.parametrize(
    "name", ["ratings.csv", "ratings.csv.gz", "ratings.zip", "u.data.gz", "ml-100k.zip"]
)
def test_no_file_is_left_open(name: str, write) -> None:
    path = write(name, PACKED[name])
    # What other tests left open does not count.
    with warnings.catch_warnings(action="ignore"):
        gc.collect()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        read(path)
        gc.collect()
    assert not [str(w.message) for w in seen if w.category is ResourceWarning]


# Parquet


def parquet(folder: Path, **columns: object) -> Path:
    pytest.importorskip("pyarrow")
    frame = {"user_id": ["1", "2"], "item_id": ["10", "20"]} | columns
    pd.DataFrame(frame).to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


def test_parquet_reads_as_csv_does(tmp_path: Path) -> None:
    users, items, ratings, times = (list(column) for column in zip(*ROWS, strict=True))
    path = parquet(
        tmp_path, user_id=users, item_id=items, rating=ratings, timestamp=times, other=[1, 2, 3]
    )
    assert rows_of(read(path)) == ROWS


def test_parquet_columns_can_be_mapped(tmp_path: Path) -> None:
    path = parquet(tmp_path, stars=[3, 4], when=[5, 6])
    data = read(path, ReadOptions(columns={"rating": "stars", "timestamp": "when"}))
    assert rows_of(data) == [("1", "10", 3.0, 5), ("2", "20", 4.0, 6)]


DAY = 1_577_836_800  # 2020-01-01
DAYS = pd.to_datetime(["2020-01-01", "2020-01-02"])


@pytest.mark.parametrize(
    "times",
    [
        [DAY, DAY + 86_400],
        [float(DAY), DAY + 86_400.5],
        [str(DAY), str(DAY + 86_400)],
        ["2020-01-01", "2020-01-02"],
        DAYS,
        DAYS.as_unit("ns"),
        DAYS.as_unit("ms"),
        DAYS.tz_localize("UTC"),
        DAYS.tz_localize("UTC").tz_convert("Europe/Oslo"),
    ],
    ids=["numbers", "floats", "texts", "ISO 8601", "moments", "ns", "ms", "UTC", "another zone"],
)
def test_parquet_times_are_seconds_however_they_are_written(times: object, tmp_path: Path) -> None:
    assert read(parquet(tmp_path, timestamp=times)).times.tolist() == [DAY, DAY + 86_400]


BAD_COLUMNS = {
    "no user": ("user_id", ["1", None], "an id"),
    "an empty user": ("user_id", ["1", ""], "an id"),
    "no item": ("item_id", [1, None], "an id"),
    "text in a rating": ("rating", ["1", "five"], "a number"),
    "NaN": ("rating", [1.0, float("nan")], "a number"),
    "infinity": ("rating", [1.0, float("inf")], "a number"),
    "past 32 bits": ("rating", [1.0, 1e300], "a number"),
    "an underscore": ("rating", ["1", "1_0"], "a number"),
    "a negative time": ("timestamp", [1, -1], "ISO 8601"),
    "milliseconds": ("timestamp", [1, 1_700_000_000_000], "ISO 8601"),
    "no moment": ("timestamp", [DAYS[0], pd.NaT], "ISO 8601"),
}


@pytest.mark.parametrize(("column", "values", "rule"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_a_bad_parquet_row_is_named_and_can_be_skipped(
    column, values, rule, tmp_path: Path, refused
) -> None:
    path = parquet(tmp_path, **{column: values})
    message = refused(path)
    assert message.startswith(f"{path}:2: column '{column}' is ")
    assert f"; expected {rule}" in message
    assert message.endswith(". Fix the row or pass --skip-bad-rows.")
    data = read(path, ReadOptions(skip_bad_rows=True))
    assert len(data) == 1
    assert data.notes[0].startswith(f"1 bad row skipped: expected {rule}")


def test_values_are_shown_as_a_person_writes_them(tmp_path: Path, refused) -> None:
    assert "is 1700000000000;" in refused(parquet(tmp_path, timestamp=[1, 1_700_000_000_000]))
    repeated = parquet(tmp_path, user_id=[1, 1], item_id=[5, 5])
    assert "user 1 and item 5 are already on line 1" in refused(repeated, duplicates="error")


def test_a_parquet_file_without_rows_or_columns_is_refused(tmp_path: Path, refused) -> None:
    assert "contains no interactions" in refused(parquet(tmp_path, user_id=[], item_id=[]))
    assert "no column 'usr' for user_id" in refused(parquet(tmp_path), columns={"user_id": "usr"})


def test_a_damaged_parquet_file_is_refused(tmp_path: Path, refused) -> None:
    path = parquet(tmp_path)
    whole = path.read_bytes()
    broken = whole[:10] + b"\xff" * 50 + whole[60:]
    for content in (b"", b"not parquet", whole[:-1], whole[: len(whole) // 2] + whole[-8:], broken):
        path.write_bytes(content)
        assert refused(path).startswith(f"{path}: is not a readable parquet file (")


# RecBole


def test_recbole_side_files_come_along(write) -> None:
    write(
        "mine.item",
        "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
        "10\tTen\t1995\ta b\n",
    )
    write("mine.user", "user_id:token\tage:token\tgender:token\n1\t24\tM\n2\t53\tF\n9\t1\tF\n")
    data = read(write("mine.inter", INTER))
    assert data.item_ids.tolist() == ["9", "10"]
    assert data.item_texts.tolist() == ["", "Ten"]
    assert data.item_categories.tolist() == [(), ("a", "b")]
    assert {name: values.tolist() for name, values in data.user_features.items()} == {
        "age": ["24", "53"],
        "gender": ["M", "F"],
    }


def test_recbole_columns_are_named_without_their_types(write) -> None:
    data = read(
        write("a.inter", "uid:token\tiid:token\n1\t2\n"),
        ReadOptions(columns={"user_id": "uid", "item_id": "iid"}),
    )
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == (["1"], ["2"])


def test_quotes_are_letters_in_recbole_files(write) -> None:
    data = read(write("a.inter", 'user_id:token\titem_id:token\n"1\t2"\n'))
    assert (data.user_ids.tolist(), data.item_ids.tolist()) == (['"1'], ['2"'])


def test_prefixed_users_are_in_natural_order_once_the_prefix_is_gone(write) -> None:
    rows = "".join(f"1m_{user}\tA Film\n" for user in (1, 2, 10, 11))
    data = read(write("ml-1m.inter", "user_id:token\titem_id:token\n" + rows).parent)
    assert data.user_ids.tolist() == ["1", "2", "10", "11"]


# MovieLens


def test_movielens_100k_has_titles_genres_and_user_features(write) -> None:
    write("ml/u.genre", "unknown|0\nAction|1\nComedy|2\n\n")
    flags = {9: "|0|1|1" + "|0" * 16, 10: "|0|0|1" + "|0" * 16}
    items = f"9|Caf\xe9 (1995)|01-Jan-1995||http://x{flags[9]}\n10|Ten|||{flags[10]}\n"
    write("ml/u.item", items.encode("latin-1"))
    write("ml/u.user", "1|24|M|technician|85711\n2|53|F|other|94043\n")
    data = read(write("ml/u.data", U_DATA).parent)
    assert data.item_texts.tolist() == ["Café (1995)", "Ten"]
    assert data.item_categories.tolist() == [("Action", "Comedy"), ("Comedy",)]
    assert data.user_features["occupation"].tolist() == ["technician", "other"]
    assert data.user_features["zip_code"].tolist() == ["85711", "94043"]


def test_movielens_1m_has_titles_genres_and_user_features_also_out_of_a_zip(write) -> None:
    movies = "9::Caf\xe9: The Film (1995)::Drama|War\n10::Ten::Comedy\n"
    content = zipped(
        **{
            "ml-1m__ratings_dot_dat": RATINGS,
            "ml-1m__movies_dot_dat": movies.encode("latin-1"),
            "ml-1m__users_dot_dat": "1::F::1::10::48067\n2::M::56::16::70072\n",
        }
    )
    data = read(write("ml-1m.zip", content))
    assert data.item_texts.tolist() == ["Café: The Film (1995)", "Ten"]
    assert data.item_categories.tolist() == [("Drama", "War"), ("Comedy",)]
    assert data.user_features["gender"].tolist() == ["F", "M"]
    assert data.user_features["age"].tolist() == ["1", "56"]


def test_a_bad_row_of_movielens_is_named(write, refused) -> None:
    path = write("ml/u.data", U_DATA + "3\t4\t5\n")
    assert refused(path.parent).startswith(f"{path}:4: 3 columns; expected 4 columns")
    path = write("ml1/ratings.dat", RATINGS + "3::4::x::5\n")
    assert refused(path.parent).startswith(f"{path}:4: column 'rating' is 'x'; expected a number")


def test_a_bad_row_of_a_packed_file_is_named_by_the_file_that_is_there(write, refused) -> None:
    path = write("ml/u.data.gz", gzip.compress((U_DATA + "3\t4\t5\n").encode()))
    assert refused(path.parent).startswith(f"{path}:4: ")


# Foursquare


def cities(folder: Path, **rows: str) -> Path:
    header = "user_id\tvenue_id\ttype\tutc\n"
    for city in foursquare.CITIES:
        (folder / f"{city}.tsv").write_text(
            header + rows.get(city, f"1\t{city}\tBar\tTue Apr 03 18:00:12 +0000 2012\n")
        )
    return folder


def test_foursquare_joins_its_cities(tmp_path: Path) -> None:
    data = read(cities(tmp_path, Rome="7\tv\tGym\tThu Jan 01 00:01:40 +0000 1970\n"))
    assert data.n_items == 6
    assert data.user_ids.tolist() == ["1", "7"]
    venues = dict(
        zip(data.item_ids, zip(data.item_texts, data.item_categories, strict=True), strict=True)
    )
    assert venues["v"] == ("Gym", ("Outdoors & Recreation",))
    assert venues["Milan"] == ("Bar", ("Nightlife Spot",))
    assert sorted(set(data.times.tolist())) == [100, 1_333_476_012]


@pytest.mark.parametrize(
    "moment",
    [
        "Tue Apr 31 18:00:12 +0000 2012",
        "Tue Foo 03 18:00:12 +0000 2012",
        "2012",
        "",
        "Tue Apr 03 18:00 +0000 2012",
    ],
)
def test_a_bad_moment_of_foursquare_is_named(moment: str, tmp_path: Path, refused) -> None:
    message = refused(cities(tmp_path, Rome=f"7\tv\tGym\t{moment}\n"))
    assert message.startswith(f"{tmp_path / 'Rome.tsv'}:2: column 'utc' is {moment!r}; expected ")


def test_a_repeated_pair_of_foursquare_is_named_by_its_city(tmp_path: Path, refused) -> None:
    row = "7\tv\tGym\tTue Apr 03 18:00:12 +0000 2012\n"
    message = refused(cities(tmp_path, Rome=row + row), duplicates="error")
    assert message.startswith(
        f"{tmp_path / 'Rome.tsv'}:3: user '7' and item 'v' are already on line 2"
    )


def test_bad_rows_of_all_cities_are_counted_together(tmp_path: Path) -> None:
    bad = "1\tv\tGym\tnever\n1\tw\tGym\tTue Apr 03 18:00:12 +0000 2012\n"
    data = read(cities(tmp_path, Rome=bad, Milan=bad), ReadOptions(skip_bad_rows=True))
    assert next(note for note in data.notes if "skipped" in note).startswith(
        "2 bad rows skipped: expected seconds"
    )


def test_a_missing_city_is_named(tmp_path: Path, refused) -> None:
    (cities(tmp_path) / "Turin.tsv").unlink()
    assert refused(tmp_path) == (
        f"{tmp_path}: no file 'Turin.tsv' in it. Point to the folder or zip as it was distributed."
    )


def test_readers_take_the_policy_for_repeated_pairs(write) -> None:
    path = write("u.data", "1\t2\t3\t10\n1\t2\t5\t20\n")
    assert read(path, ReadOptions(duplicates="oldest")).ratings.tolist() == [3.0]
    assert read(path, ReadOptions(duplicates="newest")).ratings.tolist() == [5.0]
    with pytest.raises(DataError, match=":2: user '1' and item '2' are already on line 1"):
        read(path, ReadOptions(duplicates="error"))


def test_ids_of_text_files_are_texts_and_those_of_parquet_what_they_are_there(
    write, tmp_path: Path
) -> None:
    assert read(write("a.csv", "user_id,item_id\n1,2\n")).user_ids.tolist() == ["1"]
    numbers = read(parquet(tmp_path, user_id=[10, 9], item_id=[1, 2]))
    assert numbers.user_ids.dtype == np.int64
    assert numbers.user_ids.tolist() == [9, 10]
