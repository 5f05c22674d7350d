"""GMF in batches over all users: by hand, and equal to PyTorch's SGD, SparseAdam and Adam."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from slow_twins import number_below, splitmix64, unseen
from small_data import SmallData, locked, rows, small_data

from coterie import kernels

KEY = 77
NO_RATINGS = np.empty(0, np.float32)
RATE = 0.03
REG = 0.02


@dataclass(frozen=True)
class Values:
    """Parameters and Adam's moments, as the kernel takes them."""

    P: np.ndarray
    Q: np.ndarray
    h: np.ndarray

    @classmethod
    def random(cls, seed: int, d: int, n_users: int = 9, n_items: int = 14) -> Values:
        h = np.random.default_rng(seed).normal(1, 0.3, d + 1).astype(np.float32)
        return cls(rows(seed, n_users, d), rows(seed + 1, n_items, d), h)

    def moments(self) -> list[np.ndarray]:
        return [np.zeros((2, *part.shape), np.float32) for part in (self.P, self.Q, self.h)]

    def copy(self) -> Values:
        return Values(self.P.copy(), self.Q.copy(), self.h.copy())


def train(
    data: SmallData,
    epochs: list[np.ndarray],
    before: Values,
    batch_size: int,
    by_adam: bool,
    ratings: np.ndarray = NO_RATINGS,
    negatives: int = 2,
    rate: float = RATE,
    reg: float = REG,
) -> Values:
    after = before.copy()
    moments = after.moments()
    steps = 0
    for order in epochs:
        kernels.load("gmf_pooled").train(
            order,
            data.users,
            data.items,
            ratings,
            data.offsets,
            data.items,
            after.P,
            after.Q,
            after.h,
            *moments,
            negatives,
            rate,
            reg,
            batch_size,
            by_adam,
            steps,
            np.uint64(KEY),
        )
        steps += -(-len(order) // batch_size)
    return after


def slow_samples(
    data: SmallData, order: np.ndarray, ratings: np.ndarray, negatives: int
) -> list[tuple[int, int, float] | None]:
    """(user, item, target) in order; None for a negative that does not exist."""
    samples: list[tuple[int, int, float] | None] = []
    for s in order.tolist():
        at, which = divmod(s, 1 + negatives)
        u, i = data.pairs[at]
        free = unseen(data.seen[u], data.n_items)
        if len(ratings):
            samples.append((u, i, float(ratings[at])))
        elif which == 0:
            samples.append((u, i, 1.0))
        elif free:
            word = splitmix64(KEY, at * negatives + which - 1)
            samples.append((u, free[number_below(word, len(free))], 0.0))
        else:
            samples.append(None)
    return samples


def by_torch(
    data: SmallData,
    epochs: list[np.ndarray],
    before: Values,
    batch_size: int,
    by_adam: bool,
    ratings: np.ndarray = NO_RATINGS,
    negatives: int = 2,
) -> Values:
    """Autograd and PyTorch's own optimisers in double precision."""
    torch = pytest.importorskip("torch")
    P, Q, h = (
        torch.tensor(part.astype(float), requires_grad=True)
        for part in (before.P, before.Q, before.h)
    )
    if by_adam:
        # SparseAdam adds epsilon before the bias correction, which makes 1e-8 count too much.
        sparse = torch.optim.SparseAdam([P, Q], lr=RATE, eps=1e-12)
        optimisers = [sparse, torch.optim.Adam([h], lr=RATE)]
    else:
        optimisers = [torch.optim.SGD([P, Q, h], lr=RATE)]
    for order in epochs:
        samples = slow_samples(data, order, ratings, negatives)
        for begin in range(0, len(samples), batch_size):
            batch = [s for s in samples[begin : begin + batch_size] if s is not None]
            users, items, targets = (torch.tensor(part) for part in zip(*batch, strict=True))
            p = torch.nn.functional.embedding(users, P, sparse=True)
            q = torch.nn.functional.embedding(items, Q, sparse=True)
            y = (p * q) @ h[:-1] + h[-1]
            targets = targets.double()
            if len(ratings):
                each = (y - targets) ** 2 / 2
            else:
                each = torch.nn.functional.binary_cross_entropy_with_logits(
                    y, targets, reduction="none"
                )
            each = each + REG / 2 * ((p**2).sum(1) + (q**2).sum(1))
            for optimiser in optimisers:
                optimiser.zero_grad()
            each.mean().backward()
            for optimiser in optimisers:
                optimiser.step()
    return Values(*(part.detach().numpy() for part in (P, Q, h)))


def assert_equal(found: Values, expected: Values, atol: float) -> None:
    for name in ("P", "Q", "h"):
        np.testing.assert_allclose(
            getattr(found, name), getattr(expected, name), atol=atol, rtol=0, err_msg=name
        )


def epochs_of(data: SmallData, seed: int, per_positive: int, n: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [locked(rng.permutation(len(data.items) * per_positive)) for _ in range(n)]


both_optimisers = pytest.mark.parametrize("by_adam", [False, True], ids=["sgd", "adam"])


@both_optimisers
@pytest.mark.parametrize(("d", "batch_size"), [(1, 1), (4, 7), (5, 32), (3, 10**6)])
def test_implicit_feedback_equals_pytorch_over_epochs(d, batch_size, by_adam):
    data = small_data(d)
    if batch_size == 1:
        # Without the user who has every item: PyTorch cannot take a step on an empty batch.
        data = SmallData.of(data.histories[:-1], data.n_items)
    before = Values.random(d, d)
    epochs = epochs_of(data, d, per_positive=3)
    found = train(data, epochs, before, batch_size, by_adam)
    # Adam divides by the size of a gradient, which magnifies rounding.
    atol = 2e-4 if by_adam else 1e-5
    assert_equal(found, by_torch(data, epochs, before, batch_size, by_adam), atol)
    assert np.abs(found.P - before.P).max() > 100 * atol


@both_optimisers
def test_ratings_equal_pytorch_over_epochs(by_adam):
    data = small_data(5)
    before = Values.random(5, 4)
    ratings = locked(np.random.default_rng(5).uniform(1, 5, len(data.items)).astype(np.float32))
    epochs = epochs_of(data, 5, per_positive=1)
    found = train(data, epochs, before, 8, by_adam, ratings, 0)
    expected = by_torch(data, epochs, before, 8, by_adam, ratings, 0)
    assert_equal(found, expected, atol=2e-4)


def test_a_batch_moves_by_the_mean_of_its_gradients():
    """Users 0 and 1 rate item 0 with 4; p = 2 and 3, q = 1, h = 1, b = 0, so y - r is -2 and -1.

    With rate 0.1 and reg 0.2: p_0 moves by -0.1 (-2 + 0.2 * 2) / 2, p_1 by -0.1 (-1 + 0.6) / 2,
    q by -0.1 (-2 * 2 - 1 * 3 + 0.2 * 2) / 2, h by -0.1 (-4 - 3) / 2, b by -0.1 (-2 - 1) / 2.
    """
    data = SmallData.of([[0], [0]], 1)
    before = Values(*(np.array(v, np.float32) for v in ([[2], [3]], [[1]], [1, 0])))
    ratings = np.array([4, 4], np.float32)
    found = train(data, [np.arange(2)], before, 2, False, ratings, 0, rate=0.1, reg=0.2)
    np.testing.assert_allclose(found.P, [[2.08], [3.02]], rtol=1e-6)
    np.testing.assert_allclose(found.Q, [[1.33]], rtol=1e-6)
    np.testing.assert_allclose(found.h, [1.35, 0.15], rtol=1e-6)


def test_adam_moves_by_the_learning_rate_in_its_first_step_and_not_outside_the_batch():
    data = SmallData.of([[0], [1]], 2)
    before = Values(*(np.array(v, np.float32) for v in ([[2], [3]], [[1], [1]], [1, 0])))
    ratings = np.array([4, 4], np.float32)
    found = train(data, [np.array([0])], before, 1, True, ratings, 0, rate=0.1, reg=0.0)
    np.testing.assert_allclose(found.P, [[2.1], [3]], rtol=1e-6)
    np.testing.assert_allclose(found.Q, [[1.1], [1]], rtol=1e-6)


def test_users_with_every_item_train_on_positives_only():
    """A batch that consists of impossible negatives changes nothing."""
    data = SmallData.of([list(range(4))], 4)
    before = Values.random(1, 3, 1, 4)
    impossible = np.array([1, 2, 4, 5])
    assert_equal(train(data, [impossible], before, 2, True), before, atol=0)
    positives = np.array([0, 3, 6, 9])
    assert np.abs(train(data, [positives], before, 2, True).P - before.P).max() > 0
