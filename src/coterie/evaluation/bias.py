"""Bias by item category: do recommendations over-represent the same categories as training data?

FPL, Section 6.4, for a category C:

B_T(C) = (share of the training records in C) / (share of the catalogue's items in C)
B_R(C) = the same ratio for recommended items
BD(C)  = (B_R(C) - B_T(C)) / B_T(C)

A bias above 1 means that C is over-represented. A disparity BD of 0 means that recommendations have
the bias of the training data.

The catalogue is everything that can be recommended, so uniformly random lists have B_R = 1 and
BD = 1 / B_T - 1. The paper's catalogue must also be larger than the items of its training part:
every training item has at least one record, so no figure of Table 5 for Italy could be below
25,522 / 54,088 = 0.472, yet Residence is 0.417. An item may be in several categories (as films are)
or in none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.types import Doubles, Ids, Ints, Longs


@dataclass(frozen=True, slots=True)
class Bias:
    """How over-represented a category is in training data and in recommendations; 1 is neutral."""

    source: float
    recommended: float
    disparity: float | None
    """None if no training record is in the category."""


class CategoryPairs(NamedTuple):
    """Item and category of every membership, as two aligned columns."""

    names: list[str]
    items: Longs
    categories: Longs  # indices into `names`


def by_category(trained: Ints, recommended: Ints, categories: Ids) -> dict[str, Bias]:
    """The bias of every category by name.

    `trained` and `recommended` hold one item index per record; `categories` one tuple of names per
    item.
    """
    pairs = category_pairs(categories)
    source_bias = category_bias(trained, pairs, len(categories))
    list_bias = category_bias(recommended, pairs, len(categories))
    return {
        name: Bias(float(source), float(listed), disparity(float(source), float(listed)))
        for name, source, listed in zip(pairs.names, source_bias, list_bias, strict=True)
    }


def disparity(source: float, recommended: float) -> float | None:
    return (recommended - source) / source if source else None


def category_bias(records: Ints, pairs: CategoryPairs, n_items: int) -> Doubles:
    """(categories,) share of the records over share of the catalogue."""
    of_records = _shares(np.bincount(records, minlength=n_items), pairs)
    of_catalogue = _shares(np.ones(n_items, np.int64), pairs)
    return of_records / of_catalogue


def category_pairs(categories: Ids) -> CategoryPairs:
    """From one tuple of names per item."""
    names = sorted({name for own in categories for name in own})
    index = {name: n for n, name in enumerate(names)}
    pairs = [
        (item, index[name]) for item, own in enumerate(categories) for name in dict.fromkeys(own)
    ]
    items, indices = np.array(pairs, np.int64).reshape(-1, 2).T
    return CategoryPairs(names, items, indices)


def _shares(counts: Longs, pairs: CategoryPairs) -> Doubles:
    """(categories,) share of the total count that falls on a category's items; 0 without counts."""
    per_category = np.bincount(
        pairs.categories, weights=counts[pairs.items], minlength=len(pairs.names)
    )
    return per_category / max(int(counts.sum()), 1)
