"""Files in which people say what they want to keep for themselves."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from coterie.data.interactions import Interactions
from coterie.errors import DataError
from coterie.progress import Watch
from coterie.protect.rates import Disclosing
from coterie.types import Bools, Doubles, Floats, Ids, Longs, Rows, Training, Wishes


def with_wishes(training: Training, settings: Disclosing, train: Interactions, watch: Watch) -> Training:
    """The training data with what the files of the settings say about its people."""
    if settings.disclosure_file is None and settings.private_items is None:
        return training
    since, rates = Rows(np.zeros(training.n_users + 1, np.int64), np.empty(0, np.int32)), np.empty(0, np.float32)
    if settings.disclosure_file is not None:
        since, rates = _said(Path(settings.disclosure_file), train.user_ids, watch)
    hidden = np.zeros(len(training), bool)
    if settings.private_items is not None:
        hidden = _hidden(Path(settings.private_items), training, train, watch)
    return replace(training, wishes=Wishes(since, rates, hidden))


def _said(path: Path, user_ids: Ids, watch: Watch) -> tuple[Rows, Floats]:
    table = _table(path, ("user_id", "disclosure"), "user_id, disclosure and, if rates change, epoch")
    rates = table.numbers("disclosure", "a number from 0 to 1", lambda v: (v >= 0) & (v <= 1))
    epochs = np.ones(len(rates))
    if "epoch" in table.columns:
        epochs = table.numbers("epoch", "a whole number from 1", lambda v: (v >= 1) & (v == np.floor(v)) & (v < 2**31))
    users = _known(table, "user_id", user_ids, watch)
    order = np.lexsort((epochs, users))[np.count_nonzero(users < 0) :]
    users, since = users[order], epochs[order].astype(np.int32)
    if (twice := np.flatnonzero((np.diff(users) == 0) & (np.diff(since) == 0))).size:
        row = int(order[twice[0] + 1])
        raise DataError(
            f"{path}: line {table.lines[row]} names user {table.columns['user_id'][row]} again for epoch {since[twice[0]]}; expected one rate a user and epoch. Remove one."
        )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=len(user_ids)))]).astype(np.int64)
    return Rows(offsets, since), rates[order].astype(np.float32)


def _hidden(path: Path, training: Training, train: Interactions, watch: Watch) -> Bools:
    table = _table(path, ("user_id", "item_id"), "user_id and item_id")
    users, items = _known(table, "user_id", train.user_ids, watch), _known(table, "item_id", train.item_ids, watch)
    there = (users >= 0) & (items >= 0)
    private = np.unique(users[there] * training.n_items + items[there])
    hidden = np.isin(training.users.astype(np.int64) * training.n_items + training.positives.items, private)
    if (idle := len(private) - int(hidden.sum())) > 0:
        watch.say(f"{path}: {idle:,} of {len(private):,} pairs are in nobody's training data and change nothing")
    return hidden


@dataclass(frozen=True, slots=True)
class Texts:
    """A small file as columns of texts, each with the line it stood on."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]

    def numbers(self, column: str, rule: str, fits: Callable[[Doubles], Bools]) -> Doubles:
        import pandas as pd

        values = pd.to_numeric(pd.Series(self.columns[column], dtype=object), errors="coerce").to_numpy(np.float64)
        with np.errstate(invalid="ignore"):
            bad = np.flatnonzero(~fits(values))
        if bad.size:
            where, what = self.lines[bad[0]], self.columns[column][bad[0]]
            raise DataError(f"{self.path}: line {where}, column {column!r} is {what!r}; expected {rule}. Change it.")
        return values


def _table(path: Path, needed: tuple[str, ...], expected: str) -> Texts:
    rows = [(number, [cell.strip() for cell in cells]) for number, cells in _rows(path) if any(map(str.strip, cells))]
    if not rows:
        raise DataError(f"{path}: is empty; expected a header and rows of {expected}. Fill it.")
    (_, names), rest = rows[0], rows[1:]
    if missing := [name for name in needed if name not in names]:
        raise DataError(
            f"{path}: has the header {', '.join(names)}; expected {expected}, separated by commas or tabs. Add {missing[0]}."
        )
    if not rest:
        raise DataError(f"{path}: has a header and no rows; expected {expected} of at least one user. Fill it.")
    for number, cells in rest:
        if len(cells) != len(names):
            raise DataError(
                f"{path}: line {number} has {len(cells)} cells; expected {len(names)} as in the header. Fix it."
            )
    columns = {name: [cells[n] for _, cells in rest] for n, name in enumerate(names)}
    return Texts(path, columns, [number for number, _ in rest])


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells); tabs separate where the header has one."""
    if not path.exists():
        raise DataError(f"{path}: does not exist. Check the path.")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            tabs = "\t" in file.readline()
            file.seek(0)
            reader = csv.reader(file, delimiter="\t" if tabs else ",")
            for cells in reader:
                yield reader.line_num, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read ({error}). Expected a CSV or TSV file of UTF-8 text.") from None


def _known(table: Texts, column: str, ids: Ids, watch: Watch) -> Longs:
    """The numbers of ids; -1 of those that are not in the data, which is said once."""
    import pandas as pd

    named = table.columns[column]
    places: Longs = pd.Index(ids.astype(str)).get_indexer(pd.Index(named, dtype=object)).astype(np.int64)
    strange = np.flatnonzero(places < 0)
    if len(strange) == len(places):
        raise DataError(
            f"{table.path}: nothing in column {column!r} is in the data (first: {named[0]}). Check the ids."
        )
    if strange.size:
        watch.say(
            f"{table.path}: {strange.size:,} of {len(places):,} in column {column!r} are not in the data, such as {named[strange[0]]}"
        )
    return places
