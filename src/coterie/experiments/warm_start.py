"""Warm start: training from the weights of an earlier run, with users and items that may be new.

FedFast, Section 5: new users and items are added by continuing to train from existing weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.core.records import Record
from coterie.data.interactions import Interactions, contains
from coterie.errors import ConfigError, LeakError
from coterie.experiments import checkpoint
from coterie.experiments.run_folder import Catalogue, read_catalogue
from coterie.types import Ids, Longs

BY_USER = ("user_rows",)
BY_ITEM = ("item_rows", "item_bias")
WHOLE = ("dense", "output", "bias")


def reuse(folder: Path, now: Catalogue, test: Interactions) -> Callable[[Record | None], Record]:
    """A function that puts the rows of an earlier run into an initial state, matched by id."""
    before = read_catalogue(folder)
    arrays = checkpoint.state_arrays(folder)
    private = checkpoint.private_names(folder)
    _refuse_leak(folder, before, test)
    users = matched(before.user_ids, now.user_ids)
    items = matched(before.item_ids, now.item_ids)

    def put(state: Record | None) -> Record:
        fresh = {} if state is None else state.arrays()
        if state is None or not fresh.keys() & {*BY_USER, *BY_ITEM}:
            raise ConfigError(
                f"start_from={folder}: the algorithm has no user or item rows to start from; "
                "expected one that has them, such as gmf or fedfast. Remove start_from."
            )
        if exposed := sorted(private - set(type(state).private)):
            raise ConfigError(
                f"start_from={folder}: {exposed[0]} is private client state of that run, and this "
                "algorithm would send it to the server; expected an algorithm that leaves it on "
                "the devices. Remove start_from."
            )
        _refuse_many_tables(folder, arrays, fresh)
        _refuse_unlike(folder, arrays, fresh)
        changed = {name: arrays[name] for name in WHOLE if name in fresh}
        for names, (old, new) in ((BY_USER, users), (BY_ITEM, items)):
            for name in names:
                if name in fresh:
                    changed[name] = fresh[name].copy()
                    changed[name][new] = arrays[name][old]
        return replace(state, **changed)

    return put


def _refuse_many_tables(folder: Path, *states: dict[str, np.ndarray]) -> None:
    """A new run forms new clusters, so tables per cluster cannot be assigned."""
    if any(state[name].ndim > 2 for state in states for name in BY_ITEM if name in state):
        raise ConfigError(
            f"start_from={folder}: aggregate=cluster has item rows for every cluster, which a new "
            "run cannot start from; expected one table. Set aggregate=global, or remove start_from."
        )


def matched(before: Ids, now: Ids) -> tuple[Longs, Longs]:
    """Indices of the common ids, in `before` and in `now`."""
    _, old, new = np.intersect1d(
        before.astype(str), now.astype(str), assume_unique=True, return_indices=True
    )
    return old, new


def _refuse_leak(folder: Path, before: Catalogue, test: Interactions) -> None:
    """Test interactions must not be training data of the earlier run."""
    item = np.full(test.n_items, -1, np.int64)
    old, new = matched(before.item_ids, test.item_ids)
    item[new] = old
    user = np.full(test.n_users, -1, np.int64)
    old, new = matched(before.user_ids, test.user_ids)
    user[new] = old
    known = (user[test.users] >= 0) & (item[test.items] >= 0)
    width = np.int64(len(before.item_ids))
    owners = np.repeat(np.arange(len(before.user_ids)), before.seen.counts)
    trained = owners * width + before.seen.items
    tested = user[test.users[known]] * width + item[test.items[known]]
    leaked = contains(trained, tested).sum()
    if leaked:
        raise LeakError(
            f"start_from={folder}: {leaked:,} of {len(test):,} test interactions were training "
            "data of that run; expected none. Test on later interactions, or remove start_from."
        )


def _refuse_unlike(folder: Path, old: dict[str, np.ndarray], fresh: dict[str, np.ndarray]) -> None:
    for name in (*BY_USER, *BY_ITEM, *WHOLE):
        if name in fresh and (name not in old or old[name].shape[1:] != fresh[name].shape[1:]):
            difference = f"{name} has another size" if name in old else f"there is no {name}"
            raise ConfigError(
                f"start_from={folder}: {difference} in that run; expected the same model with the "
                "same embedding_size, layers and moments. Use such a run, or remove start_from."
            )
