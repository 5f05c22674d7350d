"""Generates interactions with planted taste groups, power-law popularity and drift.

Every user belongs to one taste group. An interaction is drawn from the group's own items with
probability `taste`, else from all items; in both cases the r-th item has a probability proportional
to r^-popularity. Popularity drifts: over the whole time span the order of items shifts by `drift`
of the items, so that recent training data is more informative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from pydantic import Field

from coterie.core import streams
from coterie.core.settings import Settings
from coterie.data.interactions import Interactions, canonical_order, objects
from coterie.types import Doubles, Ints, Longs, Rows

START = 1_577_836_800  # 2020-01-01
SPAN = 2 * 365 * 86_400
# Together with 24 bits of user index they fill a signed 64-bit integer.
TICK_BITS = 15
ITEM_BITS = 24
WORDS = {
    "adventure": "Lost Golden Wild Distant Hidden Jungle River Summit Voyage Compass",
    "comedy": "Lucky Silly Crazy Accidental Wedding Neighbour Holiday Mayor Prank Parade",
    "crime": "Silent Broken Cold Midnight Witness Alibi Detective Harbour Motive Ledger",
    "drama": "Quiet Last Bitter Tender Letter Winter Promise Daughter Station Garden",
    "fantasy": "Enchanted Ancient Crystal Dragon Wizard Crown Forest Prophecy Raven Spell",
    "history": "Imperial Forgotten Royal Empire Siege Treaty Castle Legion Admiral Chronicle",
    "music": "Electric Velvet Blue Rhythm Melody Orchestra Guitar Anthem Echo Chorus",
    "romance": "Summer Secret Sweet Kiss Paris Heart Dance Moonlight Stranger Rose",
    "science": "Quantum Stellar Infinite Galaxy Machine Signal Orbit Theory Android Horizon",
    "war": "Iron Fallen Brave Bridge Soldier Front Victory Trench Convoy Flag",
}
REGIONS = ("north", "south", "east", "west")


class Synthetic(Settings):
    n_users: int = Field(1_000, ge=2, le=10_000_000)
    """Number of users."""
    n_items: int = Field(800, ge=20, le=10_000_000)
    """Number of items."""
    n_groups: int = Field(8, ge=1, le=len(WORDS))
    """Number of planted taste groups."""
    mean_interactions: float = Field(40.0, ge=3, le=10_000)
    """Interactions drawn per user on average; a pair drawn twice counts once."""
    taste: float = Field(0.8, ge=0, le=1)
    """Share of interactions with items of the user's own group."""
    popularity: float = Field(0.6, ge=0, lt=1)
    """Exponent of the power law; 0 makes all items equally popular."""
    drift: float = Field(0.1, ge=0, le=1)
    """Share of the items by which the order of popularity shifts over the whole time."""
    data_seed: int = Field(0, ge=0, lt=2**63)
    """Seed of the data, separate from the run's seed."""


def generate(config: Synthetic) -> Interactions:
    """Generate the data; a million users take seconds."""
    rng = streams.at(config.data_seed, "synthetic")
    group_of_user = rng.integers(0, config.n_groups, config.n_users)
    arrival = rng.random(config.n_users) * 0.9
    users, items = _pairs(rng, group_of_user, arrival, config)
    users, items, times = _timed(rng, users, items, arrival)
    data = Interactions(
        users,
        items,
        ratings=None,
        times=times,
        user_ids=np.arange(1, config.n_users + 1),
        item_ids=np.arange(1, config.n_items + 1),
        item_order=np.arange(config.n_items, dtype=np.int32),
    )
    return _described(data, rng, group_of_user, np.arange(config.n_items) % config.n_groups)


def histories(config: Synthetic, users_per_block: int = 100_000) -> Iterator[Rows]:
    """The items of every user without times or descriptions, a block of users at a time.

    A block has a stream of its own, so that memory does not follow the number of users. The
    distribution is that of `generate`; the draws are others.
    """
    for first in range(0, config.n_users, users_per_block):
        n = min(users_per_block, config.n_users - first)
        rng = streams.at(config.data_seed, "synthetic histories", first)
        group_of_user = rng.integers(0, config.n_groups, n)
        arrival = rng.random(n) * 0.9
        # Copied without validation: the last block may have a single user.
        block = config.model_copy(update={"n_users": n})
        users, items = _pairs(rng, group_of_user, arrival, block)
        counts = np.bincount(users, minlength=n)
        yield Rows(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), items)


def _pairs(
    rng: np.random.Generator, group_of_user: Longs, arrival: Doubles, config: Synthetic
) -> tuple[Ints, Ints]:
    """Distinct pairs. Sorting packed integers is several times faster than np.unique or lexsort."""
    # Activity is skewed, as in real data: 2 plus a geometric number, which is at least 1.
    counts = 2 + rng.geometric(1 / (config.mean_interactions - 2), config.n_users)
    users = np.repeat(np.arange(config.n_users), counts)
    pairs = users * config.n_items + _choices(rng, users, group_of_user, arrival, config)
    pairs.sort()
    pairs = pairs[np.concatenate([[True], pairs[1:] != pairs[:-1]])]
    users = pairs // config.n_items
    return users.astype(np.int32), (pairs - users * config.n_items).astype(np.int32)


def _choices(
    rng: np.random.Generator,
    users: Longs,
    group_of_user: Longs,
    arrival: Doubles,
    config: Synthetic,
) -> Longs:
    g = config.n_groups
    n = config.n_items
    group = group_of_user[users]
    own = rng.random(len(users), np.float32) < config.taste
    # The group's items are group, group + g, group + 2g, ...
    pool = np.where(own, (n - group + g - 1) // g, n)
    quantile = rng.random(len(users)) ** (1 / (1 - config.popularity))
    rank = np.minimum((pool * quantile).astype(np.int64), pool - 1)
    rank = (rank + (config.drift * arrival[users] * pool).astype(np.int64)) % pool
    chosen: Longs = np.where(own, group + g * rank, rank)
    return chosen


def _timed(
    rng: np.random.Generator, users: Ints, items: Ints, arrival: Doubles
) -> tuple[Ints, Ints, Longs]:
    """Add times and sort canonically.

    Every user is active for a tenth of the time span, at ticks of about three minutes.
    """
    ticks = rng.integers(0, 1 << TICK_BITS, len(users))
    packed = ((users.astype(np.int64) << TICK_BITS | ticks) << ITEM_BITS) | items
    packed.sort()
    users = (packed >> (TICK_BITS + ITEM_BITS)).astype(np.int32)
    ticks = (packed >> ITEM_BITS) & ((1 << TICK_BITS) - 1)
    start = (START + arrival * SPAN).astype(np.int64)
    items = (packed & ((1 << ITEM_BITS) - 1)).astype(np.int32)
    times = start[users] + ticks * (SPAN // 10) // (1 << TICK_BITS)
    equal = np.diff(packed >> ITEM_BITS) == 0
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    items[tied] = items[tied][canonical_order(users[tied], items[tied], times[tied])]
    return users, items, times


def _described(
    data: Interactions, rng: np.random.Generator, group_of_user: Longs, group_of_item: Longs
) -> Interactions:
    """Attach titles with words of the item's group, and features that correlate with the user's."""
    names = list(WORDS)
    words = np.array([w.split() for w in WORDS.values()], dtype=object)  # (groups, 10)
    first = rng.integers(0, 5, data.n_items)
    second = rng.integers(5, 10, data.n_items)
    number = (data.item_ids // 50 + 1).astype(str).astype(object)
    titles = words[group_of_item, first] + " " + words[group_of_item, second] + " " + number
    typical = rng.random(data.n_users) < 0.6
    any_region = rng.integers(0, len(REGIONS), data.n_users)
    region = np.where(typical, group_of_user, any_region) % len(REGIONS)
    age = np.where(typical, 18 + 6 * group_of_user, rng.integers(18, 78, data.n_users))
    return replace(
        data,
        item_texts=titles,
        item_categories=objects([(names[g],) for g in group_of_item]),
        user_features={
            "region": np.array(REGIONS, dtype=object)[region],
            "age": age.astype(str).astype(object),
        },
    )
