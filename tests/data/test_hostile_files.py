"""Bad files: each raises a one-line error with file, line, column, value, rule and remedy."""

from __future__ import annotations

import gc
import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from coterie.data import cells
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.errors import DataError

HEADER = "user_id,item_id,rating,timestamp\n"
GOOD = "1,10,3,100\n2,20,4,200\n"
NUMBER = "expected a number"
TIME = (
    "expected ISO 8601, such as 2019-04-03, or seconds or milliseconds since 1970, "
    "one unit for the whole column, before 2100"
)
TEXT = "expected UTF-8 text"
ID = "expected an id"


@dataclass(frozen=True)
class BadRow:
    row: str | bytes
    what: str
    rule: str


BAD_ROWS = {
    "too few columns": BadRow("3,30,5", "3 columns", "expected 4 columns"),
    "too many columns": BadRow("3,30,5,300,9", "5 columns", "expected 4 columns"),
    "text in a rating": BadRow("3,30,five,300", "column 'rating' is 'five'", NUMBER),
    "text in a time": BadRow("3,30,5,yesterday", "column 'timestamp' is 'yesterday'", TIME),
    "an empty rating": BadRow("3,30,,300", "column 'rating' is ''", NUMBER),
    "an empty time": BadRow("3,30,5,", "column 'timestamp' is ''", TIME),
    "an empty user": BadRow(",30,5,300", "column 'user_id' is ''", ID),
    "a user of spaces": BadRow("  ,30,5,300", "column 'user_id' is '  '", ID),
    "an empty item": BadRow("3,,5,300", "column 'item_id' is ''", ID),
    "NaN for a rating": BadRow("3,30,nan,300", "column 'rating' is 'nan'", NUMBER),
    "NaN for a time": BadRow("3,30,5,NaN", "column 'timestamp' is 'NaN'", TIME),
    "an infinite rating": BadRow("3,30,inf,300", "column 'rating' is 'inf'", NUMBER),
    "minus infinity": BadRow("3,30,-Infinity,300", "column 'rating' is '-Infinity'", NUMBER),
    "a rating past 32 bits": BadRow("3,30,1e300,300", "column 'rating' is '1e300'", NUMBER),
    "an infinite time": BadRow("3,30,5,inf", "column 'timestamp' is 'inf'", TIME),
    "a negative time": BadRow("3,30,5,-1", "column 'timestamp' is '-1'", TIME),
    "milliseconds": BadRow("3,30,5,1700000000000", "column 'timestamp' is '1700000000000'", TIME),
    "a time of 1e30": BadRow("3,30,5,1e30", "column 'timestamp' is '1e30'", TIME),
    "a day before 1970": BadRow("3,30,5,1969-12-31", "column 'timestamp' is '1969-12-31'", TIME),
    "a day after 2100": BadRow("3,30,5,2100-01-02", "column 'timestamp' is '2100-01-02'", TIME),
    "a day that is none": BadRow("3,30,5,2021-02-30", "column 'timestamp' is '2021-02-30'", TIME),
    "an underscore in a rating": BadRow("3,30,1_0,300", "column 'rating' is '1_0'", NUMBER),
    "an underscore in a time": BadRow("3,30,5,1_000", "column 'timestamp' is '1_000'", TIME),
    "a hexadecimal number": BadRow("3,30,0x5,300", "column 'rating' is '0x5'", NUMBER),
    "a user in Latin-1": BadRow(
        "Ren\xe9,30,5,300".encode("latin-1"), "column 'user_id' is 'Ren\\udce9'", TEXT
    ),
    "an item in Latin-1": BadRow(
        "3,caf\xe9,5,300".encode("latin-1"), "column 'item_id' is 'caf\\udce9'", TEXT
    ),
    "a rating in Latin-1": BadRow(
        "3,30,\xbd,300".encode("latin-1"), "column 'rating' is '\\udcbd'", TEXT
    ),
    "a quoted separator": BadRow('3,30,"4,5",300', "column 'rating' is '4,5'", NUMBER),
    "a value of 90 characters": BadRow(
        f"3,30,{'x' * 90},300", f"column 'rating' is '{'x' * 37}...'", NUMBER
    ),
}


def with_bad_row(bad: BadRow) -> bytes:
    """The bad row is on line 3, between two good ones."""
    first, second, _ = GOOD.split("\n")
    row = bad.row if isinstance(bad.row, bytes) else bad.row.encode()
    return HEADER.encode() + first.encode() + b"\n" + row + b"\n" + second.encode() + b"\n"


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_is_named_by_file_line_column_value_rule_and_remedy(
    bad: BadRow, write, refused
) -> None:
    path = write("ratings.csv", with_bad_row(bad))
    remedy = "Fix the row or pass --skip-bad-rows."
    if bad.rule == TEXT:
        remedy = "Pass --encoding, such as latin-1, fix the row, or pass --skip-bad-rows."
    assert refused(path) == f"{path}:3: {bad.what}; {bad.rule}. {remedy}"


@pytest.mark.parametrize("bad", BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_bad_row_can_be_skipped_and_is_counted(bad: BadRow, write) -> None:
    data = read(write("ratings.csv", with_bad_row(bad)), ReadOptions(skip_bad_rows=True))
    assert data.user_ids.tolist() == ["1", "2"]
    assert data.notes == (f"1 bad row skipped: {bad.rule} (line 3)",)


def test_skipping_counts_every_rule_apart(write) -> None:
    # The last row breaks two rules.
    rows = "3,30,five,1\n3,31,six,2\n3,32\n3,33,1,-5\n,34,1,1\n3,35,x,-1\n"
    data = read(write("ratings.csv", HEADER + GOOD + rows), ReadOptions(skip_bad_rows=True))
    assert len(data) == 2
    assert set(data.notes) == {
        f"3 bad rows skipped: {NUMBER} (lines 4, 5, 9)",
        "1 bad row skipped: expected 4 columns (line 6)",
        f"1 bad row skipped: {TIME} (line 7)",
        f"1 bad row skipped: {ID} (line 8)",
    }


def test_a_file_of_only_bad_rows_is_refused_also_when_skipping(write, refused) -> None:
    path = write("ratings.csv", HEADER + "1,2,x,4\n1,3,y,4\n")
    assert refused(path, skip_bad_rows=True).startswith(
        f"{path}: all 2 rows were bad; expected at least one row"
    )


def test_the_first_bad_row_is_named_also_past_the_first_chunk(write, refused, monkeypatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 2)
    path = write(
        "ratings.csv", HEADER + GOOD + GOOD.replace("0,", "1,") + "3,30,five,300\n3,30,six,300\n"
    )
    assert refused(path).startswith(f"{path}:6: column 'rating' is 'five'")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", ": is empty; expected a header and one interaction per row."),
        (b"\n", ": is empty; expected a header"),
        (
            HEADER.encode(),
            ": contains no interactions; "
            "expected at least one row of user_id, item_id, rating, timestamp.",
        ),
        (HEADER.encode() + b"\n\n  \n", ": contains no interactions; expected at least one row"),
        (("r\xe9gion," + HEADER).encode("latin-1"), ":1: the header 'r\\udce9gion,user_id,item_id"),
        ((HEADER + GOOD).encode("utf-16"), ":1: the header '\\udcff\\udcfeu\\x00s\\x00"),
        ((HEADER + GOOD).encode("utf-16-le"), ":1: "),
        ((HEADER + GOOD).encode("utf-32"), ":1: "),
    ],
    ids=[
        "empty",
        "one newline",
        "header only",
        "blank rows",
        "Latin-1 header",
        "UTF-16",
        "UTF-16 unmarked",
        "UTF-32",
    ],
)
def test_a_file_without_readable_rows_is_refused(
    content: bytes, expected: str, write, refused
) -> None:
    path = write("ratings.csv", content)
    assert refused(path).startswith(f"{path}{expected}")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_header_that_is_not_utf_8_says_what_to_do(encoding: str, write, refused) -> None:
    path = write("ratings.csv", ("é" + HEADER + GOOD).encode(encoding))
    assert refused(path).endswith(
        "is not UTF-8; expected UTF-8 text. "
        "Save the file as UTF-8, or pass --encoding, such as latin-1 or utf-16."
    )


# Quotes


def test_a_stray_quote_is_named_by_its_line(write, refused) -> None:
    path = write("ratings.csv", HEADER + GOOD + '3,"30"x,5,300\n')
    message = refused(path)
    assert message.startswith(f"{path}:4: ")
    assert "expected fields separated by ','" in message
    assert "stray quote" in message


def test_a_quote_that_never_closes_is_named_by_the_line_where_it_opens(write, refused) -> None:
    path = write("ratings.csv", HEADER + '1,"10,3,100\n' + "2,20,4,200\n" * 50)
    assert refused(path).startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    "header", ['"user_id,item_id\n', 'user_id,item_id,"no\nte"\n', 'user_id,"item_id"x\n']
)
def test_a_stray_quote_in_the_header_is_refused_like_any_other(header: str, write, refused) -> None:
    path = write("ratings.csv", header + "1,2\n")
    assert refused(path).startswith(f"{path}:1: ")


# Columns


def test_an_unknown_column_gets_a_suggestion(write, refused) -> None:
    path = write("ratings.csv", "userz,movieId\n1,2\n")
    assert refused(path) == (
        f"{path}:1: no column was recognised as user_id; there are 'userz', 'movieId'. "
        "Pass --columns user_id=NAME. Did you mean 'userz'?"
    )


def test_a_mapped_column_that_is_not_there_gets_a_suggestion(write, refused) -> None:
    path = write("ratings.csv", "u,i,stars\n1,2,3\n")
    message = refused(path, columns={"user_id": "u", "item_id": "i", "rating": "star"})
    assert "there is no column 'star' for rating" in message
    assert message.endswith("Did you mean 'stars'?")


def test_an_unknown_role_gets_a_suggestion(write, refused) -> None:
    message = refused(write("ratings.csv", HEADER + GOOD), columns={"user": "u"})
    assert "the role 'user'; expected one of user_id, item_id, rating, timestamp" in message
    assert message.endswith("Did you mean 'user_id'?")


# Repeated pairs


TWICE = HEADER + "1,10,3,200\n1,11,5,150\n1,10,4,100\n"  # the newer of the two is first


@pytest.mark.parametrize(("policy", "rating", "time"), [("newest", 3.0, 200), ("oldest", 4.0, 100)])
def test_a_repeated_pair_is_merged_by_the_policy(
    policy: str, rating: float, time: int, write
) -> None:
    data = read(write("ratings.csv", TWICE), ReadOptions(duplicates=policy))
    kept = data.items == data.item_ids.tolist().index("10")
    assert len(data) == 2
    assert data.ratings[kept].tolist() == [rating]
    assert data.times[kept].tolist() == [time]
    assert data.notes == (f"1 repeated user-item pairs merged, the {policy} of each kept",)


def test_a_repeated_pair_can_be_refused_with_both_lines_named(write, refused) -> None:
    path = write("ratings.csv", TWICE)
    assert refused(path, duplicates="error") == (
        f"{path}:4: user '1' and item '10' are already on line 2; expected distinct pairs. "
        "Remove one or set duplicates=newest."
    )


def test_lines_are_counted_past_skipped_and_blank_rows(write, refused) -> None:
    path = write("ratings.csv", HEADER + "1,10,x,1\n\n1,10,3,1\n\n1,11\n1,10,3,1\n")
    message = refused(path, skip_bad_rows=True, duplicates="error")
    assert message.startswith(f"{path}:7: user '1' and item '10' are already on line 4")


# Damaged and missing files


LONG = (HEADER + "".join(f"{n},{n * 7 % 13},3,{n}\n" for n in range(5_000))).encode()


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    import io

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


def flipped(content: bytes, start: int, length: int) -> bytes:
    middle = bytes(b ^ 0xFF for b in content[start : start + length])
    return content[:start] + middle + content[start + length :]


GZIP = gzip.compress(LONG)
ZIP = zipped(("ratings.csv", LONG))
DAMAGED = {
    "gzip cut short": ("a.csv.gz", GZIP[: len(GZIP) // 2]),
    "gzip without its checksum": ("a.csv.gz", GZIP[:-4]),
    "gzip with flipped bits": ("a.csv.gz", flipped(GZIP, len(GZIP) // 2, 20)),
    "text called gzip": ("a.csv.gz", LONG),
    "zip cut short": ("a.zip", ZIP[: len(ZIP) // 2]),
    "zip with flipped bits": ("a.zip", flipped(ZIP, len(ZIP) // 3, 40)),
    "stored zip with a flipped bit": (
        "a.zip",
        flipped(zipped(("a.csv", LONG), method=zipfile.ZIP_STORED), 500, 1),
    ),
    "text called zip": ("a.zip", LONG),
    "an empty zip file": ("a.zip", b""),
}


@pytest.mark.parametrize(("name", "content"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_archive_is_named(name: str, content: bytes, write, refused) -> None:
    path = write(name, content)
    message = refused(path)
    assert message.startswith(f"{path}: is damaged or cut short (")
    assert message.endswith(". Fetch or copy it again.")


def locked(content: bytes) -> bytes:
    """Both headers of a zip's only member mark it as encrypted."""
    changed = bytearray(content)
    central = content.rindex(b"PK\x01\x02")
    changed[6] |= 1
    changed[central + 8] |= 1
    return bytes(changed)


def of_unknown_method(content: bytes) -> bytes:
    changed = bytearray(content)
    central = content.rindex(b"PK\x01\x02")
    changed[8] = changed[central + 10] = 99
    return bytes(changed)


OPENED = DAMAGED | {
    "locked": ("a.zip", locked(ZIP)),
    "packed in an unknown way": ("a.zip", of_unknown_method(ZIP)),
}


@pytest.mark.parametrize(("name", "content"), OPENED.values(), ids=OPENED)
def test_a_refused_archive_is_closed_at_once(name: str, content: bytes, write) -> None:
    """Also while the error's traceback is alive, which keeps all frames alive."""
    path = write(name, content)
    with pytest.raises(DataError) as caught:
        read(path)
    # By type: isinstance reads __class__, and PyTorch has an object that then warns.
    files = [
        f
        for f in gc.get_objects()
        if type(f) is io.FileIO and not f.closed and f.name in (path, str(path))
    ]
    assert caught.value.__traceback__
    assert not files


@pytest.mark.parametrize("change", [locked, of_unknown_method])
def test_a_zip_that_cannot_be_opened_is_the_users_mistake_not_ours(change, write, refused) -> None:
    path = write("a.zip", change(ZIP))
    assert refused(path).startswith(f"{path}: ")


def test_a_zip_of_several_files_is_refused_with_their_names(write, refused) -> None:
    path = write("a.zip", zipped(("one.csv", b"x"), ("two.csv", b"y")))
    message = refused(path)
    assert (
        message == f"{path}: contains 2 files (one.csv, two.csv); expected one. "
        "Unpack it and name the file."
    )


def test_a_zip_without_files_is_refused(write, refused) -> None:
    path = write("a.zip", zipped())
    assert refused(path).startswith(f"{path}: contains 0 files")


def test_a_path_that_does_not_exist_is_named(tmp_path: Path, refused) -> None:
    path = tmp_path / "nowhere.csv"
    assert (
        refused(path)
        == f"{path}: does not exist. Check the path, or name a dataset: coterie data list"
    )


def test_a_path_that_does_not_exist_gets_a_similar_name(write, refused) -> None:
    there = write("music_reviews.tsv", HEADER)
    path = there.with_name("music_review.tsv")
    assert refused(path) == f"{path}: does not exist. Did you mean 'music_reviews.tsv'?"
    assert refused(path.parent / "nowhere" / path.name).endswith("coterie data list")


def test_a_folder_without_data_says_what_would_be_data(tmp_path: Path, refused) -> None:
    message = refused(tmp_path)
    assert message.startswith(f"{tmp_path}: ")
    assert "u.data" in message
    assert "ratings.dat" in message


def test_a_folder_called_csv_is_refused(tmp_path: Path, refused) -> None:
    (tmp_path / "a.csv").mkdir()
    assert refused(tmp_path / "a.csv").startswith(
        f"{tmp_path / 'a.csv'}: is a folder; expected a file"
    )


def test_a_suffix_that_is_not_known_is_refused_with_those_that_are(write, refused) -> None:
    path = write("ratings.odd", b"PK")
    message = refused(path)
    assert message.startswith(f"{path}: the format is not known")
    assert all(suffix in message for suffix in (".csv", ".tsv", ".txt", ".inter", ".parquet"))


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_named(write, refused) -> None:
    path = write("ratings.csv", HEADER + GOOD)
    path.chmod(0)
    assert refused(path) == f"{path}: is not readable. Check its permissions."


# Unusual but valid files


ODD_BUT_GOOD = {
    "CRLF": HEADER.replace("\n", "\r\n") + GOOD.replace("\n", "\r\n"),
    "CR, as on old machines": (HEADER + GOOD).replace("\n", "\r"),
    "mixed line ends": HEADER + GOOD.replace("\n", "\r\n", 1),
    "a byte order mark": "\ufeff" + HEADER + GOOD,
    "a mark and quotes": "\ufeff" + '"user_id","item_id","rating","timestamp"\n' + GOOD,
    "blank lines between": HEADER + "\n" + GOOD.replace("\n", "\n\n") + "  \n\n",
    "blank lines and CRLF": HEADER.replace("\n", "\r\n") + GOOD.replace("\n", "\r\n\r\n"),
    "no newline at the end": HEADER + GOOD.rstrip("\n"),
    "quoted values": HEADER + '"1","10","3","100"\n2,"20",4,"200"\n',
    "spaces around values": HEADER + " 1 , 10 , 3 , 100 \n2,20,4,200\n",
    "spaces in the header": HEADER.replace(",", " , ") + GOOD,
    "a quoted separator in another column": "note," + HEADER + '"a,b",1,10,3,100\nc,2,20,4,200\n',
    "a quoted newline in another column": "note,"
    + HEADER
    + '"a\nb",1,10,3,100\n"c\r\nd",2,20,4,200\n',
    "a doubled quote in another column": "note,"
    + HEADER
    + '"say ""hi""",1,10,3,100\nc,2,20,4,200\n',
    "Latin-1 in another column": ("note," + HEADER + "caf\xe9,1,10,3,100\nx,2,20,4,200\n").encode(
        "latin-1"
    ),
    "columns in another order": "timestamp,rating,item_id,user_id\n100,3,10,1\n200,4,20,2\n",
    "semicolons": (HEADER + GOOD).replace(",", ";"),
    "tabs": (HEADER + GOOD).replace(",", "\t"),
    "pipes": (HEADER + GOOD).replace(",", "|"),
    "decimals and exponents": HEADER + "1,10,3.0,1e2\n2,20,+4,200.9\n",
    "days and moments": HEADER + "1,10,3,1970-01-01T00:01:40\n2,20,4,1970-01-01T02:03:20+02:00\n",
}


@pytest.mark.parametrize("content", ODD_BUT_GOOD.values(), ids=ODD_BUT_GOOD)
def test_an_odd_but_good_file_reads_as_the_plain_one(content: str | bytes, write) -> None:
    data = read(write("ratings.csv", content))
    assert data.user_ids[data.users].tolist() == ["1", "2"]
    assert data.item_ids[data.items].tolist() == ["10", "20"]
    assert data.ratings.tolist() == [3.0, 4.0]
    assert data.times.tolist() == [100, 200]
    assert data.notes == ()


def test_ids_keep_their_separators_newlines_and_letters(write) -> None:
    data = read(write("a.csv", 'user_id,item_id\n"a,b","c\nd"\nÅsa,"say ""hi"""\n世界,"\'"\n'))
    pairs = set(zip(data.user_ids[data.users], data.item_ids[data.items], strict=True))
    assert pairs == {("a,b", "c\nd"), ("Åsa", 'say "hi"'), ("世界", "'")}


def test_ratings_and_times_may_be_missing_altogether(write) -> None:
    data = read(write("a.csv", "user_id,item_id\n1,2\n"))
    assert data.ratings is None
    assert data.times is None


def test_the_latest_moment_allowed_is_the_start_of_2100(write, refused) -> None:
    assert read(write("a.csv", HEADER + "1,2,3,4102444800\n")).times.tolist() == [4_102_444_800]
    assert TIME in refused(write("b.csv", HEADER + "1,2,3,4102444801\n"))


def test_a_large_file_keeps_every_row_across_chunks(write, monkeypatch) -> None:
    monkeypatch.setattr(cells, "CHUNK", 100)
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(1, 60, (1_000, 2)), axis=0)
    rows = [
        f"{u},{f'{i}' if n % 300 else chr(34) + str(i) + chr(34)},5,{n}\n"
        for n, (u, i) in enumerate(pairs)
    ]
    data = read(write("a.csv", HEADER + "".join(rows)))
    found = np.column_stack([data.user_ids[data.users], data.item_ids[data.items]]).astype(int)
    assert np.array_equal(np.unique(found, axis=0), pairs)
    assert sorted(data.times.tolist()) == list(range(len(pairs)))


# The command line


def describe(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "coterie.cli.main", "data", "describe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        (
            "ratings.csv",
            HEADER + "1,10,five,1\n",
            [],
            ":2: column 'rating' is 'five'; expected a number.",
        ),
        (
            "ratings.csv",
            HEADER.encode() + b"\xff\xfe,10,5,1\n",
            [],
            ":2: column 'user_id' is '\\udcff\\udcfe'",
        ),
        (
            "ratings.csv",
            "user,item\n1,2\n",
            ["--columns", "user_id=usr,item_id=item"],
            "Did you mean 'user'?",
        ),
        ("ratings.csv.gz", GZIP[:100], [], "is damaged or cut short"),
        (
            "ratings.csv",
            TWICE,
            ["--set", "duplicates=error"],
            ":4: user '1' and item '10' are already on line 2",
        ),
        ("ratings.csv", '"user_id,item_id\n1,2\n', [], ":1: "),
    ],
    ids=[
        "text in a number",
        "not UTF-8",
        "unknown column",
        "gzip cut short",
        "repeated pair",
        "quote in the header",
    ],
)
def test_the_command_line_says_one_line_and_leaves_with_2(
    name, content, options, expected, write
) -> None:
    done = describe(str(write(name, content)), *options)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("error: ")
    assert expected in done.stderr


def test_the_command_line_names_a_path_that_does_not_exist(tmp_path: Path) -> None:
    done = describe(str(tmp_path / "nowhere.csv"))
    assert done.returncode == 2
    assert done.stderr == (
        f"error: {tmp_path / 'nowhere.csv'}: does not exist. "
        "Check the path, or name a dataset: coterie data list\n"
    )


def test_the_command_line_counts_what_it_skipped(write) -> None:
    path = write("ratings.csv", HEADER + GOOD + "3,30,five,1\n3,30\n")
    done = describe(str(path), "--skip-bad-rows", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    facts = json.loads(done.stdout)
    assert (facts["users"], facts["items"], facts["interactions"]) == (2, 2, 2)
    assert set(facts["notes"]) == {
        f"1 bad row skipped: {NUMBER} (line 4)",
        "1 bad row skipped: expected 4 columns (line 5)",
    }
