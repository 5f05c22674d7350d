"""Files as users have them: names are guessed and said, times have any unit, cells any encoding."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from coterie.data import read_cache
from coterie.data.column_names import COMMON_NAMES, assign_columns
from coterie.data.export import write_interactions
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.errors import ConfigError, DataError

RANDOM = "no column has times: splits are random, drawn by the seed"


def rows_of(data: Interactions) -> list[tuple[object, ...]]:
    frame = data.to_frame()
    return [tuple(row) for row in frame.astype(object).to_numpy().tolist()]


# ---- columns


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("userId,movieId,rating,timestamp", "userId movieId rating timestamp"),
        ("User-ID,ISBN,Book-Rating", "User-ID ISBN Book-Rating"),
        ("reviewerID,asin,overall,unixReviewTime", "reviewerID asin overall unixReviewTime"),
        ("utc,stars,business_id,user_id", "user_id business_id stars utc"),
        ("Reviewer,Restaurant,Review,Rating,Date", "Reviewer Restaurant Rating Date"),
    ],
)
def test_common_names_are_guessed(header: str, roles: str) -> None:
    found = assign_columns("a.csv:1: ", header.split(","), {})
    assert [found.name(role) for role in found.positions] == roles.split()


def test_the_mapping_and_unused_columns_are_said(write) -> None:
    text = "user,album,label,utc\n1,a,x,2020-01-01\n2,b,y,2020-01-02T00:00:00+01:00\n"
    data = read(write("music.csv", text))
    assert data.reading == (
        "2 rows read: separated by ',', utf-8 text, with a header",
        "columns: user_id is 'user' (guessed), item_id is 'album' (guessed), "
        "timestamp is 'utc' (guessed)",
        "columns not used: 'label'",
        "times: 'utc' has ISO 8601, as UTC where no time zone is given",
    )
    assert data.times.tolist() == [1_577_836_800, 1_577_919_600]


def test_rows_read_are_all_rows_of_the_file(write) -> None:
    text = "user_id,item_id,rating\n1,10,3\n1,11\n\n2,10,bad\n2,10,4\n2,10,5\n"
    data = read(write("a.csv", text), ReadOptions(skip_bad_rows=True))
    assert data.reading[0].startswith("5 rows read: ")
    assert data.notes == (
        "1 bad row skipped: expected 3 columns (line 3)",
        "1 bad row skipped: expected a number (line 5)",
        "1 repeated user-item pairs merged, the last row of each kept",
    )
    assert len(data) == 5 - 1 - 1 - 1


def test_a_file_without_times_says_what_follows(write) -> None:
    assert read(write("a.csv", "user_id,item_id\n1,2\n")).reading[-1] == RANDOM


def test_two_columns_that_fit_are_an_error_with_the_remedy(write, refused) -> None:
    path = write("a.csv", "user,album,artist,date,utc\n1,a,b,2020-01-01,0\n")
    assert refused(path) == (
        f"{path}:1: the columns 'album', 'artist' all fit item_id; expected one. "
        "Pass --columns item_id=album or --columns item_id=artist."
    )
    assert refused(path, columns={"item_id": "album"}) == (
        f"{path}:1: the columns 'date', 'utc' all fit timestamp; expected one. "
        "Pass --columns timestamp=date or --columns timestamp=utc, "
        "or --columns timestamp=- to use none."
    )
    options = ReadOptions(columns={"item_id": "album", "timestamp": "-"})
    assert read(path, options).times is None


def test_the_name_of_the_role_needs_no_guess(write) -> None:
    data = read(write("a.csv", "user,user_id,item_id,movieId\nx,1,2,y\n"))
    assert rows_of(data) == [("1", "2")]
    assert "columns not used: 'user', 'movieId'" in data.reading


def test_a_guessed_column_with_a_bad_value_can_be_left_out(write, refused) -> None:
    path = write("a.csv", "user,item,date\n1,2,3 years ago\n")
    assert refused(path).endswith(
        "Fix the row, pass --skip-bad-rows, or leave the column out: --columns timestamp=-"
    )


def test_no_name_fits_two_roles() -> None:
    names = [name for fitting in COMMON_NAMES.values() for name in fitting]
    assert len(names) == len(set(names))


def test_a_name_that_occurs_twice_is_an_error(write, refused) -> None:
    path = write("a.csv", "user_id,item_id,user_id\n1,2,3\n")
    assert refused(path) == (
        f"{path}:1: columns 1 and 3 are both named 'user_id'; expected distinct names. Rename one."
    )


# ---- times


@pytest.mark.parametrize(
    ("cells", "unit"),
    [
        (["1577836800", "1577836801"], "seconds since 1970"),
        (["1577836800000", "1577836801999"], "milliseconds since 1970, stored as whole seconds"),
        (["1577836800000000", "1577836801000001"], "microseconds since 1970, "),
        (["1577836800000000000", "1577836801000000000"], "nanoseconds since 1970, "),
        (["2020-01-01", "2020-01-01 00:00:01"], "ISO 8601, as UTC where no time zone is given"),
    ],
)
def test_the_unit_of_times_is_found_and_said(cells: list[str], unit: str, write) -> None:
    text = "user_id,item_id,timestamp\n" + "".join(f"{n},1,{c}\n" for n, c in enumerate(cells))
    data = read(write("a.csv", text))
    assert data.times.tolist() == [1_577_836_800, 1_577_836_801]
    assert data.reading[-1].startswith(f"times: 'timestamp' has {unit}")
    frame = pd.DataFrame({"user_id": [0, 1], "item_id": [1, 1], "timestamp": cells})
    assert Interactions.from_frame(frame).times.tolist() == data.times.tolist()


def test_a_date_that_cannot_be_read_names_what_can(write, refused) -> None:
    path = write("a.csv", "user_id,item_id,timestamp\n1,2,03/04/2019\n")
    assert refused(path) == (
        f"{path}:2: column 'timestamp' is '03/04/2019'; expected ISO 8601, such as 2019-04-03, "
        "or seconds or milliseconds since 1970, one unit for the whole column, before 2100. "
        "Fix the row or pass --skip-bad-rows."
    )


# ---- encodings, delimiters, headers, formats


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "cp1252", "utf-8"])
def test_an_encoding_can_be_named(encoding: str, write) -> None:
    path = write("a.csv", "user_id;item_id;note\nRené;café;ü\n".encode(encoding))
    assert rows_of(read(path, ReadOptions(encoding=encoding))) == [("René", "café")]


def test_an_unknown_encoding_is_named(write) -> None:
    path = write("a.csv", "user_id,item_id\n1,2\n")
    for encoding in ("latin-99", "base64"):
        with pytest.raises(ConfigError, match=f"--encoding is '{encoding}'; expected the name"):
            read(path, ReadOptions(encoding=encoding))


@pytest.mark.parametrize(
    ("delimiter", "letters"), [(";", ";"), ("tab", "\t"), ("\\t", "\t"), ("::", "::"), ("¦", "¦")]
)
def test_a_delimiter_can_be_named(delimiter: str, letters: str, write) -> None:
    text = "user_id,item_id,rating,note\n1,a,3,x\n2,b,4,y\n".replace(",", letters)
    data = read(write("a.data", text), ReadOptions(delimiter=delimiter))
    assert rows_of(data) == [("1", "a", 3.0), ("2", "b", 4.0)]


def test_a_file_without_header_names_columns_by_number(write, refused) -> None:
    path = write("a.csv", "1,10,3\n2,20,4\n")
    columns = {"user_id": "1", "item_id": "2", "rating": "3"}
    data = read(path, ReadOptions(columns=columns, header=False))
    assert rows_of(data) == [("1", "10", 3.0), ("2", "20", 4.0)]
    suggested = "--columns user_id=1,item_id=2,rating=3"
    assert refused(path) == (
        f"{path}:1: no column was recognised as user_id; there are '1', '10', '3'. If the file has "
        f"no header, pass --no-header {suggested}; if it has one, pass --columns user_id=NAME."
    )
    assert refused(path, header=False) == (
        f"{path}:1: no column was recognised as user_id; without a header, columns are numbered "
        f"from 1 to 3. Pass {suggested}"
    )
    assert refused(path, header=False, columns=columns | {"rating": "4"}).startswith(
        f"{path}:1: there is no column '4' for rating; without a header, columns are numbered"
    )


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ("ann,dune,4.5,2019-04-03", "user_id=1,item_id=2,rating=3,timestamp=4"),
        ("196,242,3,881250949", "user_id=1,item_id=2,rating=3,timestamp=4"),
        ("196,242,881250949000,3", "user_id=1,item_id=2,rating=4,timestamp=3"),
        ("2019-04-03T10:00:00,ann,dune", "user_id=2,item_id=3,timestamp=1"),
        ("881250949,881250950,great,5", "user_id=1,item_id=2,rating=4"),
        ("7,7", "user_id=1,item_id=2"),
        ("2019-04-03,ann", "user_id=1,item_id=2"),
    ],
)
def test_the_roles_of_a_first_row_are_suggested(row: str, columns: str, write, refused) -> None:
    path = write("a.csv", f"{row}\n")
    assert f"pass --no-header --columns {columns}" in refused(path)
    assert refused(path, header=False).endswith(f"Pass --columns {columns}")


def test_a_header_that_is_read_as_a_row_is_noted(write, refused) -> None:
    path = write("a.csv", "reviewer,Item ID,stars,note\n1,10,3,x\n2,20,4,y\n")
    columns = {"user_id": "1", "item_id": "2"}
    note = (
        "the first row looks like a header ('reviewer', 'Item ID', 'stars'): "
        "leave out --no-header if so"
    )
    assert note in read(path, ReadOptions(columns=columns, header=False)).reading
    assert refused(path, columns=columns | {"rating": "3"}, header=False) == (
        f"{path}:1: column '3' is 'stars'; expected a number. "
        "If the line is a header, leave out --no-header; if not, pass --skip-bad-rows."
    )
    plain = write("b.csv", "1,10,3,x\n2,20,4,y\n")
    reading = read(plain, ReadOptions(columns=columns, header=False)).reading
    assert not any("looks like a header" in line for line in reading)


@pytest.mark.parametrize(("given", "used"), [(";", "\t"), ("tab", ","), (",", "|")])
def test_a_delimiter_that_separates_nothing_names_the_likely_one(
    given: str, used: str, write, refused
) -> None:
    line = used.join(["reviewer", "item", "rating", "utc"])
    path = write("a.tsv", f"{line}\n")
    assert refused(path, delimiter=given) == (
        f"{path}:1: no column was recognised as user_id; the only column is {line!r}. The line "
        f"looks separated by {used!r}; pass --delimiter {used!r} or leave it out."
    )
    columns = {"user_id": "1", "item_id": "2"}
    message = refused(path, delimiter=given, header=False, columns=columns)
    assert f"The line looks separated by {used!r}" in message


def test_formats_that_are_not_read_have_a_remedy(write, refused) -> None:
    path = write("a.xlsx", "x")
    call = f"coterie.load(pandas.read_excel({str(path)!r}), columns="
    assert refused(path).endswith(call + '{"user_id": "NAME", "item_id": "NAME"})')


def test_rows_with_stray_quotes_are_skipped_with_their_lines(write, refused) -> None:
    rows = '"1";"10";"3"\n"2";"2"0";"4"\n"4377";"\\"0210";"8"\n'
    path = write("bx.csv", '"User-ID";"ISBN";"Book-Rating"\n' + rows)
    assert refused(path).startswith(f"{path}:3: ")
    data = read(path, ReadOptions(skip_bad_rows=True))
    assert rows_of(data) == [("1", "10", 3.0), ("4377", '"0210', 8.0)]
    assert data.notes[0].endswith("with quotes around whole fields (line 3)")


# ---- ids


@pytest.mark.parametrize("ids", [[10, 9, 2, 9], [-1, 5, -20, 3], [2**62, 1, 7, 0]])
def test_whole_numbers_and_their_texts_are_the_same_ids(ids: list[int], write) -> None:
    text = "user_id,item_id\n" + "".join(f"{i},{n}\n" for n, i in enumerate(ids))
    from_file = read(write("a.csv", text))
    from_frame = Interactions.from_frame(pd.DataFrame({"user_id": ids, "item_id": range(4)}))
    assert from_file.fingerprint() == from_frame.fingerprint()
    assert from_file.users.tolist() == from_frame.users.tolist()


def test_a_text_that_is_no_printed_number_is_another_id(write) -> None:
    data = read(write("a.csv", "user_id,item_id\n7,1\n007,2\n7.0,3\n"))
    assert data.n_users == 3


# ---- the cache and what is written


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Every file is large enough for the cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(read_cache, "LEAST_BYTES", 0)
    return tmp_path / "cache" / "coterie" / "readings"


TEXT = "user_id,item_id,rating,timestamp\n1,10,3,100\nb,20,x,200\n1,9,5,300\n"


def test_a_second_reading_is_the_same_and_reads_no_rows(write, cached: Path, monkeypatch) -> None:
    path = write("a.csv", TEXT)
    first = read(path, ReadOptions(skip_bad_rows=True))
    monkeypatch.setattr(read_cache, "_store", None)
    second = read(path, ReadOptions(skip_bad_rows=True))
    assert first.fingerprint() == second.fingerprint()
    assert (first.notes, first.reading) == (second.notes, second.reading)
    assert first.read_facts is not None
    assert first.read_facts == second.read_facts
    assert np.array_equal(first.user_records, second.user_records)
    assert len(list(cached.iterdir())) == 1


def test_other_content_and_other_options_are_read_again(write, cached: Path) -> None:
    path = write("a.csv", TEXT)
    with pytest.raises(DataError):
        read(path)
    read(path, ReadOptions(skip_bad_rows=True))
    left_out = read(path, ReadOptions(skip_bad_rows=True, columns={"rating": "-"}))
    assert len(left_out) == 3
    assert len(read(write("a.csv", TEXT + "c,1,1,1\n"), ReadOptions(skip_bad_rows=True))) == 3
    assert len(list(cached.iterdir())) == 3


def test_a_damaged_reading_is_replaced(write, cached: Path) -> None:
    path = write("a.csv", TEXT)
    options = ReadOptions(skip_bad_rows=True)
    first = read(path, options)
    (place,) = cached.iterdir()
    place.write_bytes(place.read_bytes()[:100])
    assert read(path, options).fingerprint() == first.fingerprint()


def test_old_readings_are_removed(write, cached: Path, monkeypatch) -> None:
    monkeypatch.setattr(read_cache, "MOST_READINGS", 2)
    for n in range(3):
        read(write("a.csv", f"user_id,item_id\n{n},1\n"))
        for place in cached.iterdir():
            os.utime(place, (n, n))
    assert len(list(cached.iterdir())) == 2


def test_readings_and_exports_are_for_their_owner_only(write, cached: Path, tmp_path) -> None:
    data = read(write("a.csv", TEXT), ReadOptions(skip_bad_rows=True))
    write_interactions(data, tmp_path / "out.csv")
    places = [*cached.iterdir(), tmp_path / "out.csv"]
    assert [place.stat().st_mode & 0o777 for place in places] == [0o600, 0o600]
    assert cached.stat().st_mode & 0o777 == 0o700
    assert rows_of(read(tmp_path / "out.csv")) == rows_of(data)


def test_small_files_and_nodes_leave_no_copy(write, cached: Path, monkeypatch) -> None:
    read(write("a.csv", TEXT), ReadOptions(skip_bad_rows=True, cache=False))
    monkeypatch.setattr(read_cache, "LEAST_BYTES", 2**20)
    read(write("a.csv", TEXT), ReadOptions(skip_bad_rows=True))
    assert not cached.exists()
