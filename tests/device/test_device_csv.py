"""A user's own CSV file, as the page reads it."""

from __future__ import annotations

import csv
import io

import numpy as np
from javascript import answers, needs_node

pytestmark = needs_node
CELLS = ("", "a", "Film 1", "x,y", 'say "hi"', "two\nlines", "semi;colon", " blank ", "ä")
ITEMS = [
    {"id": "1", "title": "Heat"},
    {"id": "2", "title": "Ran"},
    {"id": "7", "title": "1"},
]


def written(rows: list[list[str]], line_end: str) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end).writerows(rows)
    return text.getvalue()


def test_cells_are_those_of_the_csv_module():
    rng = np.random.default_rng(4)
    cases = []
    for _ in range(300):
        n_rows = int(rng.integers(1, 5))
        width = int(rng.integers(2, 5))
        # A separator is taken from the first line, which has names.
        head = [f"name{k}" for k in range(width)]
        body = rng.choice(CELLS, (n_rows, width)).tolist()
        cases.append(([head, *body], str(rng.choice(["\n", "\r\n"]))))
    found = answers({"kind": "csv", "text": written(*case)} for case in cases)
    assert found == [rows for rows, _ in cases]


LIKES = {
    "user_id,item_id,rating\n9,2,5\n9,1,3\n9,2,4\n": ([0, 1], []),
    "heat\nRAN\nAlien\n": ([0, 1], ["Alien"]),
    "\ufefftitle;year\r\nRan;1985\r\n": ([1], []),
    "1\n": ([0], []),  # an id comes before a title of the same text
    "": ([], []),
}


def test_items_are_named_by_id_or_title():
    found = answers({"kind": "likes", "text": text, "items": ITEMS} for text in LIKES)
    assert [(each["found"], each["unknown"]) for each in found] == list(LIKES.values())
