"""Candidates: the items a test item is ranked against, sampled once from the run's seed."""

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
    """One row per tested user: the relevant items, then the negatives, then -1 as padding."""

    users: Ints  # (tested,)
    items: Ints  # (tested, candidates)
    relevant: Longs  # (tested,) number of leading items that are relevant

    def refuse_other_shape(self) -> None:
        """Refuse arrays from a file that do not belong together."""
        n = len(self.users)
        shapes = (self.users.shape, self.items.shape[:1], self.relevant.shape)
        if set(shapes) != {(n,)} or self.items.ndim != 2:
            raise ValueError(f"the arrays have shapes {shapes}; expected {n} rows each")
        if any(array.dtype.kind != "i" for array in (self.users, self.items, self.relevant)):
            raise ValueError("the arrays are not of whole numbers")
        if (self.relevant < 0).any() or (self.relevant > self.items.shape[1]).any():
            raise ValueError("a user has more relevant items than candidates")

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
    """Sample `n_negatives` distinct items per user, or per held-out item, that the user never had.

    A user with fewer such items gets all of them. Every user and every part (test, validation) has
    its own random stream.
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
    """Read NCF's published test pairs and negatives: lines `(user,item)<tab>negative<tab>...`.

    The file numbers items by first appearance in the original data and users by their ids. A few
    published negatives are items that the user rated (156 of 597,960 on ML-1M). They are not
    removed, so that figures stay comparable with published ones.
    """
    item_index = data.item_order
    with open_text(path) as lines:
        rows = [
            _published_row(path, n, line, data.n_users, len(item_index))
            for n, line in enumerate(lines, 1)
        ]
    if not rows:
        raise DataError(
            f"{path}: is empty; expected a test pair and its negatives on every line. "
            "Fetch it again."
        )
    line_of: dict[int, int] = {}
    for n, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}:{n}: has {len(row) - 2} negatives; "
                f"expected {len(rows[0]) - 2} as on line 1. Fetch it again."
            )
        if row[0] in line_of:
            raise DataError(
                f"{path}:{n}: user {row[0]} is already on line {line_of[row[0]]}; "
                "expected one line per user. Fetch it again."
            )
        line_of[row[0]] = n
    table = np.array(rows, np.int64)
    candidates = Candidates(
        users=table[:, 0].astype(np.int32),
        items=item_index[table[:, 1:]],
        relevant=np.ones(len(table), np.int64),
    )
    return candidates.by_user()


def _published_row(path: Path, n: int, line: str, n_users: int, n_items: int) -> list[int]:
    match = re.fullmatch(r"\((\d+),(\d+)\)((?:\t\d+)+)\s*", line)
    if not match:
        raise DataError(
            f"{path}:{n}: is {line[:40]!r}; expected '(user,item)' and tab-separated negatives. "
            "Fetch it again."
        )
    row = [int(match[1]), int(match[2]), *map(int, match[3].split())]
    if row[0] >= n_users or max(row[1:]) >= n_items:
        raise DataError(
            f"{path}:{n}: has user {row[0]} and item {max(row[1:])}; "
            f"expected users below {n_users} and items below {n_items}. Use ml-1m unfiltered."
        )
    return row
