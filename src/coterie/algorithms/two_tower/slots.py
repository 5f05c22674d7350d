"""Slots: what a recommendation server calls items when it speaks to an aggregation server, numbered anew in every round.

A ring has slots of its own, for no more items than its members ask for: what a device has to add up does not grow with the cohort.
The aggregation server is told which slots of different rings are one item, so that it hands on no ring's sum by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.federated.federation import (
    AnyWorld,
)
from coterie.types import Ints, Longs


class Slots(NamedTuple):
    items: Ints  # (slots,) the item of each; -1 where there is none
    asked: Ints  # (n, T) of every asker, in the order of what it asked for

    def distinct(self) -> tuple[Ints, Longs]:
        """The items, ascending, and the place of every slot's item among them; -1 where a slot has none."""
        found = np.unique(self.items[self.items >= 0])
        return found, np.where(self.items < 0, -1, np.searchsorted(found, self.items)).astype(
            np.int64
        )

    def merged(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """One number for an item whatever ring asked for it: of every slot, -1 where it has no item; and the item of each number."""
        found, place = self.distinct()
        order = rng.permutation(len(found))
        return np.append(np.argsort(order), -1)[place].astype(np.int32), found[order]


def numbered(
    world: AnyWorld, asked: Ints, rings: Sequence[Longs], rng: np.random.Generator
) -> Slots:
    """The distinct items that each ring of askers asked for (rows of `asked`), in a random order; or all items."""
    items = np.full(how_many(world), -1, np.int32)
    given = np.full(asked.shape, -1, np.int32)
    if world.settings.asks == "whole":
        return Slots(rng.permutation(world.n_items).astype(np.int32), given)
    for number, members in enumerate(rings):
        # the last is -1's
        slot_of = np.full(world.n_items + 1, -1, np.int32)
        wanted = np.zeros(world.n_items + 1, bool)
        wanted[asked[members]] = True
        chosen = rng.permutation(np.flatnonzero(wanted[:-1]))
        first = of_ring(world, number)[0]
        slot_of[chosen] = np.arange(first, first + len(chosen), dtype=np.int32)
        items[first : first + len(chosen)] = chosen
        given[members] = slot_of[asked[members]]
    return Slots(items, given)


def of_ring(world: AnyWorld, number: int) -> Ints:
    """The slots of a ring; without rings all are those of the first."""
    if world.settings.asks == "whole":
        return np.arange(world.n_items, dtype=np.int32)
    width = min(world.settings.users_per_round, _most_together(world)) * world.settings.compared
    return np.arange(number * width, (number + 1) * width, dtype=np.int32)


def how_many(world: AnyWorld) -> int:
    last = -(-world.settings.users_per_round // _most_together(world)) - 1
    return int(of_ring(world, last)[-1]) + 1


def _most_together(world: AnyWorld) -> int:
    most: int = (
        world.settings.users_per_round
        if world.settings.secure_aggregation == "none"
        else world.settings.ring_size
    )
    return most
