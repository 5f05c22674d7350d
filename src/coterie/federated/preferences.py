"""Files in which people say what they want to keep for themselves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.core.progress import Progress
from coterie.data.interactions import Interactions
from coterie.data.small import known_ids, small_table
from coterie.data.training_set import PrivacyPreferences, TrainingSet
from coterie.errors import DataError
from coterie.federated.disclosure import Disclosing
from coterie.types import Bools, Floats, Ids, Rows


def with_preferences(
    training: TrainingSet, settings: Disclosing, train: Interactions, progress: Progress
) -> TrainingSet:
    """The training data with what the files of the settings say about its people."""
    if settings.disclosure_file is None and settings.private_items is None:
        return training
    since = Rows(np.zeros(training.n_users + 1, np.int64), np.empty(0, np.int32))
    rates = np.empty(0, np.float32)
    if settings.disclosure_file is not None:
        since, rates = _said(Path(settings.disclosure_file), train.user_ids, progress)
    hidden = np.zeros(len(training), bool)
    if settings.private_items is not None:
        hidden = _hidden(Path(settings.private_items), training, train, progress)
    return replace(training, preferences=PrivacyPreferences(since, rates, hidden))


def _said(path: Path, user_ids: Ids, progress: Progress) -> tuple[Rows, Floats]:
    table = small_table(
        path, ("user_id", "disclosure"), "user_id, disclosure and, if rates change, epoch"
    )
    rates = table.numbers("disclosure", "a number from 0 to 1", lambda v: (v >= 0) & (v <= 1))
    epochs = np.ones(len(rates))
    if "epoch" in table.columns:
        epochs = table.numbers(
            "epoch", "a whole number from 1", lambda v: (v >= 1) & (v == np.floor(v)) & (v < 2**31)
        )
    users = known_ids(table, "user_id", user_ids, progress)
    order = np.lexsort((epochs, users))[np.count_nonzero(users < 0) :]
    users = users[order]
    since = epochs[order].astype(np.int32)
    if (twice := np.flatnonzero((np.diff(users) == 0) & (np.diff(since) == 0))).size:
        row = int(order[twice[0] + 1])
        raise DataError(
            f"{path}: line {table.lines[row]} names user {table.columns['user_id'][row]} again for epoch {since[twice[0]]}; expected one rate a user and epoch. Remove one."
        )
    offsets = np.concatenate([[0], np.cumsum(np.bincount(users, minlength=len(user_ids)))]).astype(
        np.int64
    )
    return Rows(offsets, since), rates[order].astype(np.float32)


def _hidden(path: Path, training: TrainingSet, train: Interactions, progress: Progress) -> Bools:
    table = small_table(path, ("user_id", "item_id"), "user_id and item_id")
    users = known_ids(table, "user_id", train.user_ids, progress)
    items = known_ids(table, "item_id", train.item_ids, progress)
    there = (users >= 0) & (items >= 0)
    private = np.unique(users[there] * training.n_items + items[there])
    hidden = np.isin(
        training.users.astype(np.int64) * training.n_items + training.positives.items, private
    )
    if (idle := len(private) - int(hidden.sum())) > 0:
        progress.log(
            f"{path}: {idle:,} of {len(private):,} pairs are in nobody's training data and change nothing"
        )
    return hidden
