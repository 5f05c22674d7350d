"""The items a test item is ranked against: sampled once, seeded, saved with the run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coterie.core import streams
from coterie.core.sampling import many_unseen_items, unseen_items
from coterie.data.files import open_text
from coterie.data.interactions import Interactions
from coterie.errors import DataError
from coterie.types import Ints, Longs, Rows


@dataclass(frozen=True, slots=True)
class Candidates:
    """One row per tested user: first the relevant items, then the others, then -1 as padding."""

    users: Ints  # (tested,)
    items: Ints  # (tested, candidates)
    relevant: Longs  # (tested,) how many leading items are relevant

    def by_user(self) -> Candidates:
        """The rows in the order of the users."""
        order = np.argsort(self.users, kind="stable")
        return Candidates(self.users[order], self.items[order], self.relevant[order])


def sample(
    held: Interactions,
    known: Rows,
    n_negatives: int,
    seed: int,
    part: str = "test",
    for_each_item: bool = False,
) -> Candidates:
    """`n_negatives` distinct items per user, or per held-out item, that the user never touched; all of them where there are fewer.

    Every user and every part (test, validation) has a stream of its own.
    """
    wanted = held.rows
    users = np.flatnonzero(wanted.counts).astype(np.int32)
    keys = streams.keys(seed, f"candidates {part}", last=users)
    counts = wanted.counts_of(users)
    if for_each_item:
        negatives = many_unseen_items(known, users, held.n_items, n_negatives * counts, keys)
    else:
        negatives = unseen_items(known, users, held.n_items, n_negatives, keys)
    positives = np.full((len(users), counts.max(initial=0)), -1, np.int32)
    rows, items = wanted.take(users)
    positives[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = items
    return Candidates(users, _padding_last(np.hstack([positives, negatives])), counts)


def _padding_last(items: Ints) -> Ints:
    order = np.argsort(items < 0, axis=1, kind="stable")
    return np.ascontiguousarray(np.take_along_axis(items, order, axis=1))


def read_published(path: Path, data: Interactions) -> Candidates:
    """NCF's published test pairs and negatives: lines `(user,item)<tab>negative<tab>...`.

    Their numbers count items by first appearance in the original file, and users in the order of their ids. A few of
    their negatives are items that the user rated (156 of 597,960 on ML-1M); they stay, for the figures to compare.
    """
    numbering = data.item_order
    with open_text(path) as lines:
        rows = [
            _published_row(path, n, line, data.n_users, len(numbering))
            for n, line in enumerate(lines, 1)
        ]
    if not rows:
        raise DataError(
            f"{path}: is empty; expected a test pair and its negatives a line. Fetch it again."
        )
    listed: dict[int, int] = {}
    for n, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}:{n}: {len(row) - 2} negatives; expected {len(rows[0]) - 2} as on line 1. Fetch it again."
            )
        if row[0] in listed:
            raise DataError(
                f"{path}:{n}: user {row[0]} stood on line {listed[row[0]]} already; expected one line a user. Fetch it again."
            )
        listed[row[0]] = n
    table = np.array(rows, np.int64)
    return Candidates(
        table[:, 0].astype(np.int32), numbering[table[:, 1:]], np.ones(len(table), np.int64)
    ).by_user()


def _published_row(path: Path, n: int, line: str, n_users: int, n_items: int) -> list[int]:
    match = re.fullmatch(r"\((\d+),(\d+)\)((?:\t\d+)+)\s*", line)
    if not match:
        raise DataError(
            f"{path}:{n}: {line[:40]!r} is not '(user,item)' and tab-separated negatives. Fetch it again."
        )
    row = [int(match[1]), int(match[2]), *map(int, match[3].split())]
    if row[0] >= n_users or max(row[1:]) >= n_items:
        raise DataError(
            f"{path}:{n}: names user {row[0]} or item {max(row[1:])}; the data has {n_users} and {n_items}. Use ml-1m unfiltered."
        )
    return row
