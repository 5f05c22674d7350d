"""Pinterest's two files of user lines: contents, errors, and other files named `train.txt`."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import api
from coterie.data import pinterest
from coterie.data.datasets import load
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.data.splits import split
from coterie.errors import DataError, FetchError

TRAIN = "0 2 4 0\n1 38 25\n10 4\n"
TEST = "0 12 2\n2 9 38\n"
# Item 2 of user 0 is in both files. Users 1 and 10 are in the first only, user 2 in the second.
ROWS = [
    ("0", "0"),
    ("0", "2"),
    ("0", "4"),
    ("0", "12"),
    ("1", "25"),
    ("1", "38"),
    ("2", "9"),
    ("2", "38"),
    ("10", "4"),
]
NUMBERS = "expected whole numbers, a user and the user's items"
SOME = "expected a user and at least one item"
REMEDY = "Fix the row or pass --skip-bad-rows."


def rows_of(data: Interactions) -> list[tuple[str, str]]:
    return list(zip(data.user_ids[data.users], data.item_ids[data.items], strict=True))


@pytest.fixture
def two_files(write) -> Callable[..., Path]:
    """`two_files(train, test)` writes both files and returns their folder."""

    def make(train: str | bytes = TRAIN, test: str | bytes = TEST) -> Path:
        write(f"pinterest/{pinterest.TEST}", test)
        return write(f"pinterest/{pinterest.TRAIN}", train).parent

    return make


def zipped(**members: str | bytes) -> bytes:
    """`zipped(train_txt=text)`: a zip with a folder of such files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"data/{name.replace('_', '.')}", content)
    return buffer.getvalue()


# ---- contents


def test_both_files_are_one_set_and_a_pair_counts_once(two_files) -> None:
    data = read(two_files())
    assert rows_of(data) == ROWS
    assert (data.ratings, data.times, data.item_texts, data.user_features) == (None, None, None, {})
    assert data.notes == ("1 repeated user-item pairs merged, the last row of each kept",)
    assert [data.item_ids[i] for i in data.item_order] == ["2", "4", "0", "38", "25", "12", "9"]


def test_a_pair_within_a_line_or_a_user_on_two_lines_counts_once_as_well(two_files) -> None:
    data = read(two_files("3 7 7\n3 8\n", "3 8 7\n"), ReadOptions(duplicates="oldest"))
    assert rows_of(data) == [("3", "7"), ("3", "8")]
    assert data.notes == ("3 repeated user-item pairs merged, the first row of each kept",)


@pytest.mark.parametrize("packed", [(False, True), (True, False), (True, True)], ids=str)
def test_either_file_may_be_gzipped(packed: tuple[bool, bool], write) -> None:
    for name, text, squeeze in zip(
        (pinterest.TRAIN, pinterest.TEST), (TRAIN, TEST), packed, strict=True
    ):
        path = write(
            f"{name}.gz" if squeeze else name, gzip.compress(text.encode()) if squeeze else text
        )
    assert rows_of(read(path.parent)) == ROWS


def test_both_may_lie_in_a_zip(write) -> None:
    for before in ("", "\n \n"):
        packed = gzip.compress((before + TRAIN).encode())
        assert (
            rows_of(read(write("anything.zip", zipped(train_txt_gz=packed, test_txt=TEST)))) == ROWS
        )


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (TRAIN.replace("\n", "\r\n"), TEST),
        (TRAIN.replace(" ", "\t"), TEST.replace(" ", "  ").replace("\n", " \n")),
        (TRAIN.rstrip("\n"), TEST + "\n \n"),
        ("\n" + TRAIN.replace("\n", "\n\n"), "\n\n" + TEST),
        ("\ufeff" + TRAIN, TEST),
    ],
    ids=[
        "line ends",
        "spaces",
        "blank lines at the end",
        "blank lines between",
        "a byte order mark",
    ],
)
def test_what_does_not_matter(train: str, test: str, two_files) -> None:
    assert rows_of(read(two_files(train, test))) == ROWS


def test_by_name_users_with_fewer_than_twenty_pins_are_left_out(two_files, monkeypatch) -> None:
    """Both files and repeats count: 7 has 15 and 5, 8 has 20 with one repeat, 9 has 19."""
    line = " ".join(map(str, range(15)))
    folder = two_files(
        f"7 {line}\n8 {line}\n9 {line}\n", "7 15 16 17 18 19\n8 15 16 17 18 0\n9 15 16 17 18\n"
    )
    monkeypatch.setenv("COTERIE_DATA", str(folder.parent))
    data = load("pinterest")
    assert (data.name, data.user_ids.tolist(), len(data), data.n_items) == (
        "pinterest",
        ["7", "8"],
        39,
        20,
    )


def test_by_name_it_is_held_out_at_random_and_runs(two_files, monkeypatch) -> None:
    """Forty users with thirty of two hundred items each, so that each has a hundred unseen ones."""
    items = [" ".join(str((5 * user + n) % 200) for n in range(30)) for user in range(40)]
    folder = two_files("".join(f"{user} {line}\n" for user, line in enumerate(items)), "0 0\n")
    monkeypatch.setenv("COTERIE_DATA", str(folder.parent))
    data = load("pinterest")
    one, other = (split(data, "leave-one-out", 0, seed).test.items for seed in (0, 1))
    assert len(one) == len(other) == 40
    assert (one == other).sum() < 10  # chance is one in thirty
    result = api.run("popular", "pinterest").result
    assert (result["protocol"], result["tested_users"]) == ("loo-100", 40)


def test_a_missing_dataset_is_an_error_that_names_its_files(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(FetchError) as caught:
        load("pinterest")
    for part in (
        str(tmp_path / "pinterest"),
        pinterest.TRAIN,
        pinterest.TEST,
        "He et al. 2017",
        "COTERIE_DATA",
    ):
        assert part in str(caught.value)


# ---- errors

BAD_LINES = {
    "a user without items": ("2", "user '2' has no items", SOME),
    "a name alone": ("anna ", "user 'anna' has no items", SOME),
    "letters for an item": ("2 9 nine 8", "item 'nine' is not a number", NUMBERS),
    "letters for a user": ("anna 9 8", "user 'anna' is not a number", NUMBERS),
    "a negative number": ("2 -9", "item '-9' is not a number", NUMBERS),
    "a broken number": ("2 9.5 8", "item '9.5' is not a number", NUMBERS),
    "an underscore": ("2 1_000", "item '1_000' is not a number", NUMBERS),
    "another separator": ("2,9,8", "user '2,9,8' has no items", SOME),
    "digits of another script": ("2 \u0669", "item '\u0669' is not a number", NUMBERS),
    "a superscript": ("2 9\u00b2", "item '9\u00b2' is not a number", NUMBERS),
    "no text": (b"2 9 \xe9", "item '\\udce9' is not a number", NUMBERS),
    "a byte of nothing": (b"2 9 \x00", "item '\\x00' is not a number", NUMBERS),
    "a long word": ("2 " + "x" * 50, f"item '{'x' * 37}...' is not a number", NUMBERS),
}


def with_line(good: str, line: str | bytes) -> bytes:
    """The text with its second line replaced."""
    first, _, *rest = good.encode().split(b"\n")
    return b"\n".join([first, line if isinstance(line, bytes) else line.encode(), *rest])


@pytest.mark.parametrize(("line", "what", "rule"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_named_by_the_file_it_stands_in(
    line, what: str, rule: str, two_files, refused
) -> None:
    folder = two_files(with_line(TRAIN, line), TEST)
    assert refused(folder) == f"{folder / pinterest.TRAIN}:2: {what}; {rule}. {REMEDY}"
    folder = two_files(TRAIN, with_line(TEST, line))
    assert refused(folder) == f"{folder / pinterest.TEST}:2: {what}; {rule}. {REMEDY}"


@pytest.mark.parametrize(("line", "what", "rule"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_can_be_skipped_whole(line, what: str, rule: str, two_files) -> None:
    """User 2 occurs only on the second line of the second file."""
    data = read(two_files(TRAIN, with_line(TEST, line)), ReadOptions(skip_bad_rows=True))
    assert rows_of(data) == [row for row in ROWS if row[0] != "2"]
    assert data.notes[0] == f"1 bad row skipped: {rule}"


def test_bad_lines_of_both_files_are_counted_by_rule(two_files) -> None:
    data = read(two_files("0 1\n5\n6\nx 1\n", "0 2\n7\ny 1\n"), ReadOptions(skip_bad_rows=True))
    assert rows_of(data) == [("0", "1"), ("0", "2")]
    assert data.notes == (f"3 bad rows skipped: {SOME}", f"2 bad rows skipped: {NUMBERS}")


def test_lines_are_counted_past_the_first_block_and_past_blank_ones(
    two_files, refused, monkeypatch
) -> None:
    monkeypatch.setattr(pinterest, "BLOCK", 2)
    assert rows_of(read(two_files())) == ROWS
    folder = two_files("0 1\n\n\n0 2\n0 x\n0 y\n")
    assert refused(folder).startswith(f"{folder / pinterest.TRAIN}:5: item 'x' is not a number")


def test_in_a_zip_the_file_inside_is_named(write, refused) -> None:
    path = write("pins.zip", zipped(train_txt=TRAIN, test_txt="0 1\n0 x\n"))
    assert (
        refused(path) == f"{path}/{pinterest.TEST}:2: item 'x' is not a number; {NUMBERS}. {REMEDY}"
    )


def test_a_repeated_pair_can_be_refused_and_is_named_within_and_across_files(
    two_files, refused
) -> None:
    folder = two_files("1 5 6\n2 5\n2 6 5\n", "1 7\n")
    assert refused(folder, duplicates="error").startswith(
        f"{folder / pinterest.TRAIN}:3: user '2' and item '5' are already on line 2; "
        "expected distinct pairs."
    )
    folder = two_files("1 5 6\n", "1 7\n1 7\n")
    assert refused(folder, duplicates="error").startswith(
        f"{folder / pinterest.TEST}:2: user '1' and item '7' are already"
    )
    folder = two_files("1 5\n2 8\n", "3 8\n\n2 9 8\n")
    assert refused(folder, duplicates="error") == (
        f"{folder / pinterest.TEST}:3: user '2' and item '8' are already in "
        f"{folder / pinterest.TRAIN}:2; "
        "expected distinct pairs. Remove one or set duplicates=newest."
    )
    assert rows_of(read(two_files("1 5\n", "1 6\n"), ReadOptions(duplicates="error"))) == [
        ("1", "5"),
        ("1", "6"),
    ]


@pytest.mark.parametrize("name", [pinterest.TRAIN, pinterest.TEST])
def test_an_empty_file_is_named(name: str, two_files, refused) -> None:
    folder = two_files()
    for nothing in ("", "\n \n"):
        (folder / name).write_text(nothing)
        assert refused(folder).startswith(
            f"{folder / name}: contains no interactions; expected at least one row"
        )
    (folder / name).write_text("1\nx 2\n")
    assert refused(folder, skip_bad_rows=True).startswith(f"{folder / name}: all 2 rows were bad;")


def test_a_missing_file_is_named(two_files, refused, monkeypatch) -> None:
    folder = two_files()
    (folder / pinterest.TEST).unlink()
    assert refused(folder).startswith(f"{folder}: no file '{pinterest.TEST}' in it.")
    monkeypatch.setenv("COTERIE_DATA", str(folder.parent))
    with pytest.raises(DataError, match=r"pinterest: no file 'test\.txt' in it"):
        load("pinterest")


@pytest.mark.parametrize("name", [pinterest.TRAIN, pinterest.TEST])
@pytest.mark.parametrize("damage", ["cut", "flipped", "no gzip"])
def test_a_damaged_gzip_is_named(name: str, damage: str, two_files, refused) -> None:
    folder = two_files()
    (folder / name).unlink()
    good = gzip.compress(
        "".join(f"{user} {user + 1} {user * 7}\n" for user in range(2_000)).encode()
    )
    middle = len(good) // 2
    bad = {
        "cut": good[:middle],
        "flipped": good[:middle]
        + bytes(byte ^ 0xFF for byte in good[middle : middle + 8])
        + good[middle + 8 :],
        "no gzip": TRAIN.encode(),
    }
    (folder / f"{name}.gz").write_bytes(bad[damage])
    assert refused(folder).startswith(f"{folder / name}.gz: is damaged or cut short (")


def test_there_are_no_columns_to_name(two_files, refused) -> None:
    assert "there is no column 'who' for user_id" in refused(
        two_files(), columns={"user_id": "who"}
    )


# ---- other files named train.txt

TABLE = "user_id,item_id\n1,5\n2,6\n"


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_a_table_that_is_called_so_is_read_as_one_and_without_its_neighbour(
    name: str, write
) -> None:
    """Reading another training file must not read the test file next to it."""
    write("test.txt", "user_id,item_id\n1,7\n")
    path = write(name, gzip.compress(TABLE.encode()) if name.endswith(".gz") else TABLE)
    assert rows_of(read(path)) == [("1", "5"), ("2", "6")]
    assert rows_of(read(path.parent / "test.txt")) == [("1", "7")]


def test_a_table_that_is_called_so_is_read_out_of_its_zip(write, refused) -> None:
    assert rows_of(read(write("one.zip", zipped(train_txt=TABLE)))) == [("1", "5"), ("2", "6")]
    assert "contains 2 files" in refused(write("two.zip", zipped(train_txt=TABLE, test_txt=TABLE)))


def test_an_empty_file_that_is_called_so_is_no_dataset(write, refused) -> None:
    path = write("train.txt", "")
    assert refused(path).startswith(f"{path}: is empty; expected a header")


def test_a_folder_of_tables_is_refused(two_files, refused) -> None:
    folder = two_files(TABLE, TABLE)
    assert refused(folder).startswith(
        f"{folder / pinterest.TRAIN}:1: user 'user_id,item_id' has no items"
    )


def test_one_of_the_two_files_is_not_taken_for_both(two_files, refused) -> None:
    folder = two_files()
    message = refused(folder / pinterest.TRAIN)
    assert message.startswith(
        f"{folder / pinterest.TRAIN}: is one of two files that are read together; expected"
    )
    assert message.endswith(f"Name the folder: {folder}")


def test_a_zip_with_one_of_the_two_says_which_is_missing(write, refused) -> None:
    path = write("half.zip", zipped(train_txt=TRAIN))
    assert refused(path).startswith(f"{path}: no file '{pinterest.TEST}' in it.")


def test_a_folder_that_is_another_dataset_stays_that(two_files) -> None:
    folder = two_files()
    (folder / "u.data").write_text("1\t2\t3\t4\n")
    assert rows_of(read(folder)) == [("1", "2")]


# ---- against a simple loop

words = st.one_of(st.integers(0, 12).map(str), st.sampled_from(["x", "-1", "1.0"]))
lines = st.lists(st.lists(words, max_size=6), max_size=9)


@settings(deadline=None, max_examples=80)
@given(lines, lines, st.integers(1, 5))
def test_any_two_files_read_as_an_obvious_loop_says(
    tmp_path_factory, train, test, block: int
) -> None:
    folder = tmp_path_factory.mktemp("pinterest")
    wanted = set()
    bad = 0
    for name, texts in (
        (pinterest.TRAIN, [["0", "0"], *train]),
        (pinterest.TEST, [["0", "1"], *test]),
    ):
        (folder / name).write_text("\n".join(" ".join(cells) for cells in texts))
        for cells in texts:
            if len(cells) > 1 and all(cell.isdigit() for cell in cells):
                wanted |= {(int(cells[0]), int(item)) for item in cells[1:]}
            elif cells:
                bad += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinterest, "BLOCK", block)
        data = read(folder, ReadOptions(skip_bad_rows=True))
    assert [(int(u), int(i)) for u, i in rows_of(data)] == sorted(wanted)
    assert np.array_equal(
        np.bincount(data.users), [sum(u == int(v) for u, _ in wanted) for v in data.user_ids]
    )
    assert sum(int(note.split()[0]) for note in data.notes if "bad row" in note) == bad
