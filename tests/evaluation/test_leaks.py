"""Planted leaks are caught and named; clean splits of every rule pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coterie import api
from coterie.data.interactions import Interactions
from coterie.data.splits import Split, split
from coterie.errors import LeakError
from coterie.evaluation.leaks import check
from coterie.types import Rows


@pytest.fixture(scope="module")
def clean(people) -> Split:
    return split(people, "leave-one-out", 0.2, seed=0, validation=True)


def joined(part: Interactions, more: Interactions) -> Interactions:
    """One part with interactions of another planted into it."""
    return replace(
        part,
        users=np.concatenate([part.users, more.users]),
        items=np.concatenate([part.items, more.items]),
        times=np.concatenate([part.times, more.times]),
    )


@pytest.mark.parametrize("rule", ["leave-one-out", "temporal", "global-time", "random"])
@pytest.mark.parametrize("validation", [False, True])
def test_clean_splits_pass(people, rule, validation):
    parts = split(
        people, rule, 0.05 if rule == "global-time" else 0.2, seed=3, validation=validation
    )
    check(parts, parts.training())


def test_a_test_pair_in_training_is_caught_and_named(clean):
    planted = clean.test.select(np.array([5]))
    leaky = replace(clean, train=joined(clean.train, planted))
    user = clean.test.user_ids[planted.users[0]]
    item = clean.test.item_ids[planted.items[0]]
    with pytest.raises(LeakError) as error:
        check(leaky, leaky.training())
    message = str(error.value)
    assert message.startswith("training and test share 1 interactions")
    # External ids, not np.int64(6).
    assert f"(for example user {user} and item {item})" in message.replace("'", "")
    assert "expected none. Remove the overlap" in message


def test_every_shared_interaction_counts(clean):
    leaky = replace(clean, train=joined(clean.train, clean.test))
    with pytest.raises(
        LeakError, match=f"training and test share {len(clean.test):,} interactions"
    ):
        check(leaky, leaky.training())


def test_a_validation_pair_in_training_is_caught(clean):
    leaky = replace(clean, train=joined(clean.train, clean.validation.select(np.array([0]))))
    with pytest.raises(LeakError, match="training and validation share 1 "):
        check(leaky, leaky.training())


def test_validation_overlapping_test_is_caught(clean):
    leaky = replace(clean, validation=joined(clean.validation, clean.test.select(np.array([0, 1]))))
    with pytest.raises(LeakError, match="validation and test share 2 "):
        check(leaky, leaky.training())


def test_negatives_that_exclude_test_items_are_caught_unless_as_published(clean):
    training = clean.training(as_published=True)
    with pytest.raises(
        LeakError,
        match=r"negatives exclude items that are not training positives.*as_published=true",
    ):
        check(clean, training)
    check(clean, training, as_published=True)


def test_negatives_that_exclude_one_test_item_are_caught(clean):
    users = np.concatenate([clean.train.users, clean.test.users[:1]])
    items = np.concatenate([clean.train.items, clean.test.items[:1]])
    leaky = replace(clean.training(), excluded=Rows.build(users, items, clean.train.n_users))
    with pytest.raises(LeakError, match="negatives exclude"):
        check(clean, leaky)


def test_training_on_something_else_than_the_training_part_is_caught(clean):
    with pytest.raises(LeakError, match="not the training part"):
        check(clean, replace(clean, train=joined(clean.train, clean.test)).training())


def test_a_run_refuses_its_own_leak(tmp_path):
    train = tmp_path / "train.csv"
    test = tmp_path / "test.csv"
    train.write_text("user_id,item_id\na,1\na,2\nb,1\nb,3\n")
    test.write_text("user_id,item_id\na,2\nb,2\n")
    with pytest.raises(
        LeakError,
        match=r"training and test share 1 interactions \(for example user 'a' and item '2'\)",
    ):
        api.run("popular", train, split="own", test_file=str(test))
