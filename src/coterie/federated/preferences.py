"""Files of privacy preferences: users' disclosure rates and private items."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.core.progress import Progress
from coterie.data.small import TextTable, known_ids, small_table
from coterie.data.training_set import PrivacyPreferences, TrainingSet
from coterie.errors import DataError
from coterie.federated.disclosure import Disclosing
from coterie.types import Bools, Doubles, Floats, Ids, Rows


def with_preferences(
    training: TrainingSet, settings: Disclosing, user_ids: Ids, item_ids: Ids, progress: Progress
) -> TrainingSet:
    """The training data of these users with their preferences from the files in the settings."""
    if settings.disclosure_file is None and settings.private_items is None:
        return training
    since = Rows(np.zeros(training.n_users + 1, np.int64), np.empty(0, np.int32))
    rates = np.empty(0, np.float32)
    if settings.disclosure_file is not None:
        since, rates = read_rates(Path(settings.disclosure_file), user_ids, progress)
    hidden = np.zeros(len(training), bool)
    if settings.private_items is not None:
        path = Path(settings.private_items)
        hidden = _read_private_items(path, training, user_ids, item_ids, progress)
    return replace(training, preferences=PrivacyPreferences(since, rates, hidden))


def read_rates(path: Path, user_ids: Ids, progress: Progress) -> tuple[Rows, Floats]:
    """By user, the epochs from which rates apply, and the rates."""
    table = small_table(
        path, ("user_id", "disclosure"), "user_id, disclosure and, if rates change, epoch"
    )
    rates = table.numbers("disclosure", "a number from 0 to 1", lambda v: (v >= 0) & (v <= 1))
    epochs = np.ones(len(rates))
    if "epoch" in table.columns:
        epochs = table.numbers("epoch", "a whole number from 1", _is_epoch)
    users = known_ids(table, "user_id", user_ids, progress)
    # Unknown users are -1 and sort first; they are cut off.
    order = np.lexsort((epochs, users))[np.count_nonzero(users < 0) :]
    users = users[order]
    since = epochs[order].astype(np.int32)
    repeated = np.flatnonzero((np.diff(users) == 0) & (np.diff(since) == 0))
    if repeated.size:
        row = int(order[repeated[0] + 1])
        user = table.columns["user_id"][row]
        raise DataError(
            f"{path}: line {table.lines[row]} names user {user} again for epoch "
            f"{since[repeated[0]]}; expected one rate per user and epoch. Remove one."
        )
    counts = np.bincount(users, minlength=len(user_ids))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Rows(offsets, since), rates[order].astype(np.float32)


def _is_epoch(values: Doubles) -> Bools:
    valid: Bools = (values >= 1) & (values == np.floor(values)) & (values < 2**31)
    return valid


def private_items_table(path: Path) -> TextTable:
    return small_table(path, ("user_id", "item_id"), "user_id and item_id")


def _read_private_items(
    path: Path, training: TrainingSet, user_ids: Ids, item_ids: Ids, progress: Progress
) -> Bools:
    """Which training positives are private."""
    table = private_items_table(path)
    users = known_ids(table, "user_id", user_ids, progress)
    items = known_ids(table, "item_id", item_ids, progress)
    known = (users >= 0) & (items >= 0)
    # One integer per (user, item) pair.
    private = np.unique(users[known] * training.n_items + items[known])
    pairs = training.users.astype(np.int64) * training.n_items + training.positives.items
    hidden = np.isin(pairs, private)
    unused = len(private) - int(hidden.sum())
    if unused > 0:
        progress.log(
            f"{path}: {unused:,} of {len(private):,} pairs are not in the training data and have "
            "no effect"
        )
    return hidden
