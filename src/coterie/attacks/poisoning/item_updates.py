"""Updates that are changed row by row, within the range that validation accepts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from coterie.algorithms import fedavg, fpl
from coterie.algorithms.local.learner import n_values
from coterie.algorithms.local.settings import Federated
from coterie.attacks.poisoning.contract import AttackView
from coterie.federated.federation import LARGEST_ENTRY, AnyWorld, World
from coterie.types import SCALE, Doubles, Ints, Rows, Updates


def within_range(change: ArrayLike) -> Ints:
    """A change of parameters in fixed point. What is too large becomes the largest valid entry."""
    return limited(np.rint(np.asarray(change, np.float64) * SCALE))


def limited(entries: ArrayLike) -> Ints:
    """Entries in fixed point, limited to the valid range."""
    return np.clip(entries, -LARGEST_ENTRY, LARGEST_ENTRY).astype(np.int32)


def moves_items(view: AttackView) -> bool:
    """Whether the item rows of an update move those of the message: see `Surface`."""
    common = view.message.common
    width = view.honest.item_rows.shape[1]
    if "item_rows" not in common or common["item_rows"].ndim != 2:
        return False
    return bool(width == common["item_rows"].shape[1] + ("item_bias" in common))


def item_table(view: AttackView) -> Doubles:
    """(items, width) the item rows of the message, with the columns of an update's item rows."""
    table = view.message.common["item_rows"].astype(np.float64)
    if view.honest.item_rows.shape[1] > table.shape[1]:
        table = np.column_stack([table, view.message.common["item_bias"]])
    return table


def value_columns(world: AnyWorld, width: int) -> int:
    """How many of the first columns of an item row are values, and not an optimiser's moments."""
    settings = world.settings
    if isinstance(settings, Federated) and settings.moments == "averaged":
        return n_values(width)
    return width


def to_move(view: AttackView, change: Doubles) -> Ints:
    """What every colluder sends so that rows of cold items move by `change`.

    FedAvg averages a row over all clients that send it: colluders make up for the others. ActvAGG
    weighs by the change itself, so that the largest decides. FPL's server adds up changes, times
    the learning rate. FCF's moves by Adam, for which the direction counts.
    """
    values = value_columns(view.world, change.shape[-1])
    change = change.copy()
    change[..., values:] = 0
    settings = view.world.settings
    n = len(view.honest)
    if isinstance(settings, fpl.FPL):
        change /= settings.learning_rate * n
    if isinstance(settings, fedavg.FedAvg):
        change *= 1 + expected_senders(view.world) / n
    return within_range(change)


def expected_senders(world: World[Federated]) -> float:
    """Honest clients of a cohort that draw a cold item as a negative, and so send its row."""
    n_members = int(world.members.sum())
    drawn = world.settings.negatives * world.n_positives / n_members / world.n_items
    return float(fedavg.cohort_size(world) * (1 - np.exp(-drawn)))


def with_rows(updates: Updates, items: Ints, rows: Ints) -> Updates:
    """Every client's update with these rows in place of its own, or in addition to them.

    `rows` is (items, width), the same for all clients, or (clients, items, width).
    """
    n = len(updates)
    width = updates.item_rows.shape[1]
    owner = np.repeat(np.arange(n), np.diff(updates.offsets))
    stays = ~np.isin(updates.items, items)
    added = np.broadcast_to(rows, (n, len(items), width)).reshape(-1, width)
    owners = np.concatenate([owner[stays], np.repeat(np.arange(n), len(items))])
    names = np.concatenate([updates.items[stays], np.tile(items, n)])
    order = np.lexsort((names, owners))
    counts = np.bincount(owners, minlength=n)
    return replace(
        updates,
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        items=names[order].astype(np.int32),
        item_rows=np.concatenate([updates.item_rows[stays], added])[order],
    )


def with_target(histories: Rows, target: int) -> Rows:
    """The histories with the target in each."""
    n = len(histories.offsets) - 1
    users = np.repeat(np.arange(n, dtype=np.int32), histories.counts)
    others = histories.items != target
    return Rows.build(
        np.concatenate([users[others], np.arange(n, dtype=np.int32)]),
        np.concatenate([histories.items[others], np.full(n, target, np.int32)]),
        n,
    )


def promoted(view: AttackView, updates: Updates, goal: Doubles) -> Updates:
    """The updates, with a row of the target in each that moves it to the goal."""
    change = goal - item_table(view)[view.target]
    items = np.array([view.target], np.int32)
    return with_rows(updates, items, to_move(view, change[None, :]))
