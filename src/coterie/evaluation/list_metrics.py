"""Metrics of recommended lists beyond accuracy: novelty, long tail, diversity and calibration.

A list is the first k items of a user's ranking; ties are in item order. U_i are the training users
of item i, n the number of all users, L a user's list and H the user's training history.

Nov     novelty: mean over i in L of log2(n / |U_i|); an item without training users counts as if
        it had one (Zhou et al. 2010; Vargas and Castells 2011)
Tail    long-tail share: share of L that is not in the head, the fewest most popular items that
        together have 80 % of the training interactions (as APLT, Abdollahpouri et al. 2019;
        papers cut the head differently)
ILD     intra-list diversity: mean over pairs i != j of L of the distance 1 - similarity
        (Ziegler et al. 2005), with cosine similarity |U_i and U_j| / sqrt(|U_i| |U_j|)
CatILD  the same with Jaccard similarity of the items' categories
Calib   miscalibration (Steck 2018, C_KL): sum over categories g of
        p(g) ln(p(g) / ((1 - a) q(g) + a p(g))), a = 0.01, where p and q are the distributions of
        categories in H and in L; lower is better, and 0 means that the list is calibrated

An item with c categories counts 1 / c for each. Items without a category share one of their own.
An empty list has 0, and the highest miscalibration, ln(1 / a).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.interactions import Interactions
from coterie.evaluation.bias import category_pairs
from coterie.types import Bools, Doubles, Ids, Ints, Longs, Rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

HEAD = 0.8
"""Share of the training interactions that the head has."""
SMOOTHING = 0.01
"""Steck's alpha."""
UNKNOWN = ("no category",)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedLists:
    """What a metric may look at: the lists of all tested users, and the data behind them."""

    k: int
    users: Ints
    """(tested,) indices of the users."""
    items: Ints
    """(tested, k) indices of the recommended items, best first; -1 pads shorter lists."""
    relevant: Rows
    """The held-out items: `relevant.of(n)` are those of `users[n]`, ascending."""
    train: Interactions
    """The training part; `train.rows.of(user)` is a user's history."""

    @property
    def listed(self) -> Bools:
        """(tested, k) where there is an item, not padding."""
        return self.items >= 0

    @property
    def lengths(self) -> Longs:
        """(tested,) number of items of every list."""
        lengths: Longs = self.listed.sum(axis=1)
        return lengths

    @property
    def popularity(self) -> Longs:
        """(items,) number of training users."""
        return np.bincount(self.train.items, minlength=self.train.n_items)


MetricFunction = Callable[[RankedLists], Doubles]
"""Ranked lists -> one value per tested user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric of ranked lists: Coterie's own below, and those that users write."""

    name: str
    """Reports show it with the cut-off: mine@10."""
    per_user: MetricFunction
    lower_is_better: bool = False
    needs_categories: bool = False
    """Whether items must have categories."""
    full_ranking_only: bool = False
    """Whether lists of sampled candidates are left out, because they say nothing about it."""


def novelty(lists: RankedLists) -> Doubles:
    """Mean self-information of the items, in bits."""
    information = np.log2(lists.train.n_users / np.maximum(lists.popularity, 1))
    return _mean_over_list(lists, information)


def long_tail_share(lists: RankedLists) -> Doubles:
    """Share of the items that are not in the head."""
    return _mean_over_list(lists, ~head(lists.popularity))


def head(popularity: Longs) -> Bools:
    """(items,) mask of the fewest most popular items with 80 % of the interactions."""
    order = np.argsort(-popularity, kind="stable")
    before = np.cumsum(popularity[order]) - popularity[order]
    in_head = np.zeros(len(popularity), bool)
    # An item is needed while those before it have less than the share.
    in_head[order] = before < HEAD * popularity.sum()
    return in_head


def user_diversity(lists: RankedLists) -> Doubles:
    """Mean distance of pairs, by the users that two items have in common."""
    return _mean_over_pairs(lists, _user_similarity(lists.train))


def category_diversity(lists: RankedLists) -> Doubles:
    """Mean distance of pairs, by the categories that two items have in common."""
    return _mean_over_pairs(lists, _category_similarity(categories_of(lists.train)))


def miscalibration(lists: RankedLists) -> Doubles:
    """Steck's C_KL of every user."""
    shares = category_shares(categories_of(lists.train))
    history = lists.train.rows
    rows, items = history.take(lists.users)
    p = _distribution(shares, rows, items, len(lists.users))
    listed = lists.listed
    q = _distribution(shares, np.nonzero(listed)[0], lists.items[listed], len(lists.users))
    smoothed = (1 - SMOOTHING) * q + SMOOTHING * p
    # A category that the history lacks adds nothing: p ln p -> 0.
    ratio = np.where(p > 0, p / np.where(p > 0, smoothed, 1), 1)
    divergence: Doubles = (p * np.log(ratio)).sum(axis=1)
    return divergence


LIST_METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric(name="Nov", per_user=novelty, full_ranking_only=True),
        Metric(name="Tail", per_user=long_tail_share, full_ranking_only=True),
        Metric(name="ILD", per_user=user_diversity, full_ranking_only=True),
        Metric(
            name="CatILD",
            per_user=category_diversity,
            needs_categories=True,
            full_ranking_only=True,
        ),
        Metric(
            name="Calib",
            per_user=miscalibration,
            lower_is_better=True,
            needs_categories=True,
            full_ranking_only=True,
        ),
    )
}


def categories_of(train: Interactions) -> Ids:
    """One tuple of names per item; items without any share one category."""
    assert train.item_categories is not None  # checked before training
    categories = np.empty(train.n_items, dtype=object)
    categories[:] = [tuple(dict.fromkeys(own)) or UNKNOWN for own in train.item_categories]
    return categories


def category_shares(categories: Ids) -> csr_array:
    """(items, categories) p(g|i): 1 / c for each of an item's c categories."""
    from scipy.sparse import csr_array

    pairs = category_pairs(categories)
    counts = np.bincount(pairs.items, minlength=len(categories))
    shape = (len(categories), len(pairs.names))
    return csr_array((1 / counts[pairs.items], (pairs.items, pairs.categories)), shape)


def _distribution(shares: csr_array, rows: Longs, items: Ints, n_rows: int) -> Doubles:
    """(rows, categories) mean of the items' shares; zeros for a row without items."""
    from scipy.sparse import csr_array

    ones = np.ones(len(rows))
    membership = csr_array((ones, (rows, items)), (n_rows, shares.shape[0]))
    counts = np.maximum(np.bincount(rows, minlength=n_rows), 1)
    means: Doubles = (membership @ shares).toarray() / counts[:, None]
    return means


def _mean_over_list(lists: RankedLists, values: np.ndarray) -> Doubles:
    """Mean of the items' values over every list; 0 for an empty one."""
    of_items = np.where(lists.listed, values[lists.items], 0)
    means: Doubles = of_items.sum(axis=1) / np.maximum(lists.lengths, 1)
    return means


Similarity = Callable[[Ints, Ints], Doubles]
"""(items, other items) -> one similarity per pair."""


def _mean_over_pairs(lists: RankedLists, similarity: Similarity) -> Doubles:
    """Mean distance over the pairs of every list; 0 for a list with fewer than two items."""
    total = np.zeros(len(lists.users))
    # Lists of a catalogue share many pairs, so a pair of columns is looked up for all users.
    for first, second in combinations(range(lists.k), 2):
        both = lists.items[:, second] >= 0
        one = lists.items[both, first]
        other = lists.items[both, second]
        total[both] += 1 - similarity(one, other)
    pairs = lists.lengths * (lists.lengths - 1) / 2
    means: Doubles = total / np.maximum(pairs, 1)
    return means


def _user_similarity(train: Interactions) -> Similarity:
    from scipy.sparse import csr_array

    ones = np.ones(len(train.items))
    users_of = csr_array((ones, (train.items, train.users)), (train.n_items, train.n_users))
    counts = np.bincount(train.items, minlength=train.n_items)

    def cosine(one: Ints, other: Ints) -> Doubles:
        common = _common(users_of, one, other)
        similarity: Doubles = common / np.sqrt(np.maximum(counts[one] * counts[other], 1))
        return similarity

    return cosine


def _category_similarity(categories: Ids) -> Similarity:
    shares = category_shares(categories)
    membership = shares.copy()
    membership.data = np.ones_like(membership.data)
    counts = np.diff(membership.indptr)

    def jaccard(one: Ints, other: Ints) -> Doubles:
        common = _common(membership, one, other)
        similarity: Doubles = common / (counts[one] + counts[other] - common)
        return similarity

    return jaccard


def _common(rows: csr_array, one: Ints, other: Ints) -> Doubles:
    """Number of columns that two rows share, computed once for each distinct pair."""
    n = rows.shape[0]
    pairs = np.minimum(one, other).astype(np.int64) * n + np.maximum(one, other)
    distinct, position = np.unique(pairs, return_inverse=True)
    common: Doubles = (rows[distinct // n] * rows[distinct % n]).sum(axis=1)
    return common[position]
