"""Takeover of clusters: colluders whose rows are far from all others are selected more often.

Against FedFast and FedBSO (`coterie.algorithms.fedfast`), which cluster users by rows that clients
send, and select users of every cluster. No paper describes this attack; it follows from FedFast's
Algorithms 2 and 3: a cluster of few users has as many delegates as a large one.

    before the first round   colluders send statistics at the corners of the valid range
    in a round               colluders move their own row to a corner, one for each cluster, and
                             promote the target as in PIECK
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning import pieck
from coterie.attacks.poisoning.contract import AttackKind, AttackView
from coterie.attacks.poisoning.item_updates import value_columns, within_range
from coterie.attacks.poisoning.pieck import PIECK
from coterie.attacks.poisoning.surface import Surface, needs_item_rows
from coterie.core import streams
from coterie.types import Doubles, Ints, Updates


class Takeover(PIECK):
    groups: int = Field(8, ge=1, le=64)
    """Clusters that the colluders make."""
    distance: float = Field(4.0, gt=0, lt=8)
    """Size of the entries of a colluder's row."""


def poison_setup(view: AttackView, settings: Takeover) -> Updates:
    """Statistics that no honest user has."""
    width = view.honest.user_rows.shape[1]
    return replace(view.honest, user_rows=within_range(corners(view, settings, width)))


def poison(view: AttackView, settings: Takeover) -> Updates:
    before = view.message.own["user_rows"]
    values = value_columns(view.world, before.shape[1])
    updates = pieck.poison(view, settings)
    change = np.zeros(updates.user_rows.shape)
    change[:, :values] = corners(view, settings, values) - before[:, :values]
    return replace(updates, user_rows=within_range(change))


def corners(view: AttackView, settings: Takeover, width: int) -> Doubles:
    """(colluders, width) the corner of each colluder's group."""
    group = np.searchsorted(view.colluders.users, view.honest.users) % settings.groups
    return settings.distance * signs_of(group.astype(np.int32), width, view.colluders.seed)


def signs_of(groups: Ints, width: int, seed: int) -> Doubles:
    """Signs that differ between groups: the bits of the group's number, then random ones."""
    n_bits = min(width, 3)
    bits = (groups[:, None] >> np.arange(n_bits)) & 1
    keys = streams.keys(seed, "takeover", last=groups)
    drawn = np.sign(streams.normal(keys, width))
    drawn[:, :n_bits] = 2 * bits - 1
    return drawn


def refusal(surface: Surface) -> str:
    clustered = "" if surface.is_clustered else "its server does not cluster users"
    return clustered or needs_item_rows(surface)


TAKEOVER = AttackKind(
    summary="colluders make clusters of their own, and promote the target",
    settings=Takeover,
    poison=poison,
    poison_setup=poison_setup,
    remember=pieck.remember,
    refusal=refusal,
    is_targeted=True,
)
