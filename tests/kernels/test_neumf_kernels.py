"""The NeuMF kernels equal their slow twin, whose gradient equals finite differences and PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float32
from slow_twins import number_below, sigmoid, splitmix64, unseen
from small_data import SmallData, locked, rows, small_data

from coterie import kernels
from coterie.models.neumf import NeuMF
from coterie.types import NOT_FINITE, SCALE

TOWERS = [
    (1, (1,)),
    (2, (3, 5)),
    (3, (9,)),
    (4, (8, 8, 8)),
    (5, (17, 4)),
    (10, (32, 16, 8)),
    (8, (64, 33, 7, 2)),
]
each_tower = pytest.mark.parametrize(("d", "layers"), TOWERS, ids=str)
KEY = 77


# The twin: one sample at a time, in double precision, formula by formula.


@dataclass
class Twin:
    p: np.ndarray  # (2d,)
    q: np.ndarray  # (2d,)
    weights: list[np.ndarray]  # (out, in)
    biases: list[np.ndarray]
    tower: np.ndarray
    gmf: np.ndarray
    bias: np.ndarray

    @classmethod
    def of(cls, p, q, dense, sizes) -> Twin:
        """Views of the arrays, so that steps write to them."""
        weights = []
        biases = []
        at = 0
        d = len(p) // 2
        for n, m in pairwise(sizes.tolist()):
            weights.append(dense[at : at + n * m].reshape(m, n))
            biases.append(dense[at + n * m : at + n * m + m])
            at += n * m + m
        return cls(
            p,
            q,
            weights,
            biases,
            dense[at : at + m],
            dense[at + m : at + m + d],
            dense[at + m + d :],
        )

    def predict(self) -> tuple[float, list[np.ndarray]]:
        d = len(self.gmf)
        xs = [np.concatenate([self.p[d:], self.q[d:]])]
        for w, b in zip(self.weights, self.biases, strict=True):
            xs.append(np.maximum(w @ xs[-1] + b, 0))
        return float(self.tower @ xs[-1] + self.gmf @ (self.p[:d] * self.q[:d]) + self.bias[0]), xs

    def gradient(self, target: float, squared: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The gradient by p, q and dense of the cross-entropy, or of half the squared error."""
        d = len(self.gmf)
        y, xs = self.predict()
        gradient = (y if squared else sigmoid(y)) - target
        parts = [gradient * xs[-1], gradient * self.p[:d] * self.q[:d], [gradient]]
        back = gradient * self.tower
        for w, x_in, x_out in reversed(list(zip(self.weights, xs[:-1], xs[1:], strict=True))):
            back = back * (x_out > 0)
            parts = [np.outer(back, x_in).ravel(), back, *parts]
            back = w.T @ back
        by_p = np.concatenate([gradient * self.gmf * self.q[:d], back[:d]])
        by_q = np.concatenate([gradient * self.gmf * self.p[:d], back[d:]])
        return by_p, by_q, np.concatenate(parts)


def twin_step(p, q, dense, sizes, target, squared, rate, reg) -> None:
    by_p, by_q, by_dense = Twin.of(p, q, dense, sizes).gradient(target, squared)
    p[:] = p - rate * (by_p + reg * p)
    q[:] = q - rate * (by_q + reg * q)
    dense[:] = dense - rate * by_dense


def parameters(
    seed: int, d: int, layers, n_users: int = 9, n_items: int = 14
) -> tuple[np.ndarray, ...]:
    """Random parameters; biases are not zero."""
    start = NeuMF.start(1, 1, d, layers, seed, 0.1)
    dense = start.dense + np.random.default_rng(seed).normal(0, 0.1, len(start.dense)).astype(
        np.float32
    )
    return (
        locked(rows(seed, n_users, 2 * d)),
        locked(rows(seed, n_items, 2 * d)),
        locked(dense),
        locked(start.sizes),
    )


def doubles(*arrays) -> list[np.ndarray]:
    return [a.astype(float) for a in arrays]


@each_tower
@pytest.mark.parametrize("squared", [False, True])
def test_the_gradient_of_the_twin_equals_finite_differences(d, layers, squared):
    users, items, dense, sizes = parameters(3, d, layers)
    parts = doubles(users[0], items[0], dense)
    gradient = Twin.of(*parts, sizes).gradient(0.3, squared)

    def loss() -> float:
        y = Twin.of(*parts, sizes).predict()[0]
        return (y - 0.3) ** 2 / 2 if squared else float(np.logaddexp(0, y)) - 0.3 * y

    for part, gradients in zip(parts, gradient, strict=True):
        for f in range(0, len(part), max(1, len(part) // 40)):
            was = part[f]
            sides = []
            for tiny in (1e-6, -1e-6):
                part[f] = was + tiny
                sides.append(loss())
            part[f] = was
            assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(gradients[f], abs=1e-6)


# A cohort.


@dataclass(frozen=True)
class Cohort:
    offsets: np.ndarray
    items: np.ndarray
    starts: np.ndarray
    places: np.ndarray
    targets: np.ndarray

    @classmethod
    def drawn(cls, seed: int, counts: list[int], n_items: int = 14, rated: bool = False) -> Cohort:
        """Users with these numbers of samples, of random items."""
        rng = np.random.default_rng(seed)
        touched = []
        places = []
        targets = []
        for n in counts:
            drawn = rng.integers(0, n_items, n)
            own, where = np.unique(drawn, return_inverse=True)
            touched.append(own)
            places.append(where)
            targets.append(rng.uniform(1, 5, n) if rated else rng.integers(0, 2, n))
        return cls(
            locked(np.cumsum([0, *map(len, touched)]).astype(np.int64)),
            locked(np.concatenate(touched).astype(np.int32)),
            locked(np.cumsum([0, *counts]).astype(np.int64)),
            locked(np.concatenate(places).astype(np.int32)),
            locked(np.concatenate(targets).astype(np.float32)),
        )

    def of(self, k: int) -> tuple[np.ndarray, list[tuple[int, float]]]:
        """The items of user k, and its samples as (place, target)."""
        own = slice(self.starts[k], self.starts[k + 1])
        pairs = zip(self.places[own].tolist(), self.targets[own].tolist(), strict=True)
        return self.items[self.offsets[k] : self.offsets[k + 1]], list(pairs)


def train_users(
    cohort: Cohort, given, rated=False, rate=0.05, reg=0.02, cuts=()
) -> tuple[np.ndarray, ...]:
    """The changes in fixed point; `cuts` are the borders of the threads' ranges."""
    users, items, dense, sizes = given
    n, width = users.shape
    found = tuple(
        np.full(s, 7, np.int32) for s in ((n, width), (len(cohort.items), width), (n, len(dense)))
    )
    bounds = [0, *cuts, n]
    for first, last in pairwise(bounds):
        kernels.load("neumf_users").train(
            cohort.offsets,
            cohort.items,
            cohort.starts,
            cohort.places,
            cohort.targets,
            users,
            items,
            dense,
            sizes,
            rated,
            rate,
            reg,
            first,
            last,
            *found,
        )
    return found


def twin_users(cohort: Cohort, given, squared=False, rate=0.05, reg=0.02) -> tuple[np.ndarray, ...]:
    users, items, dense, sizes = given
    changes: tuple[list, list, list] = ([], [], [])
    for k in range(len(users)):
        touched, samples = cohort.of(k)
        before = doubles(users[k], items[touched], dense)
        p, q, h = (a.copy() for a in before)
        for place, target in samples:
            twin_step(p, q[place], h, sizes, target, squared, rate, reg)
        for column, now, was in zip(changes, (p, q, h), before, strict=True):
            column.append(now - was)
    return np.array(changes[0]), np.concatenate(changes[1]), np.array(changes[2])


def agree(found, expected) -> None:
    for one, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(one / SCALE, wanted, atol=2e-5)


@each_tower
@pytest.mark.parametrize("rated", [False, True], ids=["choices", "ratings"])
def test_users_equal_the_slow_twin(d, layers, rated):
    cohort = Cohort.drawn(d, [30, 1, 0, 12], rated=rated)
    given = parameters(d, d, layers, n_users=4)
    rate = 0.02 if rated else 0.05
    expected = twin_users(cohort, given, rated, rate)
    assert max(np.abs(part).max() for part in expected) > 0.01
    agree(train_users(cohort, given, rated, rate), expected)


@settings(deadline=None, max_examples=25)
@given(
    st.integers(1, 6),
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
    st.lists(st.integers(0, 15), min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 999),
)
def test_any_tower_and_any_cohort_equal_the_slow_twin(d, layers, counts, rated, seed):
    cohort = Cohort.drawn(seed, counts, rated=rated)
    given = parameters(seed, d, layers, n_users=len(counts))
    agree(train_users(cohort, given, rated, 0.01), twin_users(cohort, given, rated, 0.01))


def test_users_equal_pytorchs_autograd():
    """An oracle independent of the twin: PyTorch modules and optimisers in double precision."""
    torch = pytest.importorskip("torch")
    d = 3
    layers = (9, 4)
    rate = 0.05
    reg = 0.02
    cohort = Cohort.drawn(5, [25])
    given = parameters(5, d, layers, n_users=1)
    users, items, dense, sizes = given
    touched, samples = cohort.of(0)
    twin = Twin.of(*doubles(users[0], items[touched[0]], dense), sizes)
    stack = [torch.nn.Linear(n, m).double() for n, m in pairwise(sizes.tolist())]
    top = torch.nn.Linear(layers[-1] + d, 1).double()
    with torch.no_grad():
        for module, w, b in zip(stack, twin.weights, twin.biases, strict=True):
            module.weight.copy_(torch.tensor(w))
            module.bias.copy_(torch.tensor(b))
        top.weight.copy_(torch.tensor(np.concatenate([twin.tower, twin.gmf])[None]))
        top.bias.copy_(torch.tensor(twin.bias))
    tower = torch.nn.Sequential(*(part for module in stack for part in (module, torch.nn.ReLU())))
    p = torch.tensor(users[0].astype(float), requires_grad=True)
    q = torch.tensor(items[touched].astype(float), requires_grad=True)
    optimiser = torch.optim.SGD([p, q, *tower.parameters(), *top.parameters()], lr=rate)
    for place, target in samples:
        row = q[place]
        y = top(torch.cat([tower(torch.cat([p[d:], row[d:]])), p[:d] * row[:d]]))[0]
        fit = torch.nn.functional.binary_cross_entropy_with_logits(
            y, torch.tensor(target, dtype=y.dtype)
        )
        optimiser.zero_grad()
        (fit + reg / 2 * (p @ p + row @ row)).backward()
        optimiser.step()
    flat = [
        part.detach().numpy().ravel() for module in stack for part in (module.weight, module.bias)
    ]
    flat += [top.weight.detach().numpy().ravel(), top.bias.detach().numpy()]
    after = p.detach().numpy()[None], q.detach().numpy(), np.concatenate(flat)[None]
    agree(
        train_users(cohort, given),
        [a - b for a, b in zip(after, (users, items[touched], dense), strict=True)],
    )


def test_users_do_not_depend_on_their_neighbours():
    """Bit for bit, for any division among threads."""
    cohort = Cohort.drawn(1, [20, 5, 0, 9, 31])
    given = parameters(1, 5, (17, 4), n_users=5)
    whole = train_users(cohort, given)
    for cuts in ([1], [2, 4], [1, 2, 3, 4]):
        for one, other in zip(train_users(cohort, given, cuts=cuts), whole, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_diverging_user_is_marked_and_does_not_affect_the_next(bad):
    """Consecutive users share scratch memory."""
    cohort = Cohort.drawn(2, [8, 20, 8], rated=True)
    given = parameters(2, 3, (9, 4), n_users=3)
    targets = cohort.targets.copy()
    targets[8:28] = bad
    damaged = Cohort(cohort.offsets, cohort.items, cohort.starts, cohort.places, locked(targets))
    clean = train_users(cohort, given, rated=True)
    found = train_users(damaged, given, rated=True)
    for k in (0, 2):
        np.testing.assert_array_equal(found[0][k], clean[0][k])
        np.testing.assert_array_equal(found[2][k], clean[2][k])
    assert (found[2][1] == NOT_FINITE).any()


def test_no_samples_no_change():
    changes = train_users(Cohort.drawn(0, [0, 0]), parameters(0, 4, (8,), n_users=2))
    assert not any(part.any() for part in changes)


# Centralised training.


def train_centralised(
    data: SmallData, order, given, ratings=None, negatives=3, rate=0.05, reg=0.02
):
    users, items, dense, sizes = given
    after = users.copy(), items.copy(), dense.copy()
    kernels.load("neumf").train(
        order,
        data.users,
        data.items,
        np.empty(0, np.float32) if ratings is None else ratings,
        data.offsets,
        data.items,
        *after,
        sizes,
        negatives,
        rate,
        reg,
        np.uint64(KEY),
    )
    return after


def twin_centralised(data: SmallData, order, given, ratings=None, negatives=3, rate=0.05, reg=0.02):
    P, Q, dense = doubles(*given[:3])
    for t, which in enumerate(order.tolist()):
        u, i = data.pairs[which]
        target = 1.0 if ratings is None else float(ratings[which])
        twin_step(P[u], Q[i], dense, given[3], target, ratings is not None, rate, reg)
        free = unseen(data.seen[u], len(Q)) if ratings is None else []
        for s in range(negatives if free else 0):
            j = free[number_below(splitmix64(KEY, t * negatives + s), len(free))]
            twin_step(P[u], Q[j], dense, given[3], 0.0, False, rate, reg)
    return P, Q, dense


@each_tower
@pytest.mark.parametrize("rated", [False, True], ids=["choices", "ratings"])
def test_centralised_training_equals_the_slow_twin(d, layers, rated):
    data = small_data(d)
    given = parameters(d, d, layers)
    rng = np.random.default_rng(d)
    order = locked(rng.permutation(len(data.items)))
    ratings = locked(rng.uniform(1, 5, len(data.items)).astype(np.float32)) if rated else None
    rate = 0.01 if rated else 0.03
    expected = twin_centralised(data, order, given, ratings, rate=rate)
    for found, wanted in zip(
        train_centralised(data, order, given, ratings, rate=rate), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=5e-5)


def test_users_with_every_item_train_on_positives_only():
    data = SmallData.of([list(range(6))] * 3, 6)
    given = parameters(1, 4, (8, 4), 3, 6)
    order = locked(np.random.default_rng(1).permutation(18))
    expected = twin_centralised(data, order, given, negatives=0)
    for found, wanted in zip(
        train_centralised(data, order, given, negatives=5), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=5e-5)


def test_only_the_listed_interactions_are_visited():
    data = small_data(2)
    given = parameters(2, 4, (8, 4))
    order = locked(np.flatnonzero(data.users == 0).astype(np.int64))
    users, *_ = train_centralised(data, order, given)
    assert (users[0] != given[0][0]).any()
    np.testing.assert_array_equal(users[1:], given[0][1:])
    for found, wanted in zip(
        train_centralised(data, np.zeros(0, np.int64), given), given, strict=False
    ):
        np.testing.assert_array_equal(found, wanted)


# Building blocks.


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 20), st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_every_parameter_has_its_own_position(d, layers):
    lay_out = kernels.load("neumf_users").lay_out.py_func
    sizes = np.array([2 * d, *layers])
    n_dense = len(NeuMF.start(1, 1, d, layers, 0, 0.1).dense)
    padded = np.empty(len(sizes), np.int64)
    places = np.full(n_dense, -1, np.int64)
    length = lay_out(sizes, padded, places)
    assert ((padded >= sizes) & (padded < sizes + 8) & (padded % 8 == 0)).all()
    assert len(np.unique(places)) == n_dense
    assert places.min() == 0
    assert places.max() == length - 1


def test_lanes_add_products_with_one_rounding_in_a_fixed_order():
    kernels.load("neumf_users")
    from coterie.kernels.lanes import (
        load,
        minus_product,
        plus_product,
        spread,
        store,
        store_sums,
        where_positive,
    )

    @numba.njit(
        numba.void(float32[::1], float32[::1], float32[::1], float32, float32[:, ::1], float32[::1])
    )
    def all_of_them(a, b, c, number, out, sums):
        x = load(a, 1)
        y = load(b, 1)
        z = load(c, 1)
        store(out[0], 0, plus_product(z, x, y))
        store(out[1], 0, minus_product(z, x, y))
        store(out[2], 0, where_positive(x, y))
        store(out[3], 0, spread(number))
        store_sums(sums, 0, x, y, z, spread(number))

    a, b, c = np.random.default_rng(0).normal(0, 1, (3, 10)).astype(np.float32)
    # A fused a * b - (a * b) is the rounding error of the product.
    c[1:9] = -(a * b)[1:9]
    out = np.empty((4, 8), np.float32)
    sums = np.empty(4, np.float32)
    all_of_them(a, b, c, np.float32(2.5), out, sums)
    exact = [Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[1:9], b[1:9], strict=True)]
    left = [float(e + Fraction(float(z))) for e, z in zip(exact, c[1:9], strict=True)]
    assert any(left)
    assert out[0].tolist() == [float(np.float32(v)) for v in left]
    np.testing.assert_array_equal(out[1], 2 * c[1:9])
    np.testing.assert_array_equal(out[2], np.where(a[1:9] > 0, b[1:9], 0))
    assert (out[3] == 2.5).all()
    for found, x in zip(sums, (a[1:9], b[1:9], c[1:9], out[3]), strict=True):
        halves = x[:4] + x[4:]
        assert found == (halves[0] + halves[1]) + (halves[2] + halves[3])
