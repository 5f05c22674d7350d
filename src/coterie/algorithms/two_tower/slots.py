"""Slots: pseudonyms of items between the two servers, assigned anew in every round.

The recommendation server assigns them, and the aggregation server sums gradients by slot without
learning the items. Each ring of secure aggregation has its own slots, only as many as its members
can request, so the length of a client's masked vector does not grow with the cohort. The
aggregation server also learns which slots of different rings are the same item, so that it never
forwards the sum of a single ring.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from coterie.algorithms.two_tower.distinct import distinct_items
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.types import Ints, Longs


class Slots(NamedTuple):
    """The slots of a round."""

    items: Ints  # (slots,) the item of each slot; -1 for an unused one
    requested: Ints  # (n, T) the slots of every requesting user, in the order of its items

    def distinct(self) -> tuple[Ints, Longs]:
        """The distinct items, ascending, and the position of every slot's item; -1 if unused."""
        items, places = distinct_items(self.items)
        has_unused = int(len(items) > 0 and items[0] < 0)
        return items[has_unused:], places - has_unused

    def merged(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Number the distinct items at random, one number per item for all rings.

        Returns the number of every slot (-1 if unused), and the item of every number.
        """
        items, place = self.distinct()
        order = rng.permutation(len(items))
        # One entry more than items: the place -1 of an unused slot reads the last.
        number_of = np.full(len(items) + 1, -1, np.int32)
        number_of[order] = np.arange(len(items), dtype=np.int32)
        return number_of[place], items[order]


def assign_slots(
    world: AnyWorld, requested: Ints, rings: Sequence[Longs], rng: np.random.Generator
) -> Slots:
    """Assign slots in random order to the distinct items that each ring requested, or to all items.

    A ring is given by its rows of `requested` (n, T).
    """
    items = np.full(slot_count(world), -1, np.int32)
    slots = np.full(requested.shape, -1, np.int32)
    if world.settings.request_policy == "whole":
        return Slots(rng.permutation(world.n_items).astype(np.int32), slots)
    for number, members in enumerate(rings):
        # One entry more than items: the padding -1 indexes the last.
        slot_of = np.full(world.n_items + 1, -1, np.int32)
        is_requested = np.zeros(world.n_items + 1, bool)
        is_requested[requested[members]] = True
        chosen = rng.permutation(np.flatnonzero(is_requested[:-1]))
        first = ring_slots(world, number)[0]
        slot_of[chosen] = np.arange(first, first + len(chosen), dtype=np.int32)
        items[first : first + len(chosen)] = chosen
        slots[members] = slot_of[requested[members]]
    return Slots(items, slots)


def ring_slots(world: AnyWorld, number: int) -> Ints:
    """The slots of a ring. Without rings, all slots belong to ring 0."""
    if world.settings.request_policy == "whole":
        return np.arange(world.n_items, dtype=np.int32)
    width = _ring_width(world)
    return np.arange(number * width, (number + 1) * width, dtype=np.int32)


def slot_count(world: AnyWorld) -> int:
    """The number of slots of a round."""
    if world.settings.request_policy == "whole":
        return int(world.n_items)
    n_rings = -(-world.settings.users_per_round // _largest_ring(world))
    return int(n_rings * _ring_width(world))


def _ring_width(world: AnyWorld) -> int:
    """The most items that the members of a ring can request."""
    most = min(world.settings.users_per_round, _largest_ring(world))
    return int(most * world.settings.compared)


def _largest_ring(world: AnyWorld) -> int:
    """The most users that share slots."""
    settings = world.settings
    if settings.secure_aggregation == "none":
        return int(settings.users_per_round)
    return int(settings.largest_group)
