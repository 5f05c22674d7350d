"""The BPR kernel equals its slow twin, and skips users who have every item."""

from __future__ import annotations

import numpy as np
import pytest
from slow_twins import bpr
from small_data import SmallData, rows, small_data

from coterie import kernels

KEY = 0xFEDCBA9876543210


def train(data: SmallData, P, Q, b, regs=(0.02, 0.03, 0.04, 0.05), n=400, key=KEY):
    """The kernel on copies, with the inputs read-only."""
    P = P.copy()
    Q = Q.copy()
    b = b.copy()
    kernel = kernels.load("bpr")
    kernel.train_triples(
        data.users,
        data.items,
        data.offsets,
        data.items,
        P,
        Q,
        b,
        0.05,
        *regs,
        np.uint64(key),
        n,
    )
    return P, Q, b


@pytest.mark.parametrize("d", [1, 3, 4, 7, 8, 10])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_slow_twin(d, seed):
    data = small_data(seed)
    P = rows(seed, 9, d)
    Q = rows(seed, 14, d)
    b = rows(seed, 14, 1)[:, 0].copy()
    expected = bpr(data.pairs, data.seen, P, Q, b, 0.05, 0.02, 0.03, 0.04, 0.05, KEY, 400)
    for found, wanted in zip(train(data, P, Q, b), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 513])
def test_any_number_of_triples_equals_the_slow_twin(n):
    """Triples are drawn in batches, whose boundaries must not matter."""
    data = small_data(2)
    P = rows(2, 9, 2)
    Q = rows(2, 14, 2)
    b = np.zeros(14, np.float32)
    expected = bpr(data.pairs, data.seen, P, Q, b, 0.05, 0, 0, 0, 0, KEY, n)
    for found, wanted in zip(train(data, P, Q, b, (0, 0, 0, 0), n), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("which", range(4))
def test_every_regulariser_shrinks_its_own_rows(which):
    """The twin agrees with one strong regulariser, so none is applied in place of another."""
    data = small_data(3)
    P = rows(3, 9, 5)
    Q = rows(3, 14, 5)
    b = rows(3, 14, 1)[:, 0].copy()
    regs = tuple(0.5 if r == which else 0.0 for r in range(4))
    expected = bpr(data.pairs, data.seen, P, Q, b, 0.05, *regs, KEY, 200)
    for found, wanted in zip(train(data, P, Q, b, regs, 200), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_users_with_every_item_change_nothing():
    data = SmallData.of([list(range(6))] * 3, 6)
    before = rows(4, 3, 4), rows(4, 6, 4), np.zeros(6, np.float32)
    for found, wanted in zip(train(data, *before, n=5_000), before, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_user_without_history_is_never_drawn():
    data = small_data(5)
    P = rows(5, 9, 4)
    found, _, _ = train(data, P, rows(5, 14, 4), np.zeros(14, np.float32), n=2_000)
    np.testing.assert_array_equal(found[7], P[7])
    np.testing.assert_array_equal(found[8], P[8])  # has every item
    assert (found[:7] != P[:7]).all()


def test_the_key_decides():
    data = small_data(6)
    before = rows(6, 9, 4), rows(6, 14, 4), np.zeros(14, np.float32)
    one, again, other = (train(data, *before, key=key)[1].tobytes() for key in (1, 1, 2))
    assert one == again != other


def test_read_only_parameters_are_rejected():
    data = small_data(7)
    P = rows(7, 9, 4)
    Q = rows(7, 14, 4)
    b = np.zeros(14, np.float32)
    Q.flags.writeable = False
    with pytest.raises(TypeError):
        kernels.load("bpr").train_triples(
            data.users,
            data.items,
            data.offsets,
            data.items,
            P,
            Q,
            b,
            0.1,
            0,
            0,
            0,
            0,
            np.uint64(1),
            10,
        )
