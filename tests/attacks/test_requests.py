"""The intersection attack on requests: by hand, and against the three request modes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from coterie.attacks.requests import (
    Request,
    by_gradients,
    repeated,
    rounds_beyond_chance,
    score_claims,
)
from coterie.types import Message, Rows


def rows(*lists: list[int]) -> Rows:
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in lists])]).astype(np.int64)
    return Rows(offsets, np.concatenate([np.array(part, np.int32) for part in lists]))


def test_the_threshold_of_rounds_by_hand():
    """Ten of 100 items are requested in each of 3 rounds. By chance
    100 * (3 * 0.01 * 0.9 + 0.001) = 2.8 of them come twice, and 0.1 three times."""
    assert rounds_beyond_chance(1, 0.1, 100) == 1
    assert rounds_beyond_chance(3, 0.1, 100) == 3
    assert rounds_beyond_chance(3, 0.01, 100) == 2


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
    # One of two claims is true; one of the users' four items is claimed; one claim per user.
    assert score_claims(several, rows([1, 4], [0], [0, 3]), users) == (0.5, 0.25, 1.0)
    nothing = score_claims(np.zeros((3, 6), bool), rows([1], [0], [0]), users)
    assert math.isnan(nothing.precision)
    assert (nothing.recall, nothing.claims) == (0, 0)


@pytest.mark.parametrize("mode", ["resampled", "sticky", "whole"])
def test_sticky_decoys_hide_clicks_and_resampled_ones_do_not(mode):
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
    after = {
        n: score_claims(repeated(requests[:n], n_users, n_items), positives, users) for n in (1, 20)
    }
    if mode == "whole":
        assert after[20].claims == 0
        return
    assert after[1].precision == pytest.approx(0.1)
    if mode == "resampled":
        assert after[20].precision > 0.7
        assert after[20].recall > 0.2
    else:
        assert after[20].precision == pytest.approx(0.1, abs=0.02)


def test_gradients_of_a_single_user_by_hand():
    """The first user requested slots 0 to 4, and shares slot 4; the second 4 to 6, too few."""
    requested = np.array([[10, 11, 12, 13, 14], [14, 15, 16, -1, -1]])
    slots = np.array([[0, 1, 2, 3, 4], [4, 5, 6, -1, -1]])
    cut = np.array([[1, 0], [1, 1], [-4, -1], [1, 0], [9, 9], [1, 1], [-3, 0]])
    assert by_gradients(requested, slots, cut).tolist() == [12, -1]
    cut[2] = [4, 1]  # as long, but with the same direction as the others
    assert by_gradients(requested, slots, cut).tolist() == [-1, -1]


@pytest.mark.parametrize("secure_aggregation", ["none", "ring"])
def test_returned_gradients_reveal_clicks_despite_secure_aggregation(secure_aggregation):
    """A limit of split learning: the sum over one user's request is that user's gradient."""
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
    requested = state.requested
    slots = sttfedrec.assign_slots(world, state, 0).requested
    numbers = sttfedrec.merge_slots(world, state, 0)[0][slots]
    state = rounds.relay(world, sttfedrec.SLOTS, state, 0, engine)
    state, _ = rounds.play_exchange(world, sttfedrec.TRAIN, state, cohort, 0, engine, 1)
    claims = by_gradients(requested, numbers, state.cut)
    assert (claims >= 0).mean() > 0.8
    hits = [item in positives.of(user) for user, item in enumerate(claims.tolist()) if item >= 0]
    assert np.mean(hits) > 0.95
