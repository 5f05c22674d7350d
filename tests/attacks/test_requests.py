"""The intersection of requests: by hand, and against the three ways to ask."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coterie.attacks.requests import Request, by_gradients, not_by_chance, repeated, told
from coterie.types import Message, Rows


def rows(*lists: list[int]) -> Rows:
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in lists])]).astype(np.int64)
    return Rows(offsets, np.concatenate([np.array(part, np.int32) for part in lists]))


def test_how_often_is_too_often_by_hand():
    """Of 100 items ten are asked for in each of 3 rounds: twice 100 * (3 * 0.01 * 0.9 + 0.001) = 2.8 by chance, thrice 0.1."""
    assert not_by_chance(1, 0.1, 100) == 1
    assert not_by_chance(3, 0.1, 100) == 3
    assert not_by_chance(3, 0.01, 100) == 2


def test_claims_by_hand():
    users = np.array([0, 2])
    requests = [
        Request(users, rows([1, 3], [0, 4])),
        Request(users, rows([1, 2], [3, 5])),
        Request(np.array([0]), rows([2, 5])),
    ]
    one = repeated(requests[:1], 3, 600)
    assert [np.flatnonzero(row).tolist() for row in one] == [[1, 3], [], [0, 4]]
    several = repeated(requests, 3, 600)
    assert [np.flatnonzero(row).tolist() for row in several] == [[1, 2], [], []]
    found = told(several, rows([1, 4], [0], [0, 3]), users)
    assert found == (
        0.5,
        0.25,
        1.0,
    )  # one of two claims; one of the four that the two did; two claims of two people
    nothing = told(np.zeros((3, 6), bool), rows([1], [0], [0]), users)
    assert math.isnan(nothing.precision)
    assert (nothing.recall, nothing.claims) == (0, 0)


@pytest.mark.parametrize("mode", ["resampled", "sticky", "whole"])
def test_decoys_that_are_kept_hide_clicks_and_decoys_drawn_anew_do_not(mode):
    pytest.importorskip("torch")
    from small_federation import world_for

    from coterie.algorithms.two_tower import item_requests
    from coterie.data.training_set import TrainingSet
    from coterie.engines.local import LocalEngine

    rng = np.random.default_rng(0)
    n_users = 60
    n_items = 2000
    lists = [np.sort(rng.choice(n_items, 12, replace=False)) for _ in range(n_users)]
    positives = rows(*(part.tolist() for part in lists))
    titles = np.array([f"Number {n}" for n in range(n_items)], dtype=object)
    training = TrainingSet(n_users, n_items, positives, positives, None, item_texts=titles)
    world = world_for("sttfedrec-dssm", training, requests=mode, users_per_round=n_users)
    (node,) = LocalEngine.over(world, training, 1).nodes
    users = np.arange(n_users, dtype=np.int32)
    requests = []
    for t in range(20):
        updates = item_requests.request(world, Message(t, users, {}, {}), node)
        requests.append(Request(users, Rows(updates.offsets, updates.items)))
    after = {n: told(repeated(requests[:n], n_users, n_items), positives, users) for n in (1, 20)}
    if mode == "whole":
        assert after[20].claims == 0
        return
    assert after[1].precision == pytest.approx(0.1)
    if mode == "resampled":
        assert after[20].precision > 0.7
        assert after[20].recall > 0.2
    else:
        assert after[20].precision == pytest.approx(0.1, abs=0.02)


def test_gradients_of_one_asker_by_hand():
    """The first asked for slots 0 to 4, of which 4 is not theirs alone; the second for 4 to 6: too few."""
    asked = np.array([[10, 11, 12, 13, 14], [14, 15, 16, -1, -1]])
    slots = np.array([[0, 1, 2, 3, 4], [4, 5, 6, -1, -1]])
    cut = np.array([[1, 0], [1, 1], [-4, -1], [1, 0], [9, 9], [1, 1], [-3, 0]])
    assert by_gradients(asked, slots, cut).tolist() == [12, -1]
    cut[2] = [4, 1]  # as long, but it points where the others do
    assert by_gradients(asked, slots, cut).tolist() == [-1, -1]


@pytest.mark.parametrize("secure_aggregation", ["none", "ring"])
def test_gradients_that_come_back_tell_clicks_whatever_hides_the_sums(secure_aggregation):
    """The limit of the split: who knows who asked, and hears the sum by item, hears single users where only one asked."""
    pytest.importorskip("torch")
    pytest.importorskip("cryptography")
    from small_federation import world_for

    from coterie.algorithms import sttfedrec
    from coterie.data.training_set import TrainingSet
    from coterie.engines.local import LocalEngine
    from coterie.federated import rounds

    rng = np.random.default_rng(0)
    n_users = 40
    n_items = 3000
    positives = rows(
        *(np.sort(rng.choice(n_items, 12, replace=False)).tolist() for _ in range(n_users))
    )
    titles = np.array([f"Number {n}" for n in range(n_items)], dtype=object)
    training = TrainingSet(n_users, n_items, positives, positives, None, item_texts=titles)
    world = world_for(
        "sttfedrec-dssm", training, users_per_round=n_users, secure_aggregation=secure_aggregation
    )
    engine = LocalEngine.over(world, training, 1)
    cohort = np.arange(n_users, dtype=np.int32)
    state, _ = rounds.play_exchange(
        world, sttfedrec.REQUEST, sttfedrec.init(world), cohort, 0, engine
    )
    asked = state.requested
    slots = sttfedrec.assign_slots(world, state, 0).asked
    numbers = sttfedrec.merge_slots(world, state, 0)[0][slots]
    state = rounds.relay(world, sttfedrec.SLOTS, state, 0, engine)
    state, _ = rounds.play_exchange(world, sttfedrec.TRAIN, state, cohort, 0, engine, 1)
    claims = by_gradients(asked, numbers, state.cut)
    assert (claims >= 0).mean() > 0.8
    assert (
        np.mean(
            [item in positives.of(user) for user, item in enumerate(claims.tolist()) if item >= 0]
        )
        > 0.95
    )
