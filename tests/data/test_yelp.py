"""Yelp's two parallel files: contents, and every way in which they can disagree."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data import yelp
from coterie.data.datasets import load
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.reading import read
from coterie.errors import FetchError

ITEMS = "1 10 11 10\n2 9\n10 11 9\n"
TIMES = "1 100 200 300\n2 50\n10 70 60\n"
# User 1 visited item 10 twice, and the newer visit is kept; ids are in numeric order.
ROWS = [("1", "11", 200), ("1", "10", 300), ("2", "9", 50), ("10", "9", 60), ("10", "11", 70)]
ALIKE = "expected the same user in both files, with as many times as items"
REMEDY = "Fix the row or pass --skip-bad-rows."


def rows_of(data: Interactions) -> list[tuple[str, str, int]]:
    return list(
        zip(data.user_ids[data.users], data.item_ids[data.items], data.times.tolist(), strict=True)
    )


@pytest.fixture
def parallel(write) -> Callable[..., Path]:
    """`parallel(items, times)` writes both files and returns their folder."""

    def make(items: str | bytes = ITEMS, times: str | bytes = TIMES) -> Path:
        write(f"yelp/{yelp.TIMES}", times)
        return write(f"yelp/{yelp.ITEMS}", items).parent

    return make


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"Yelp-A/{yelp.TIMES}", TIMES)
        archive.writestr(f"Yelp-A/{yelp.ITEMS}.gz", gzip.compress(ITEMS.encode()))
    return buffer.getvalue()


# ---- contents


def test_a_row_is_a_user_with_an_item_and_the_time_at_the_same_place(parallel) -> None:
    data = read(parallel())
    assert rows_of(data) == ROWS
    assert data.notes == ("1 repeated user-item pairs merged, the newest of each kept",)
    assert data.ratings is None
    assert rows_of(read(parallel(), ReadOptions(duplicates="oldest")))[:2] == [
        ("1", "10", 100),
        ("1", "11", 200),
    ]


@pytest.mark.parametrize("packed", [(False, True), (True, False), (True, True)], ids=str)
def test_either_file_may_be_gzipped(packed: tuple[bool, bool], write) -> None:
    for name, text, squeeze in zip((yelp.ITEMS, yelp.TIMES), (ITEMS, TIMES), packed, strict=True):
        path = write(
            f"{name}.gz" if squeeze else name, gzip.compress(text.encode()) if squeeze else text
        )
    assert rows_of(read(path.parent)) == ROWS


def test_both_may_lie_in_a_zip(write) -> None:
    assert rows_of(read(write("anything.zip", zipped()))) == ROWS


def test_naming_the_file_of_items_is_enough(parallel) -> None:
    assert rows_of(read(parallel() / yelp.ITEMS)) == ROWS


@pytest.mark.parametrize(
    ("items", "times"),
    [
        (ITEMS.replace("\n", "\r\n"), TIMES),
        (ITEMS.replace(" ", "\t"), TIMES.replace(" ", "  ")),
        (ITEMS.rstrip("\n"), TIMES + "\n \n"),
        ("\n" + ITEMS, "\n" + TIMES),
        ("\ufeff" + ITEMS, TIMES),
    ],
    ids=[
        "line ends",
        "spaces",
        "blank lines at the end",
        "a blank line in both",
        "a byte order mark",
    ],
)
def test_what_does_not_matter(items: str, times: str, parallel) -> None:
    assert rows_of(read(parallel(items, times))) == ROWS


def test_by_name_users_with_fewer_than_five_items_are_left_out(parallel, monkeypatch) -> None:
    folder = parallel("a 1 2 3 4 5\nb 1 2 3 4 4\n", "a 5 4 3 2 1\nb 1 2 3 4 5\n")
    monkeypatch.setenv("COTERIE_DATA", str(folder.parent))
    data = load("yelp")
    assert (data.name, data.user_ids.tolist(), len(data)) == ("yelp", ["a"], 5)


def test_a_missing_dataset_is_an_error_that_names_its_files(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    with pytest.raises(FetchError) as caught:
        load("yelp")
    for part in (str(tmp_path / "yelp"), yelp.ITEMS, yelp.TIMES, "Dang et al. 2023"):
        assert part in str(caught.value)


# ---- disagreements

DISAGREEMENTS = {
    "fewer times": ("2 9 8", "2 50", yelp.TIMES, "user '2' has 1 times for 2 items", ALIKE),
    "more times": ("2 9", "2 50 60", yelp.TIMES, "user '2' has 2 times for 1 items", ALIKE),
    "another user": (
        "2 9",
        "3 50",
        yelp.TIMES,
        f"user '3' is on the line where {yelp.ITEMS} has user '2'",
        ALIKE,
    ),
    "no times": ("2 9", "", yelp.TIMES, "no line for user '2'", ALIKE),
    "no items": ("", "2 50", yelp.ITEMS, "no line for user '2'", ALIKE),
    "nothing but a user": (
        "2",
        "2",
        yelp.ITEMS,
        "user '2' has no items",
        "expected a user and at least one item",
    ),
    "text for a time": (
        "2 9 8",
        "2 50 noon",
        yelp.TIMES,
        "column 'timestamp' is 'noon'",
        "expected seconds since 1970 (not milliseconds) or ISO 8601, before 2100",
    ),
    "milliseconds": (
        "2 9",
        "2 1546456309000",
        yelp.TIMES,
        "column 'timestamp' is '1546456309000'",
        "expected seconds since 1970 (not milliseconds) or ISO 8601, before 2100",
    ),
    "an item in Latin-1": (
        "2 caf\xe9".encode("latin-1"),
        "2 50",
        yelp.ITEMS,
        "column 'item_id' is 'caf\\udce9'",
        "expected UTF-8 text",
    ),
    "a long name": (
        "x" * 50 + " 1",
        "2 50",
        yelp.TIMES,
        f"user '2' is on the line where {yelp.ITEMS} has user '{'x' * 37}...'",
        ALIKE,
    ),
}


def with_line(good: str, line: str | bytes) -> bytes:
    """The text with the second of its three lines replaced."""
    first, _, third, _ = good.encode().split(b"\n")
    return b"\n".join([first, line if isinstance(line, bytes) else line.encode(), third, b""])


@pytest.mark.parametrize(
    ("items", "times", "file", "what", "rule"), DISAGREEMENTS.values(), ids=DISAGREEMENTS
)
def test_a_bad_line_is_named_by_the_file_it_stands_in(
    items, times, file, what, rule, parallel, refused
) -> None:
    folder = parallel(with_line(ITEMS, items), with_line(TIMES, times))
    assert refused(folder) == f"{folder / file}:2: {what}; {rule}. {REMEDY}"


@pytest.mark.parametrize(
    ("items", "times", "file", "what", "rule"), DISAGREEMENTS.values(), ids=DISAGREEMENTS
)
def test_a_bad_line_can_be_skipped_whole(items, times, file, what, rule, parallel) -> None:
    folder = parallel(with_line(ITEMS, items), with_line(TIMES, times))
    data = read(folder, ReadOptions(skip_bad_rows=True))
    assert rows_of(data) == [row for row in ROWS if row[0] != "2"]
    assert data.notes[0] == f"1 bad row skipped: {rule} (line 2)"


def test_the_first_bad_line_is_named_whatever_is_wrong_with_it(parallel, refused) -> None:
    items = "1 5\n2 5\n3 5\n4 5\n"
    times = "1 9\n2 {}\n3 {}\n4 9\n"
    assert f"{yelp.TIMES}:2: column 'timestamp' is 'x'" in refused(
        parallel(items, times.format("x", "1 2"))
    )
    assert f"{yelp.TIMES}:2: user '2' has 2 times" in refused(
        parallel(items, times.format("1 2", "x"))
    )


def test_a_shorter_file_is_named_where_it_ends(parallel, refused) -> None:
    short = parallel(ITEMS, TIMES[: TIMES.index("10 70")])
    assert refused(short).startswith(f"{short / yelp.TIMES}:3: no line for user '10'")
    short = parallel(ITEMS[: ITEMS.index("10 11 9")], TIMES)
    assert refused(short).startswith(f"{short / yelp.ITEMS}:3: no line for user '10'")


def test_lines_are_counted_past_the_first_block(parallel, refused, monkeypatch) -> None:
    monkeypatch.setattr(yelp, "BLOCK", 2)
    assert rows_of(read(parallel())) == ROWS
    assert f"{yelp.TIMES}:3: user '10' has 1 times for 2 items" in refused(
        parallel(ITEMS, TIMES[:-4])
    )


def test_a_repeated_pair_can_be_refused(parallel, refused) -> None:
    folder = parallel()
    message = refused(folder, duplicates="error")
    assert message.startswith(
        f"{folder / yelp.ITEMS}:1: user '1' and item '10' are already on line 1"
    )


def test_a_missing_or_empty_file_is_named(parallel, refused) -> None:
    folder = parallel("", "")
    assert refused(folder).startswith(
        f"{folder / yelp.ITEMS}: contains no interactions; expected at least one row"
    )
    (folder / yelp.TIMES).unlink()
    assert refused(folder).startswith(f"{folder}: no file '{yelp.TIMES}' in it.")


def test_there_are_no_columns_to_name(parallel, refused) -> None:
    assert "there is no column 'who' for user_id" in refused(parallel(), columns={"user_id": "who"})


# ---- against a simple loop

cells = st.lists(st.integers(0, 30), max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(cells, cells, st.booleans()), min_size=1, max_size=12), st.integers(1, 5))
def test_any_two_files_read_as_an_obvious_loop_says(tmp_path_factory, lines, block: int) -> None:
    """Lines of any length, some with another user: equal ones are read, the others counted."""
    folder = tmp_path_factory.mktemp("yelp")
    wanted = {}
    bad = 0
    texts: list[list[str]] = [[], []]
    for user, (items, times, same) in enumerate(lines):
        texts[0].append(" ".join(map(str, [user, *items])))
        texts[1].append(" ".join(map(str, [user if same else user + 1, *times])))
        if not same or len(items) != len(times) or not items:
            bad += 1
            continue
        for item, time in zip(items, times, strict=True):
            wanted[str(user), str(item)] = max(time, wanted.get((str(user), str(item)), 0))
    if not wanted:
        return
    for name, text in zip((yelp.ITEMS, yelp.TIMES), texts, strict=True):
        (folder / name).write_text("\n".join(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yelp, "BLOCK", block)
        data = read(folder, ReadOptions(skip_bad_rows=True))
    assert {(u, i): t for u, i, t in rows_of(data)} == wanted
    assert sum(int(note.split()[0]) for note in data.notes if "bad row" in note) == bad
