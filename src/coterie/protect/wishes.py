"""Files in which people say what they want to keep for themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.interactions import Interactions
from coterie.data.reading import read
from coterie.errors import DataError
from coterie.progress import Watch
from coterie.protect.rates import Disclosing
from coterie.types import Bools, Doubles, Floats, Ids, Longs, Rows, Training, Wishes

if TYPE_CHECKING:
    import pandas as pd


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
    frame = _table(path)
    rates = _numbers(path, frame, "disclosure", "a number from 0 to 1", lambda v: (v >= 0) & (v <= 1))
    epochs = np.ones(len(frame))
    if "epoch" in frame:
        epochs = _numbers(
            path, frame, "epoch", "a whole number from 1", lambda v: (v >= 1) & (v == np.floor(v)) & (v < 2**31)
        )
    users = _known(path, "user_id", frame["user_id"].to_numpy(), user_ids, watch)
    order = np.lexsort((epochs, users))[np.count_nonzero(users < 0) :]
    users, since = users[order], epochs[order].astype(np.int32)
    if (twice := np.flatnonzero((np.diff(users) == 0) & (np.diff(since) == 0))).size:
        row = order[twice[0] + 1]
        raise DataError(
            f"{path}: line {row + 2} names user {frame['user_id'][row]} again for epoch {since[twice[0]]}; expected one rate a user and epoch. Remove one."
        )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=len(user_ids)))]).astype(np.int64)
    return Rows(offsets, since), rates[order].astype(np.float32)


def _hidden(path: Path, training: Training, train: Interactions, watch: Watch) -> Bools:
    listed = read(path)
    users = _known(path, "user_id", listed.user_ids, train.user_ids, watch)[listed.users]
    items = _known(path, "item_id", listed.item_ids, train.item_ids, watch)[listed.items]
    there = (users >= 0) & (items >= 0)
    private = users[there].astype(np.int64) * training.n_items + items[there]
    return np.isin(training.users.astype(np.int64) * training.n_items + training.positives.items, private)


def _table(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.exists():
        raise DataError(f"{path}: does not exist. Check the path.")
    try:
        frame = pd.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",", dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: cannot be read ({' '.join(str(error).split())[:120]}). Expected a CSV or TSV file."
        ) from None
    frame.columns = frame.columns.str.strip()
    if missing := [name for name in ("user_id", "disclosure") if name not in frame]:
        raise DataError(
            f"{path}: has columns {', '.join(frame.columns)}; expected user_id, disclosure and, if rates change, epoch. Add {missing[0]}."
        )
    return frame


def _numbers(path: Path, frame: pd.DataFrame, column: str, rule: str, fits: Callable[[Doubles], Bools]) -> Doubles:
    import pandas as pd

    values = pd.to_numeric(frame[column].str.strip(), errors="coerce").to_numpy(np.float64)
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero(~fits(values))
    if bad.size:
        raise DataError(
            f"{path}: line {bad[0] + 2}, column {column!r} is {frame[column][bad[0]]!r}; expected {rule}. Change it."
        )
    return values


def _known(path: Path, column: str, named: Ids, ids: Ids, watch: Watch) -> Longs:
    """The numbers of ids; -1 of those that are not in the data, which is said once."""
    import pandas as pd

    places: Longs = pd.Index(ids.astype(str)).get_indexer(pd.Index(named).astype(str).str.strip())
    strange = np.flatnonzero(places < 0)
    if len(strange) == len(places):
        raise DataError(
            f"{path}: nobody in column {column!r} is in the data (first: {named[0] if len(named) else 'none'}). Check the ids."
        )
    if strange.size:
        watch.say(
            f"{path}: {strange.size:,} of {len(places):,} in column {column!r} are not in the data, such as {named[strange[0]]}"
        )
    return places
