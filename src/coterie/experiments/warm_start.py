"""Reused weights: a run that goes on from another one's parameters, with people and items that may be new.

FedFast, Section 5: new users and items enter by training on, from the weights there are.
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
from coterie.experiments.folder import Catalogue, read_catalogue
from coterie.types import Ids, Longs

BY_USER = ("user_rows",)
BY_ITEM = ("item_rows", "item_bias")
WHOLE = ("dense", "output", "bias")


def reuse(folder: Path, now: Catalogue, test: Interactions) -> Callable[[Record | None], Record]:
    """A function that puts the rows of an earlier run into a start state: by id, whatever their numbers are now."""
    before = read_catalogue(folder)
    arrays = checkpoint.state_arrays(folder)
    kept = checkpoint.kept_names(folder)
    _refuse_leak(folder, before, test)
    users = matched(before.user_ids, now.user_ids)
    items = matched(before.item_ids, now.item_ids)

    def put(state: Record | None) -> Record:
        fresh = {} if state is None else state.arrays()
        if state is None or not fresh.keys() & {*BY_USER, *BY_ITEM}:
            raise ConfigError(
                f"start_from={folder}: the algorithm has no rows of users or items to go on from; expected one that has, such as gmf or fedfast. "
                "Leave start_from out."
            )
        if taken := sorted(kept - set(type(state).private)):
            raise ConfigError(
                f"start_from={folder}: {taken[0]} of that run stayed on people's devices, and this algorithm would take them to the server; "
                "expected one that leaves them there. Start afresh."
            )
        _refuse_many_tables(folder, arrays, fresh)
        _refuse_unlike(folder, arrays, fresh)
        changed = {name: arrays[name] for name in WHOLE if name in fresh}
        for names, (there, here) in ((BY_USER, users), (BY_ITEM, items)):
            for name in names:
                if name in fresh:
                    changed[name] = fresh[name].copy()
                    changed[name][here] = arrays[name][there]
        return replace(state, **changed)

    return put


def _refuse_many_tables(folder: Path, *states: dict[str, np.ndarray]) -> None:
    """Clusters are made anew: whose table was whose is lost."""
    if any(state[name].ndim > 2 for state in states for name in BY_ITEM if name in state):
        raise ConfigError(
            f"start_from={folder}: aggregate=cluster keeps item rows for every cluster, which a new run cannot go on from; "
            "expected one table. Set aggregate=global, or start afresh."
        )


def matched(before: Ids, now: Ids) -> tuple[Longs, Longs]:
    """Places of the ids that both have, in the one and in the other."""
    _, there, here = np.intersect1d(
        before.astype(str), now.astype(str), assume_unique=True, return_indices=True
    )
    return there, here


def _refuse_leak(folder: Path, before: Catalogue, test: Interactions) -> None:
    """What is tested now must not be what those weights were trained on."""
    number = np.full(test.n_items, -1, np.int64)
    there, here = matched(before.item_ids, test.item_ids)
    number[here] = there
    user = np.full(test.n_users, -1, np.int64)
    there, here = matched(before.user_ids, test.user_ids)
    user[here] = there
    known = (user[test.users] >= 0) & (number[test.items] >= 0)
    width = np.int64(len(before.item_ids))
    owners = np.repeat(np.arange(len(before.user_ids)), before.seen.counts)
    trained = owners * width + before.seen.items
    leaked = contains(trained, user[test.users[known]] * width + number[test.items[known]]).sum()
    if leaked:
        raise LeakError(
            f"start_from={folder}: {leaked:,} of {len(test):,} test interactions were training data of that run; expected none. "
            "Test on what came later, or start afresh."
        )


def _refuse_unlike(folder: Path, old: dict[str, np.ndarray], fresh: dict[str, np.ndarray]) -> None:
    for name in (*BY_USER, *BY_ITEM, *WHOLE):
        if name in fresh and (name not in old or old[name].shape[1:] != fresh[name].shape[1:]):
            was = (
                f"has {name} of another size"
                if name in old
                else f"has no {name}, so it is a run of another kind"
            )
            raise ConfigError(
                f"start_from={folder}: it {was}; expected the same model with the same embedding_size, layers and moments. Use such a run."
            )
