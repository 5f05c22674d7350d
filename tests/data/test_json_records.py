"""JSON lines and lists of objects read as csv files do."""

from __future__ import annotations

import gzip
import json

import pytest

from coterie.data.interactions import Interactions
from coterie.data.json_records import AN_OBJECT
from coterie.data.options import ReadOptions
from coterie.data.reading import read

ROWS = [
    {"reviewerID": "ann", "asin": 9007199254740993, "overall": 4.5, "date": "2020-01-01"},
    {"reviewerID": "bob", "asin": 9007199254740992, "overall": 3, "date": "2020-01-02", "up": [1]},
]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def rows_of(data: Interactions) -> list[tuple[object, ...]]:
    return [tuple(row) for row in data.to_frame().astype(object).to_numpy().tolist()]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", LINES),
        ("a.ndjson", LINES.replace("\n", "\r\n\r\n")),
        ("a.json", LINES),
        ("a.json", json.dumps(ROWS, indent=1)),
        ("a.jsonl.gz", gzip.compress(LINES.encode())),
    ],
    ids=["lines", "blank lines", "lines named json", "list", "packed"],
)
def test_objects_are_rows(name: str, content: str | bytes, write) -> None:
    data = read(write(name, content))
    assert rows_of(data) == [
        ("ann", 9007199254740993, 4.5, 1_577_836_800),
        ("bob", 9007199254740992, 3.0, 1_577_923_200),
    ]
    assert data.reading == (
        "2 rows read",
        "columns: user_id is 'reviewerID' (guessed), item_id is 'asin' (guessed), "
        "rating is 'overall' (guessed), timestamp is 'date' (guessed)",
        "columns not used: 'up'",
        "times: 'date' has ISO 8601, as UTC where no time zone is given",
    )


BAD_LINES = {
    "no JSON": ('{"user_id": 3,', f"'{{\"user_id\": 3,' is not JSON; {AN_OBJECT}"),
    "no object": ("[3]", f"'[3]' is not an object; {AN_OBJECT}"),
    "no item": ('{"user_id": 3}', "column 'item_id' is nan; expected an id"),
    "null": ('{"user_id": null, "item_id": 2}', "column 'user_id' is None; expected an id"),
    "text in a rating": (
        '{"user_id": 3, "item_id": 2, "rating": "x"}',
        "column 'rating' is 'x'; expected a number",
    ),
    "a list as a rating": (
        '{"user_id": 3, "item_id": 2, "rating": [1]}',
        "column 'rating' is '[1]'; expected a number",
    ),
    "half a character": (
        '{"user_id": "\\ud800", "item_id": 2}',
        "the object has characters that are no text; expected UTF-8 text",
    ),
    "not UTF-8": (
        b'{"user_id": "\xff", "item_id": 2}',
        "the object has characters that are no text; expected UTF-8 text",
    ),
}


@pytest.mark.parametrize(("line", "why"), BAD_LINES.values(), ids=BAD_LINES)
def test_a_bad_line_is_named_and_can_be_skipped(
    line: str | bytes, why: str, write, refused
) -> None:
    bad = line.encode() if isinstance(line, str) else line
    good = b'{"user_id": 1, "item_id": 2, "rating": 3}\n'
    path = write("a.jsonl", good + bad + b"\n")
    assert refused(path) == f"{path}:2: {why}. Fix the row or pass --skip-bad-rows."
    data = read(path, ReadOptions(skip_bad_rows=True))
    assert rows_of(data) == [(1, 2, 3.0)]
    assert data.reading[0] == "2 rows read"
    assert data.notes == (f"1 bad row skipped: {why.split('; ')[1]} (line 2)",)


def test_files_without_objects_are_refused(write, refused) -> None:
    assert "contains no interactions" in refused(write("a.jsonl", "\n"))
    assert "contains no interactions" in refused(write("a.json", "[]"))
    assert "is not valid JSON (" in refused(write("a.json", '[{"user_id": 1}'))
    nested = write("a.json", json.dumps({"reviews": ROWS}, indent=1))
    assert refused(nested).startswith(f"{nested}:1: '{{' is not JSON; expected one object per line")
    deep = '{"user_id": ' + "[" * 100_000
    assert "is not JSON" in refused(write("a.jsonl", deep))
    assert "is not valid JSON" in refused(write("a.json", "[" + deep))


def test_columns_of_json_can_be_named(write, refused) -> None:
    path = write("a.jsonl", '{"who": {"$oid": "5f"}, "what": "x"}\n')
    assert refused(path) == (
        f"{path}: no column was recognised as user_id; there are 'who', 'what'. "
        "Pass --columns user_id=NAME."
    )
    data = read(path, ReadOptions(columns={"user_id": "who", "item_id": "what"}))
    assert rows_of(data) == [('{"$oid": "5f"}', "x")]
