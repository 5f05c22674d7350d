"""TripAdvisor's ratings with context, from every packing, with features of users and hotels."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

import pytest

from coterie.data import tripadvisor
from coterie.data.datasets import load
from coterie.data.filters import Filters
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.errors import FetchError

HEADER = "UserID,ItemID,Rating,UserState,UserTimeZone,ItemCity,ItemState,ItemTimeZone,TripType\r\n"
CSV = HEADER + (
    "B1,219668,5,AK,AK,GREENSBORO,NC,EASTERN,SOLO\r\n"
    "A2,75680,4,CA,PACIFIC,ANAHEIM,CA,PACIFIC,FAMILY\r\n"
    "B1,75680,3,AK,AK,ANAHEIM,CA,PACIFIC,COUPLES\r\n"
    "A2,75680,1,CA,PACIFIC,ANAHEIM,CA,PACIFIC,BUSINESS\r\n"
)
# Users are ordered by name, hotels by number; of the repeated pair the later row is kept.
ROWS = [("A2", "75680", 1.0), ("B1", "75680", 3.0), ("B1", "219668", 5.0)]


def rows_of(data: Interactions) -> list[tuple[str, str, float]]:
    return list(
        zip(
            data.user_ids[data.users], data.item_ids[data.items], data.ratings.tolist(), strict=True
        )
    )


def zipped(content: str | bytes = CSV) -> bytes:
    """As it is distributed: a folder with the ratings and a page about them."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Travel_TripAdvisor_v2/", "")
        archive.writestr("Travel_TripAdvisor_v2/ReadMe.html", "<html></html>")
        archive.writestr(f"Travel_TripAdvisor_v2/{tripadvisor.RATINGS}", content)
    return buffer.getvalue()


PACKED = {
    tripadvisor.ARCHIVE: zipped(),
    "renamed.zip": zipped(),
    tripadvisor.RATINGS: CSV.encode(),
    f"{tripadvisor.RATINGS}.gz": gzip.compress(CSV.encode()),
}


@pytest.mark.parametrize(("name", "content"), PACKED.items(), ids=PACKED)
def test_the_same_ratings_come_out_of_every_packing(name: str, content: bytes, write) -> None:
    path = write(f"trip/{name}", content)
    assert rows_of(read(path)) == ROWS
    if name != "renamed.zip":
        assert rows_of(read(path.parent)) == ROWS


@pytest.mark.parametrize("place", [f"tripadvisor/{tripadvisor.ARCHIVE}", "tripadvisor.zip"])
def test_by_name_the_zip_may_lie_in_the_dataset_s_folder_or_stand_for_it(
    place: str, write, tmp_path, monkeypatch
):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    write(place, zipped())
    data = load("tripadvisor", Filters(feedback="explicit"))
    assert rows_of(data) == ROWS


def test_by_name_users_with_fewer_than_five_hotels_are_left_out_and_ratings_forgotten(
    write, tmp_path, monkeypatch
):
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    rows = [
        f"{user},{item},4,AK,AK,X,NC,EASTERN,SOLO\n"
        for user, n in (("a", 5), ("b", 4))
        for item in range(n)
    ]
    # b has four ratings, one of them twice.
    write("tripadvisor.zip", zipped(HEADER + "".join(rows) + rows[-1]))
    data = load("tripadvisor")
    assert (data.name, data.user_ids.tolist(), len(data)) == ("tripadvisor", ["a"], 5)
    assert (data.ratings, data.times) == (None, None)


def test_users_have_state_and_time_zone_and_hotels_city_and_state(write) -> None:
    data = read(write("trip.zip", zipped()))
    assert data.user_ids.tolist() == ["A2", "B1"]
    assert {name: values.tolist() for name, values in data.user_features.items()} == {
        "state": ["CA", "AK"],
        "time_zone": ["PACIFIC", "AK"],
    }
    assert data.item_ids.tolist() == ["75680", "219668"]
    assert data.item_categories.tolist() == [("ANAHEIM", "CA"), ("GREENSBORO", "NC")]
    assert data.times is None


def test_nothing_about_a_user_or_a_hotel_tells_of_a_single_visit(write) -> None:
    """The data does not depend on the trip types, so that they cannot reach a model."""
    other = CSV.replace("SOLO", "FAMILY").replace("COUPLES", "FRIENDS")
    one, two = (read(write(f"{n}.zip", zipped(text))) for n, text in enumerate((CSV, other)))
    assert other != CSV
    assert one.item_categories.tolist() == two.item_categories.tolist()
    assert {n: v.tolist() for n, v in one.user_features.items()} == {
        n: v.tolist() for n, v in two.user_features.items()
    }


def test_a_file_without_context_is_read_without_it(write) -> None:
    data = read(write(tripadvisor.RATINGS, "UserID,ItemID,Rating\n1,2,3\n"))
    assert rows_of(data) == [("1", "2", 3.0)]
    assert (data.item_categories, data.user_features) == (None, {})
    partly = read(write(tripadvisor.RATINGS, "ItemState,UserID,ItemID,Rating\nNC,1,2,3\n"))
    assert (partly.item_categories.tolist(), partly.user_features) == ([("NC",)], {})


def test_a_column_may_be_called_otherwise(write) -> None:
    path = write("trip.zip", zipped(CSV.replace("Rating", "Stars")))
    assert rows_of(read(path, ReadOptions(columns={"rating": "Stars"}))) == ROWS


def test_quoted_cells_are_read_as_what_they_say(write) -> None:
    row = '"A2",75680,4,"CA",PACIFIC,"WINSTON, SALEM",NC,EASTERN,SOLO\n'
    data = read(write(tripadvisor.RATINGS, HEADER + row))
    assert data.item_categories.tolist() == [("WINSTON, SALEM", "NC")]
    assert data.user_features["state"].tolist() == ["CA"]


BAD_ROWS = {
    "text for a rating": (
        b"A2,1,five,CA,P,X,CA,P,SOLO",
        "column 'Rating' is 'five'",
        "expected a number",
    ),
    "no user": (b",1,5,CA,P,X,CA,P,SOLO", "column 'UserID' is ''", "expected an id"),
    "cut short": (b"A2,1,5,CA", "4 columns", "expected 9 columns"),
    "a city in Latin-1": (
        b"A2,1,5,CA,P,S\xe3o,CA,P,SOLO",
        "column 'ItemCity' is 'S\\udce3o'",
        "expected UTF-8 text",
    ),
}


@pytest.mark.parametrize(("row", "what", "rule"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_and_can_be_skipped(
    row: bytes, what: str, rule: str, write, refused
) -> None:
    path = write(f"trip/{tripadvisor.ARCHIVE}", zipped(CSV.encode() + row + b"\r\n"))
    assert refused(path.parent) == f"{path}:6: {what}; {rule}. Fix the row or pass --skip-bad-rows."
    data = read(path.parent, ReadOptions(skip_bad_rows=True))
    assert rows_of(data) == ROWS
    assert data.notes[0] == f"1 bad row skipped: {rule} (line 6)"


def test_a_repeated_pair_can_be_refused_or_the_earlier_row_kept(write, refused) -> None:
    path = write("trip.zip", zipped())
    assert refused(path, duplicates="error").startswith(
        f"{path}:5: user 'A2' and item '75680' are already on line 3; expected distinct pairs."
    )
    assert rows_of(read(path, ReadOptions(duplicates="oldest")))[0] == ("A2", "75680", 4.0)


def test_a_missing_dataset_is_an_error_that_names_its_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(FetchError) as caught:
        load("tripadvisor")
    for part in (str(tmp_path / "tripadvisor"), tripadvisor.ARCHIVE, "CARSKit"):
        assert part in str(caught.value)
