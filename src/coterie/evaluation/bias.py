"""Which categories of items people lean to, and whether recommendations lean the same way (FPL, Section 6.4).

B_T(C) = (share of the training records in C) / (share of the catalogue's items in C)    above 1: people lean to C
B_R(C) = the same for what is recommended
BD(C)  = (B_R(C) - B_T(C)) / B_T(C)                                                      0: lists lean as people do

The catalogue is everything that can be recommended, so that lists drawn at random have B_R = 1 and BD = 1 / B_T - 1. The paper's
must be more than the items of the training part, too: each of those has a record, so that none of Table 5's figures for Italy could
be below 25,522 / 54,088 = 0.472, and Residence is 0.417. An item may be in several categories, as films are, or in none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.types import Doubles, Ids, Ints, Longs


@dataclass(frozen=True, slots=True)
class Bias:
    """How much more often than the catalogue would have it a category stands in training and in lists."""

    source: float
    recommended: float
    disparity: float | None
    """None where nothing of the category is in training."""


class Members(NamedTuple):
    """Which item is in which category, pair by pair."""

    names: list[str]
    items: Longs
    categories: Longs  # places in `names`


def by_category(trained: Ints, listed: Ints, categories: Ids) -> dict[str, Bias]:
    """The bias of every category, by name: `trained` and `listed` are items as often as they stand there."""
    members = memberships(categories)
    source, recommended = (leaning(items, members, len(categories)) for items in (trained, listed))
    return {
        name: Bias(float(t), float(r), disparity(float(t), float(r)))
        for name, t, r in zip(members.names, source, recommended, strict=True)
    }


def disparity(source: float, recommended: float) -> float | None:
    return (recommended - source) / source if source else None


def leaning(records: Ints, members: Members, n_items: int) -> Doubles:
    """(categories,) share of the records over share of the catalogue."""
    return _shares(np.bincount(records, minlength=n_items), members) / _shares(
        np.ones(n_items, np.int64), members
    )


def memberships(categories: Ids) -> Members:
    """From one tuple of names per item."""
    names = sorted({name for own in categories for name in own})
    place = {name: n for n, name in enumerate(names)}
    pairs = [
        (item, place[name]) for item, own in enumerate(categories) for name in dict.fromkeys(own)
    ]
    items, places = np.array(pairs, np.int64).reshape(-1, 2).T
    return Members(names, items, places)


def _shares(counts: Longs, members: Members) -> Doubles:
    """(categories,) share of all that is counted, item by item; 0 where nothing is."""
    found = np.bincount(
        members.categories, weights=counts[members.items], minlength=len(members.names)
    )
    return found / max(int(counts.sum()), 1)
