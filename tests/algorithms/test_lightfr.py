"""LightFR: rounds equal a slow twin, one bit at a time descends, and what an update gives away."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from drawn_samples import by_user
from pydantic import ValidationError
from slow_lightfr import Target, item_codes, own_code, squared_error
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import kernels
from coterie.algorithms import lightfr
from coterie.algorithms.local.samples import draw_from
from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import World
from coterie.kernels.fallback import lightfr as without_numba
from coterie.models import binary_codes
from coterie.models.binary_codes import BinaryCodes, packed, unpacked
from coterie.models.new_user import NewUser
from coterie.testing import FederatedAlgorithmTests

FEW: dict[str, Any] = {
    "bits": 13,
    "bits_per_round": 4,
    "rounds": 5,
    "participation": 0.6,
    "item_inertia": 1.0,
}


class TestConformance(FederatedAlgorithmTests):
    algorithm = "lightfr"


class TestConformanceOfTheAuthorsReadings(FederatedAlgorithmTests):
    algorithm = "lightfr"
    settings: ClassVar[dict[str, Any]] = {
        "bits": 30,
        "bits_per_round": 30,
        "inertia_by": "cohort",
        "item_inertia": 0.5,
        "participation": 1.0,
        "low_ratings": "dropped",
    }


# Rounds


def scaled(s: lightfr.LightFR, value: float, rated: bool) -> int:
    """r"""
    low, high = (s.lowest_rating, s.highest_rating) if rated else (0.0, 1.0)
    return round(s.bits * (2 * (value - low) / (high - low) - 1))


def targets_of(
    world: World, training: TrainingSet, cohort: np.ndarray, t: int
) -> list[list[Target]]:
    """The items of every client, each once, and what their products should be."""
    s = world.settings
    (node,) = LocalEngine.over(world, training, 1).nodes
    keys = streams.keys(node.seed, "samples", t, last=cohort)
    samples = by_user(draw_from(training, cohort.astype(np.int64), s.negatives, 1, keys))
    rated = training.ratings is not None
    found = []
    for own in samples:
        r = {item: scaled(s, value, rated) for item, value in own}
        if rated and s.low_ratings == "dropped":
            r = {item: value for item, value in r.items() if value > 0}
        found.append(list(r.items()))
    return found


@pytest.mark.parametrize("rated", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"inertia": 0.0, "bits_per_round": 13},
        {"inertia_by": "cohort", "item_inertia": 0.25},
        {"low_ratings": "dropped", "local_sweeps": 1},
        {"bits": 64, "bits_per_round": 30, "inertia": 0.5},
    ],
)
def test_rounds_equal_the_twin(changes, rated):
    training = histories(4, n_users=14, n_items=11, rated=rated)
    world = world_for("lightfr", training, **FEW | changes)
    s = world.settings
    states, all_costs = play("lightfr", world, LocalEngine.over(world, training, 1))
    moved = 0
    for t, costs in enumerate(all_costs):
        B = unpacked(states[t].user_codes, s.bits).astype(int)
        D = unpacked(states[t].item_codes, s.bits).astype(int)
        targets = targets_of(world, training, costs.users, t)
        codes = []
        for k, own in zip(costs.users.tolist(), targets, strict=True):
            B[k] = own_code(B[k], D, own, s)
            codes.append(B[k])
        bits = [(t * s.bits_per_round + n) % s.bits for n in range(s.bits_per_round)]
        after = item_codes(D, codes, targets, bits, s)
        np.testing.assert_array_equal(unpacked(states[t + 1].user_codes, s.bits), B)
        np.testing.assert_array_equal(unpacked(states[t + 1].item_codes, s.bits), after)
        moved += np.count_nonzero(after != D)
    assert moved > 2


def test_one_bit_at_a_time_never_raises_the_error():
    """Discrete coordinate descent: with ratings of all users, nothing is drawn."""
    training = histories(3, n_users=14, n_items=11, rated=True)
    exact = {"bits_per_round": 1, "participation": 1.0, "inertia": 0.5, "rounds": 26}
    world = world_for("lightfr", training, **FEW | exact)
    s = world.settings
    states, all_costs = play("lightfr", world, LocalEngine.over(world, training, 1))
    found = []
    for t, costs in enumerate(all_costs):
        targets = targets_of(world, training, costs.users, t)
        codes = list(unpacked(states[t + 1].user_codes, s.bits)[costs.users].astype(int))
        for state in (states[t], states[t + 1]):
            found.append(squared_error(unpacked(state.item_codes, s.bits), codes, targets))
    assert found == sorted(found, reverse=True)
    assert found[-1] < 0.6 * found[0]


@pytest.mark.parametrize("inertia", [0.0, 0.6])
def test_the_fallback_equals_the_kernel(inertia):
    rng = np.random.default_rng(1)
    offsets = np.array([0, 5, 5, 9, 16])
    items = rng.integers(0, 12, 16).astype(np.int32)
    targets = rng.integers(-20, 21, 16).astype(np.int32)
    codes = rng.choice(np.array([-1, 1], np.int8), (4, 20))
    D = rng.choice(np.array([-1, 1], np.int8), (12, 20))
    chosen = np.array([3, 19, 0])
    found = []
    for module in (kernels.load("lightfr"), without_numba):
        after = np.zeros_like(codes)
        pulls = np.zeros((16, 3), np.int32)
        module.train(offsets, items, targets, codes, D, chosen, inertia, 9, 0, 4, after, pulls)
        found.append((after, pulls))
    for by_kernel, by_fallback in zip(*found, strict=True):
        np.testing.assert_array_equal(by_kernel, by_fallback)
    assert (found[0][0] != codes).any()


# What leaves a client


def test_an_item_takes_a_bit_of_the_message_for_each_of_its_code():
    training = histories(6, n_users=18, n_items=15)
    small = play_locally("lightfr", training, **FEW | {"bits": 16})[1][0]
    large = play_locally("lightfr", training, **FEW | {"bits": 80})[1][0]
    # 15 items of 8 more bytes for each client, and the padding of a message.
    assert large.bytes_down - small.bytes_down == pytest.approx(15 * 8 * len(small.users), abs=99)


def test_an_update_in_the_clear_gives_away_code_and_history():
    """The numbers of an item differ in sign alone, by the client's code; their size is the error.

    With the other sign, positives and negatives change places. Negatives are drawn in every round,
    so that a second round tells which are which.
    """
    training = histories(6, n_users=18, n_items=15)
    world = world_for("lightfr", training, **FEW | {"bits_per_round": 13})
    engine = LocalEngine.over(world, training, 1)
    users = np.arange(6, dtype=np.int32)
    message = lightfr.broadcast(world, lightfr.init(world), users, 0)
    own = engine.gather(lightfr.init_clients)["user_codes"][users]
    message.private_state["user_codes"] = own
    updates, private = lightfr.client_update(world, message, engine.nodes[0])
    D = unpacked(message.common["item_codes"], 13).astype(int)
    codes = unpacked(private["user_codes"], 13)
    for k in users:
        items = updates.items[updates.offsets[k] : updates.offsets[k + 1]]
        pulls = updates.item_rows[updates.offsets[k] : updates.offsets[k + 1]]
        code = np.sign(pulls[np.abs(pulls[:, 0]).argmax()])
        targets = pulls @ code // 13 + D[items] @ code
        assert set(np.abs(targets)) == {13}
        either = (code, items[targets > 0]), (-code, items[targets < 0])
        (found,) = [guess for own, guess in either if (own == codes[k]).all()]
        np.testing.assert_array_equal(found, training.positives.of(int(k)))


def test_secure_aggregation_gives_the_same_bits():
    training = histories(6, n_users=30, n_items=20)
    secure = {"secure_aggregation": "secagg", "colluders": 0, "group_size": 20}
    changes = FEW | {"participation": 1.0}
    plain, _ = play_locally("lightfr", training, wire=True, **changes)
    masked, _ = play_locally("lightfr", training, wire=True, **changes, **secure)
    assert sha256(plain[-1]) == sha256(masked[-1])


# The model


def test_codes_are_packed_into_bits_and_back():
    signs = np.array([[1, -1, -1, 1, 1, -1, 1, 1, -1], [1] * 9], np.int8)
    codes = packed(signs)
    np.testing.assert_array_equal(codes, [[0b10011011, 0], [0xFF, 0x80]])
    np.testing.assert_array_equal(unpacked(codes, 9), signs)


@pytest.mark.parametrize("bits", [1, 8, 64, 65, 200])
def test_scores_are_inner_products(bits):
    rng = np.random.default_rng(bits)
    B, D = (rng.choice(np.array([-1, 1], np.int8), (n, bits)) for n in (4, 7))
    model = BinaryCodes(
        packed(B),
        packed(D),
        np.array([bits]),
        np.array([0.5], np.float32),
        np.array([3], np.float32),
    )
    products = 0.5 * (B.astype(int) @ D.T.astype(int)) + 3
    users = np.arange(4, dtype=np.int32)
    np.testing.assert_array_equal(model.score(users), products)
    picked = rng.integers(0, 7, (4, 3)).astype(np.int32)
    taken = np.take_along_axis(products, picked, axis=1)
    np.testing.assert_array_equal(model.score(users, picked), taken)
    similar = model.similar_items(2)
    np.testing.assert_allclose(similar, D.astype(int) @ D[2].astype(int) / bits, atol=1e-6)


def test_blocks_of_codes_change_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    left, right = (rng.integers(0, 256, (n, 9)).astype(np.uint8) for n in (3, 50))
    whole = binary_codes.distances(left, right)
    monkeypatch.setattr(binary_codes, "BLOCK", 7)
    np.testing.assert_array_equal(binary_codes.distances(left, right), whole)
    by_bits = np.unpackbits(left[:, None] ^ right, axis=2).sum(axis=2)
    np.testing.assert_array_equal(whole, by_bits)


def test_predicted_ratings_are_in_the_range_of_ratings():
    training = histories(4, n_users=14, n_items=11, rated=True)
    world = world_for("lightfr", training, **FEW | {"lowest_rating": 2.0, "highest_rating": 4.0})
    states, _ = play("lightfr", world, LocalEngine.over(world, training, 1))
    scores = lightfr.model(world, states[-1]).score(np.arange(14, dtype=np.int32))
    assert 2 - 1e-6 < scores.min() < scores.max() < 4 + 1e-6


def test_a_new_user_by_hand():
    """One item, no bit of it held: the code is the item's, and its score is k."""
    D = np.array([[1, -1, 1], [-1, -1, 1]], np.int8)
    none = np.zeros((0, 1), np.uint8)
    one = np.ones(1, np.float32)
    model = BinaryCodes(none, packed(D), np.array([3]), one, 0 * one)
    settings = lightfr.LightFR(bits=3, inertia=0.5, negatives=1)
    scores = lightfr.score_new_user(model, NewUser(items=np.zeros(1, np.int32)), settings)
    # Targets 3 and -3: the first bit tells the items apart, and the others have no say.
    assert scores[0] == scores[1] + 2


def test_ratings_without_a_range_are_refused():
    with pytest.raises(ValidationError, match=r"'lowest_rating' is 5\.0.*Set both"):
        lightfr.LightFR(lowest_rating=5, highest_rating=5)
