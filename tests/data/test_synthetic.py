"""Synthetic data has the planted structure and depends only on its settings and seed."""

from __future__ import annotations

import time

import numpy as np
import pytest

from coterie.data.interactions import Interactions
from coterie.data.synthetic import SPAN, START, WORDS, Synthetic, generate, histories
from coterie.errors import ConfigError
from coterie.types import Rows


def same(one: Interactions, other: Interactions) -> bool:
    columns = ("users", "items", "times", "item_texts")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


def top_share(data: Interactions, share: float) -> float:
    """The share of interactions with the most popular `share` of the items."""
    counts = np.sort(np.bincount(data.items, minlength=data.n_items))[::-1]
    return counts[: int(share * data.n_items)].sum() / counts.sum()


def test_interactions_are_sorted_distinct_and_within_the_time_span(people: Interactions) -> None:
    assert people.users.dtype == people.items.dtype == np.int32
    assert people.times.dtype == np.int64
    assert (np.diff(people.users) >= 0).all()
    assert (np.diff(people.times)[np.diff(people.users) == 0] >= 0).all()
    assert len(np.unique(people.pairs())) == len(people)
    assert people.times.min() >= START
    assert people.times.max() < START + SPAN


def test_made_up_data_is_in_canonical_form() -> None:
    data = generate(Synthetic(n_users=3_000, n_items=400, mean_interactions=60))
    frame = data.to_frame()
    again = Interactions.from_columns(frame.user_id, frame.item_id, None, frame.timestamp)
    assert np.array_equal(data.user_ids[data.users], again.user_ids[again.users])
    assert np.array_equal(data.times, again.times)
    assert np.array_equal(data.item_ids[data.items], again.item_ids[again.items])


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data() -> None:
    config = Synthetic(n_users=50, n_items=40)
    assert same(generate(config), generate(config))
    assert not same(generate(config), generate(config.model_copy(update={"data_seed": 1})))


@pytest.mark.parametrize(("taste", "groups"), [(0.0, 4), (0.5, 4), (0.8, 8), (1.0, 10)])
def test_the_share_of_the_own_group_is_the_one_planted(taste: float, groups: int) -> None:
    # With this many equally popular items, pairs are hardly ever drawn twice.
    data = generate(
        Synthetic(
            n_users=3_000,
            n_items=100_000,
            n_groups=groups,
            mean_interactions=20,
            taste=taste,
            popularity=0,
        )
    )
    group_of_item = data.items % groups
    counts = np.zeros((data.n_users, groups))
    np.add.at(counts, (data.users, group_of_item), 1)
    if taste >= 0.8:  # the group that is seen most often is then the user's own
        share = counts.max(axis=1).sum() / len(data)
        assert share == pytest.approx(taste + (1 - taste) / groups, abs=0.01)
    elif taste == 0:
        assert (counts.sum(axis=0) / len(data)).tolist() == pytest.approx(
            [1 / groups] * groups, abs=0.01
        )
    else:
        busy = counts[counts.sum(axis=1) >= 60]
        share = busy.max(axis=1).sum() / busy.sum()
        assert share == pytest.approx(taste + (1 - taste) / groups, abs=0.02)


def test_groups_can_be_recovered_from_the_interactions(people: Interactions) -> None:
    """Users with the same favourite category share far more items than others do."""
    seen = np.zeros((people.n_users, people.n_items), bool)
    seen[people.users, people.items] = True
    counts = np.stack([seen[:, g::4].sum(axis=1) for g in range(4)], axis=1)
    favourite = counts.argmax(axis=1)
    shared = seen.astype(int) @ seen.T
    np.fill_diagonal(shared, 0)
    alike = favourite[:, None] == favourite
    assert shared[alike].mean() > 2 * shared[~alike].mean()
    assert np.bincount(favourite, minlength=4).min() > 20


@pytest.mark.parametrize("exponent", [0.0, 0.3, 0.6, 0.9])
def test_popularity_falls_like_the_stated_power(exponent: float) -> None:
    data = generate(
        Synthetic(
            n_users=20_000,
            n_items=20_000,
            n_groups=1,
            mean_interactions=3,
            taste=0,
            popularity=exponent,
            drift=0,
        )
    )
    # The first r of n items have (r / n)^(1 - exponent); a user's repeated draws count once.
    first = (data.items < 200).mean()
    assert first == pytest.approx(0.01 ** (1 - exponent), rel=0.12)


def test_more_popularity_is_more_skew() -> None:
    shares = [top_share(generate(Synthetic(popularity=p)), 0.1) for p in (0.0, 0.4, 0.8)]
    assert shares == sorted(shares)
    assert shares[2] > 2 * shares[0]


def test_fashion_drifts_by_the_stated_part_of_the_items() -> None:
    config = Synthetic(
        n_users=5_000,
        n_items=1_000,
        n_groups=1,
        mean_interactions=10,
        taste=0,
        popularity=0.9,
        drift=0.5,
    )
    data = generate(config)
    first = data.rows.offsets[:-1]
    arrival = (data.times[first] - START) / SPAN
    early = data.items[(arrival < 0.05)[data.users]]
    late = data.items[((arrival > 0.75) & (arrival < 0.85))[data.users]]
    assert np.bincount(early).argmax() < 50
    # Half of 1,000 items times an arrival of about 0.8.
    assert 350 <= np.bincount(late).argmax() <= 430
    still = generate(config.model_copy(update={"drift": 0.0}))
    assert np.bincount(still.items).argmax() == 0


def test_everybody_does_at_least_one_thing_and_the_mean_is_the_stated_one() -> None:
    data = generate(Synthetic(n_users=5_000, n_items=200_000, mean_interactions=12, popularity=0))
    counts = np.bincount(data.users, minlength=5_000)
    assert counts.min() >= 1
    assert counts.mean() == pytest.approx(12, rel=0.05)
    assert counts.max() > 40  # skewed: a few do much


def test_ids_titles_categories_and_features_are_there(people: Interactions) -> None:
    assert people.user_ids.tolist() == list(range(1, 201))
    assert people.item_ids.tolist() == list(range(1, 121))
    assert len(people.item_texts) == len(people.item_categories) == 120
    for number, (title, category) in enumerate(
        zip(people.item_texts, people.item_categories, strict=True)
    ):
        assert category == (list(WORDS)[number % 4],)
        first, second, _ = title.split()
        assert {first, second} <= set(WORDS[category[0]].split())
    assert set(people.user_features) == {"region", "age"}
    assert all(len(values) == 200 for values in people.user_features.values())
    assert set(people.user_features["region"]) == {"north", "south", "east", "west"}
    assert people.ratings is None


def test_features_correlate_with_the_group(people: Interactions) -> None:
    counts = np.zeros((people.n_users, 4))
    np.add.at(counts, (people.users, people.items % 4), 1)
    regions = np.array(["north", "south", "east", "west"])[counts.argmax(axis=1)]
    agree = (regions == people.user_features["region"]).mean()
    assert 0.55 < agree < 0.85  # 0.6 are typical, and a quarter of the others by chance: 0.7


@pytest.mark.parametrize(
    "config",
    [
        Synthetic(n_users=2, n_items=20, n_groups=1, mean_interactions=3),
        Synthetic(n_users=2, n_items=20, n_groups=10, mean_interactions=500, taste=1),
        Synthetic(n_users=30, n_items=21, n_groups=10, popularity=0.999, drift=1),
        Synthetic(n_users=30, n_items=200_000, mean_interactions=3),
    ],
)
def test_the_corners_of_the_settings_hold(config: Synthetic) -> None:
    data = generate(config)
    assert data.items.min() >= 0
    assert data.items.max() < config.n_items
    assert len(np.unique(data.users)) == config.n_users
    assert len(np.unique(data.pairs())) == len(data)


def test_a_hundred_thousand_users_take_seconds() -> None:
    started = time.perf_counter()
    data = generate(Synthetic(n_users=100_000, n_items=10_000))
    assert time.perf_counter() - started < 20
    assert data.n_users == 100_000
    assert 3_000_000 < len(data) < 4_100_000


@pytest.mark.parametrize(
    ("setting", "value"),
    [("n_users", 1), ("n_groups", 11), ("taste", 1.1), ("popularity", 1.0), ("data_seed", -1)],
)
def test_a_setting_out_of_range_is_named(setting: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"setting '{setting}' is {value}; input should be "):
        Synthetic.of({setting: value})


def test_histories_come_in_blocks_that_do_not_depend_on_each_other() -> None:
    config = Synthetic(n_users=2_500, n_items=300, n_groups=5, mean_interactions=20)
    blocks = list(histories(config, users_per_block=1_000))
    assert [len(block.counts) for block in blocks] == [1_000, 1_000, 500]
    fewer = config.model_copy(update={"n_users": 1_000})
    (alone,) = histories(fewer, users_per_block=1_000)
    assert np.array_equal(alone.items, blocks[0].items)
    assert not np.array_equal(blocks[0].items[:500], blocks[1].items[:500])


def test_histories_have_the_distribution_of_the_interactions() -> None:
    """Lengths, popularity and taste are those that `generate` has, within sampling noise."""
    config = Synthetic(n_users=4_000, n_items=300, n_groups=5, mean_interactions=20)
    whole = generate(config)
    (block,) = histories(config)
    users = np.repeat(np.arange(config.n_users), block.counts)
    inside = np.diff(users) == 0
    assert (np.diff(block.items)[inside] > 0).all()
    assert len(block.items) == pytest.approx(len(whole), rel=0.03)
    counts = [np.sort(np.bincount(items, minlength=300)) for items in (block.items, whole.items)]
    assert counts[0][-30:].sum() == pytest.approx(counts[1][-30:].sum(), rel=0.05)
    own = [largest_group_share(each, 5) for each in (block, whole.rows)]
    assert own[0] == pytest.approx(own[1], abs=0.01)
    assert own[0] > 0.7


def largest_group_share(rows: Rows, n_groups: int) -> float:
    """The mean share of a user's items that belong to the user's most frequent group."""
    users = np.repeat(np.arange(len(rows.counts)), rows.counts)
    table = np.zeros((len(rows.counts), n_groups))
    np.add.at(table, (users, rows.items % n_groups), 1)
    return float((table.max(axis=1) / rows.counts).mean())
