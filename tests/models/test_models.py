"""Models: parameters, scores by hand, saving as plain arrays, and memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from coterie.core import streams
from coterie.errors import ConfigError, UnknownName
from coterie.experiments.config import Choice
from coterie.models import factors
from coterie.models.additive_scores import AdditiveScores
from coterie.models.binary_codes import BinaryCodes
from coterie.models.directions import Directions
from coterie.models.factors import Factors
from coterie.models.gmf import GMF
from coterie.models.gmf_groups import GMFGroups
from coterie.models.kinds import KINDS, kind
from coterie.models.lightgcn import LightGCN
from coterie.models.linear import ItemWeights, PrivateItemWeights
from coterie.models.multivae import LOWEST, MultVAE
from coterie.models.neighbours import ItemNeighbours, PrivateItemNeighbours, UserNeighbours
from coterie.models.neumf import NeuMF
from coterie.models.personal_scores import PersonalScores
from coterie.models.popular import ItemCounts
from coterie.models.private_factors import PrivateFactors
from coterie.models.private_gmf import PrivateGMF
from coterie.models.private_neumf import PrivateNeuMF
from coterie.models.random import RandomScores
from coterie.models.recommender import Recommender


def floats(*values) -> np.ndarray:
    return np.array(values, np.float32)


def ints(*values) -> np.ndarray:
    return np.array(values, np.int32)


def longs(*values) -> np.ndarray:
    return np.array(values, np.int64)


def some_of_each() -> list[Recommender]:
    """Two users, three items."""
    return [
        Factors(floats([1, 2], [0, -1]), floats([1, 0], [0, 1], [1, 1]), floats(0, 10, 0)),
        GMF(floats([1, 2], [0, -1]), floats([1, 0], [0, 1], [1, 1]), floats(2, 3), floats(0.5)),
        ItemCounts(floats(5, 0, 2)),
        RandomScores(3, 3),
        ItemWeights(
            floats([0, 1, 2], [3, 0, 4], [5, 6, 0]),
            np.array([0, 2, 3], np.int64),
            np.array([0, 2, 1], np.int32),
        ),
        NeuMF(  # weights, biases, h for the tower, h for GMF, b
            floats([1, 2], [0, -1]),
            floats([1, 0], [0, 1], [1, 1]),
            floats(1, 2, -1, 1, 0, 0.5, 1, 10, 3, 0.25),
            np.array([2, 2], np.int64),
        ),
        GMFGroups(  # the first user is in the second group, and the second in the first
            floats([1, 2], [0, -1]),
            floats([[1, 0], [0, 1], [1, 1]], [[2, 0], [0, 0], [1, -1]]),
            floats([2, 3], [1, 1]),
            floats(0.5, -1),
            np.array([1, 0], np.int32),
        ),
        PrivateFactors(floats([1, 2], [0, -1]), floats([1, 0], [0, 1], [1, 1]), floats(0, 10, 0)),
        UserNeighbours(  # each is the other's only neighbour; histories (0, 2) and (1)
            longs(0, 1, 2),
            ints(1, 0),
            floats(0.5, 0.25),
            longs(0, 2, 3),
            ints(0, 2, 1),
            3,
            1,
            0.0,
        ),
        ItemNeighbours(  # item 0 is near to 1, and 1 to 0; the same histories
            longs(0, 1, 2, 2), ints(1, 0), floats(2, 3), longs(0, 2, 3), ints(0, 2, 1)
        ),
        MultVAE(  # trained on items 0 and 2; the decoder's output is one half for any input
            floats([1], [2]),
            floats(0),
            floats([1, 0]),
            floats(0, 0),
            floats([0]),
            floats(np.arctanh(0.5)),
            floats([2], [4]),
            floats(0, 1),
            ints(0, 2),
            longs(0, 2, 3),
            ints(0, 1, 1),
            3,
        ),
        Directions(
            floats([0.6, 0.8], [1, 0]),
            np.array([[127, 0], [0, -127], [64, 32]], np.int8),
            floats(1 / 127, 1 / 127, 0.01),
        ),
        LightGCN(
            floats([1, 2], [0, -1]),
            floats([1, 0], [3, 4], [2, 0.5]),
            floats(0, 0, 0),
            floats([1, 0], [0, 1], [1, 1]),
        ),
        PrivateItemWeights(
            floats([0, 1, 2], [3, 0, 4], [5, 6, 0]),
            np.array([[0b10100000], [0b01000000]], np.uint8),
        ),
        PrivateItemNeighbours(  # as above: item 0 is near to 1, and 1 to 0
            longs(0, 1, 2, 2),
            ints(1, 0),
            floats(2, 3),
            np.array([[0b10100000], [0b01000000]], np.uint8),
        ),
        PrivateGMF(
            floats([1, 2], [0, -1]), floats([1, 0], [0, 1], [1, 1]), floats(2, 3), floats(0.5)
        ),
        PrivateNeuMF(
            floats([1, 2], [0, -1]),
            floats([1, 0], [0, 1], [1, 1]),
            floats(1, 2, -1, 1, 0, 0.5, 1, 10, 3, 0.25),
            np.array([2, 2], np.int64),
        ),
        PersonalScores(floats([1, 2, 3], [4, 5, 6]), floats([1, 0], [0, 1], [1, 1])),
        AdditiveScores(  # the bias of a user is in the first table
            floats([1, 2, 3], [4, 5, 6]),
            floats([1, 0, 9], [0, 2, 9]),
            floats([1, 0], [0, 1], [1, 1]),
        ),
        BinaryCodes(  # of three bits; the last five of a byte are not used
            np.array([[0b10100000], [0b00000000]], np.uint8),
            np.array([[0b10100000], [0b01000000], [0b10000000]], np.uint8),
            np.array([3], np.int64),
            floats(0.5),
            floats(3),
        ),
    ]


each_model = pytest.mark.parametrize("model", some_of_each(), ids=lambda m: m.kind)


@pytest.mark.parametrize(
    ("model", "by_hand"),
    [
        (some_of_each()[0], [[1, 12, 3], [0, 9, -1]]),
        (some_of_each()[1], [[2.5, 6.5, 8.5], [0.5, -2.5, -2.5]]),
        (some_of_each()[2], [[5, 0, 2], [5, 0, 2]]),
        (some_of_each()[4], [[5, 7, 2], [3, 0, 4]]),
        (
            some_of_each()[5],
            [[3 + 2 + 0.25, 4 + 0.25, 3 + 4 + 0.25], [15 + 0.25, 1 + 25 + 0.25, 1 + 25 + 0.25]],
        ),
        (some_of_each()[6], [[1, -1, -2], [0.5, -2.5, -2.5]]),
        (some_of_each()[7], [[1, 12, 3], [0, 9, -1]]),
        (some_of_each()[8], [[0, 0.5, 0], [0.25, 0, 0.25]]),
        (some_of_each()[9], [[0, 2, 0], [3, 0, 0]]),
        (some_of_each()[10], [[1, LOWEST, 3], [1, LOWEST, 3]]),
        (some_of_each()[11], [[0.6, -0.8, 0.384 + 0.256], [1, 0, 0.64]]),
        (some_of_each()[12], [[1, 11, 3], [0, -4, -0.5]]),
        (some_of_each()[13], [[5, 7, 2], [3, 0, 4]]),
        (some_of_each()[14], [[0, 2, 0], [3, 0, 0]]),
        (some_of_each()[15], [[2.5, 6.5, 8.5], [0.5, -2.5, -2.5]]),
        (
            some_of_each()[16],
            [[3 + 2 + 0.25, 4 + 0.25, 3 + 4 + 0.25], [15 + 0.25, 1 + 25 + 0.25, 1 + 25 + 0.25]],
        ),
        (some_of_each()[17], [[1, 2, 3], [4, 5, 6]]),
        (some_of_each()[18], [[1 + 1, 2, 3 + 1], [4, 5 + 2, 6 + 2]]),
        (some_of_each()[19], [[4.5, 1.5, 3.5], [2.5, 3.5, 3.5]]),
    ],
    ids=[
        "factors",
        "gmf",
        "popular",
        "ease",
        "neumf",
        "gmf-groups",
        "private",
        "userknn",
        "itemknn",
        "multivae",
        "directions",
        "lightgcn",
        "private-item-weights",
        "private-item-neighbours",
        "private-gmf",
        "private-neumf",
        "personal-scores",
        "additive-scores",
        "binary-codes",
    ],
)
def test_scores_by_hand(model, by_hand):
    users = np.array([0, 1], np.int32)
    np.testing.assert_allclose(model.score(users), by_hand, rtol=1e-6)
    picked = model.score(users[::-1], np.array([[2, 0], [1, 1]], np.int32))
    first, second = by_hand
    np.testing.assert_allclose(picked, [[second[2], second[0]], [first[1], first[1]]], rtol=1e-6)


@each_model
def test_arrays_and_back(model):
    back = type(model).from_arrays(model.arrays())
    users = np.array([1, 0], np.int32)
    np.testing.assert_array_equal(back.score(users), model.score(users))
    assert kind(model.kind) is type(model)


def test_a_new_user_of_lightgcn_by_hand():
    """Without a part of its own, which this regularisation forbids: ((1, 0) + (1, 1)) / sqrt(2)."""
    scores = some_of_each()[12].score_new_user(ints(0, 2), layers=2, reg=1e6)
    np.testing.assert_allclose(scores, np.array([2, 6 + 4, 4 + 0.5]) / np.sqrt(2), rtol=1e-4)


def test_every_kind_is_covered_here():
    assert {model.kind for model in some_of_each()} == set(KINDS)


def test_an_unknown_kind_gets_a_suggestion():
    with pytest.raises(
        UnknownName, match=r"unknown kind of model 'factor' .*\. Did you mean 'factors'\?"
    ):
        kind("factor")


@pytest.mark.parametrize("seed", [0, 2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**70])
def test_a_seed_that_is_accepted_can_be_saved(seed):
    """Without pickle, which run folders reject; a seed too large for an array is rejected."""
    try:
        Choice.of({"algorithm": "random", "seed": seed})
    except ConfigError as error:
        assert "'seed'" in str(error)  # noqa: PT017
        return
    assert all(array.dtype.kind in "iuf" for array in RandomScores(seed, 4).arrays().values())


def test_random_scores_are_uniform_and_tell_users_and_items_apart():
    scores = RandomScores(0, 500).score(np.arange(400, dtype=np.int32)).astype(float)
    assert (scores >= 0).all()
    assert (scores < 1).all()
    assert np.histogram(scores, 10, (0, 1))[0] == pytest.approx(np.full(10, 20_000), rel=0.03)
    assert abs(np.corrcoef(scores)[np.triu_indices(400, 1)].mean()) < 0.002
    assert abs(np.corrcoef(scores.T)[np.triu_indices(500, 1)].mean()) < 0.002


def test_start_values_have_the_given_scale_and_streams_of_their_own():
    start = Factors.start(2_000, 1_000, 8, seed=0, scale=0.1)
    assert start.user_rows.std() == pytest.approx(0.1, rel=0.02)
    assert not start.item_bias.any()
    assert not np.array_equal(start.user_rows[:1_000], start.item_rows)
    assert (
        Factors.start(5, 9, 3, 1, 0.1).user_rows == Factors.start(5, 99, 3, 1, 0.1).user_rows
    ).all()


@pytest.mark.parametrize(
    "model",
    [
        Factors.start(600, 20_000, 4, 0, 0.1),
        GMF.start(600, 20_000, 4, 0, 0.1),
        NeuMF.start(600, 20_000, 4, (8, 4), 0, 0.1),
        ItemCounts(np.ones(20_000, np.float32)),
        RandomScores(0, 20_000),
    ],
    ids=lambda m: m.kind,
)
def test_scoring_candidates_does_not_score_everything(model):
    """51 candidates of 600 users among 20,000 items: no array of users times items."""
    users = np.arange(600, dtype=np.int32)
    items = np.random.default_rng(0).integers(0, 20_000, (600, 51)).astype(np.int32)
    tracemalloc.start()
    model.score(users, items)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 600 * 20_000 * 4 / 4


def test_initial_rows_do_not_depend_on_the_blocks_that_draw_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = streams.keys(5, "start users", last=np.arange(100))
    at_once = (streams.normal(keys, 7) * 0.1).astype(np.float32)
    for block in (1, 3, 64, 1000):
        monkeypatch.setattr(factors, "BLOCK", block)
        assert np.array_equal(factors.rows(100, 7, 5, "users", 0.1), at_once)
    some = np.array([3, 50, 99], np.int32)
    assert np.array_equal(factors.rows_of(some, 7, 5, "users", 0.1), at_once[some])
