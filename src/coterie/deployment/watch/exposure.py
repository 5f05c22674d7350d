"""Exposure of items, from the shared model alone.

A server of most algorithms holds item rows and no user rows. Users are near to the items that they
like, so the longest item rows stand for users: they are the probes. The exposure of an item is the
mean over the probes of 1 / its rank among all items: 1 if all lists begin with it, 0.1 at the tenth
place. Ranks beyond RANKED are not computed, and count as twice that. docs/poisoning.md has how well
this follows what users see, and what else was tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from coterie.core.records import Record
from coterie.federated.federation import AnyFederation, AnyWorld
from coterie.types import Doubles, Floats

PROBES = 25
RANKED = 200
ROWS = "item_rows"
ROWS_OF_STATES = {ROWS, "global_rows"}
"""What states call the rows that a model's item rows are made of."""


class ItemVectors(NamedTuple):
    """Item rows whose products, with the biases, are scores."""

    rows: Floats  # (items, d)
    bias: Floats  # (items,)


def item_tables(federation: AnyFederation, world: AnyWorld, state: Record) -> list[ItemVectors]:
    """The item rows of a state: several where groups of users have their own, none without rows.

    Without rows in the state there may be no cheap model to look at: EASE would be solved here.
    """
    if not ROWS_OF_STATES & state.shared_arrays().keys():
        return []
    arrays = federation.model(world, state).shared_arrays()
    rows = arrays[ROWS].astype(np.float32)
    if "output" in arrays:
        # GMF's output layer weighs the products, and users are near to the weighted rows.
        rows = rows * arrays["output"][..., None, :]
    tables = rows if rows.ndim == 3 else rows[None]
    bias = arrays.get("item_bias", np.zeros(tables.shape[1], np.float32))
    return [ItemVectors(table, bias) for table in tables]


def exposure(table: ItemVectors) -> Doubles:
    """(items,) the exposure of each item."""
    lengths = np.einsum("ij,ij->i", table.rows, table.rows)
    n_items = len(lengths)
    n = min(PROBES, n_items)
    probes = np.argpartition(-lengths, n - 1)[:n]
    scores = table.rows[probes] @ table.rows.T + table.bias  # (probes, items)
    scores[np.arange(n), probes] = -np.inf  # an item is near to itself, whatever users like
    ranked = min(RANKED, n_items)
    best = np.argpartition(-scores, ranked - 1, axis=1)[:, :ranked]
    order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
    best_first = np.take_along_axis(best, order, axis=1)
    beyond = 1 / (2 * RANKED)
    gain = np.tile(1 / np.arange(1, ranked + 1) - beyond, n)
    shares: Doubles = np.bincount(best_first.ravel(), gain, n_items) / n + beyond
    return shares


def mean_exposure(tables: list[ItemVectors]) -> Doubles:
    """The same, over the rows of all groups of users."""
    mean: Doubles = np.mean([exposure(table) for table in tables], axis=0)
    return mean
