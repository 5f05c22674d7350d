"""GMF in batches, with SGD and Adam.

Compared with numbers by hand, PyTorch's optimisers, the slow twin, and the kernel for single
samples.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_data import locked, rows
from small_federation import histories, world_for

from coterie import kernels
from coterie.algorithms.local import gmf
from coterie.algorithms.local.learner import Changes, Parameters
from coterie.algorithms.local.samples import Samples, draw
from coterie.federated.federation import NodeData
from coterie.kernels.fallback import gmf_batches as slow_twin
from coterie.kernels.fallback import gmf_users as slow_single_samples
from coterie.types import NOT_FINITE, SCALE, TOO_LARGE

BATCHES = [1, 3, 8, 10**9]
both_losses = pytest.mark.parametrize("rated", [False, True], ids=["choices", "ratings"])
both_optimisers = pytest.mark.parametrize("by_adam", [False, True], ids=["sgd", "adam"])


class Cohort:
    """The samples of twelve users in a round; one user has no history, one has every item."""

    def __init__(self, seed: int, d: int = 5, rated: bool = False, epochs: int = 2) -> None:
        training = histories(seed, rated=rated)
        users = np.arange(training.n_users, dtype=np.int32)
        world = world_for("fedavg", training, seed, local_epochs=epochs)
        self.rated = rated
        self.n = len(users)
        self.samples = draw(world, users, 0, NodeData(users, training))
        output = np.random.default_rng(seed).normal(1, 0.3, d)
        self.given = Parameters(
            locked(rows(seed, self.n, d)),
            locked(rows(seed + 1, 15, d)),
            locked(np.append(output, 0.2).astype(np.float32)),
        )

    def train(
        self, batch_size: int, by_adam: bool, family=None, cuts=None, rate=0.02, reg=0.02
    ) -> Changes:
        return train(
            self.given,
            self.samples,
            self.rated,
            rate,
            reg,
            batch_size,
            by_adam,
            family=family,
            cuts=cuts or [0, self.n],
        )


def train(
    given: Parameters,
    samples: Samples,
    rated: bool,
    rate: float,
    reg: float,
    *how,
    family=None,
    cuts=None,
) -> Changes:
    """Call a kernel family or its twin directly."""
    n, d = given.user_rows.shape
    shapes = (n, d), (len(samples.items), d), (n, d + 1)
    changes = Changes(*(np.full(shape, 123_456_789, np.int32) for shape in shapes))
    family = family or kernels.load("gmf_batches")
    in_batches = family in (kernels.load("gmf_batches"), slow_twin)
    sums = (np.empty((0, 0), np.int64), np.empty(0, np.int8)) if in_batches else ()
    for first, last in pairwise(cuts or [0, n]):
        family.train(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            given.user_rows,
            given.item_rows,
            given.dense,
            rated,
            rate,
            reg,
            *how,
            first,
            last,
            *changes,
            *sums,
        )
    return changes


def single_user(p, q, dense, places, targets) -> tuple[Parameters, Samples]:
    """The parameters and samples of one user who touches every row."""
    given = Parameters(
        np.array([p], np.float32), np.array(q, np.float32), np.array(dense, np.float32)
    )
    samples = Samples(
        np.array([0, len(q)]),
        np.arange(len(q), dtype=np.int32),
        np.array([0, len(places)]),
        np.array(places, np.int32),
        np.array(targets, np.float32),
    )
    return given, samples


def assert_within(found: Changes, expected, atol: float) -> None:
    for one, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(one / SCALE, wanted, atol=atol, rtol=0)


# By hand: y = h p q + b with h = 1, b = 0, p = 2 and q = (1, 3) is (2, 6).
# Both ratings are 4, so y - r is (-2, 2).

BY_HAND = single_user([2], [[1], [3]], [1, 0], [0, 1], [4, 4])


def test_a_batch_moves_by_the_mean_of_its_gradients():
    """Gradients are means over two samples, with reg 0.1:

    p: (-2*1 + 2*3)/2 + 0.2; q: (-2*2)/2 + 0.05 and (2*2)/2 + 0.15; h: (-2*2 + 2*6)/2; b: 0.
    """
    users, items, dense = (c / SCALE for c in train(*BY_HAND, True, 0.1, 0.1, 2, False))
    np.testing.assert_allclose(users, [[-0.22]], atol=1e-6)
    np.testing.assert_allclose(items, [[0.195], [-0.215]], atol=1e-6)
    np.testing.assert_allclose(dense, [[-0.4, 0]], atol=1e-6)


def test_the_first_step_of_adam_is_one_learning_rate_long():
    """After bias correction m = g and v = g^2.

    The step is rate * g / (|g| + 1e-8), and zero where the gradient is zero.
    """
    users, items, dense = (c / SCALE for c in train(*BY_HAND, True, 0.1, 0.1, 2, True))
    np.testing.assert_allclose(users, [[-0.1]], atol=1e-6)
    np.testing.assert_allclose(items, [[0.1], [-0.1]], atol=1e-6)
    np.testing.assert_allclose(dense, [[-0.1, 0]], atol=1e-6)


def test_an_item_that_is_twice_in_a_batch_gets_both_gradients_and_moves_once():
    """With q = 0 and y = 0, the gradients of targets 1 and 0 are -1/2 and 1/2, and cancel."""
    same = single_user([1], [[0]], [1, 0], [0, 0], [1, 0])
    assert not any(c.any() for c in train(*same, False, 0.5, 0.0, 2, False))
    assert not any(c.any() for c in train(*same, False, 0.5, 0.0, 2, True))
    twice = single_user([1], [[0]], [1, 0], [0, 0], [1, 1])
    assert train(*twice, False, 0.5, 0.0, 2, False).item_rows[0, 0] / SCALE == pytest.approx(0.25)
    assert train(*twice, False, 0.5, 0.0, 2, True).item_rows[0, 0] / SCALE == pytest.approx(
        0.5, abs=1e-6
    )


def test_adams_step_count_includes_batches_without_the_row():
    """Row 1 first occurs in step 3, with g = 1: m = 0.1, v = 0.001, bias-corrected for t = 3."""
    given, samples = single_user([1], [[0], [0]], [1, 0], [0, 0, 1], [0, 0, -1])
    change = train(given, samples, True, 0.1, 0.0, 1, True).item_rows[:, 0] / SCALE
    m = 0.1 / (1 - 0.9**3)
    v = 0.001 / (1 - 0.999**3)
    assert change.tolist() == pytest.approx([0, -0.1 * m / np.sqrt(v)], abs=1e-6)


def test_the_last_batch_may_be_smaller():
    """Three samples make a batch of two and a batch of one, whose mean is over one sample."""
    given, samples = single_user([1], [[0], [0], [0]], [1, 0], [0, 1, 2], [1, 0, 1])
    change = train(given, samples, False, 0.1, 0.0, 2, False).item_rows[:, 0] / SCALE
    assert change[0] == pytest.approx(0.1 * 0.5 / 2, abs=1e-6)
    assert change[2] == pytest.approx(0.1 * 0.5, rel=1e-3)


# PyTorch's optimisers on the same model.


def by_torch(cohort: Cohort, batch_size: int, by_adam: bool, rate: float = 0.02, reg: float = 0.02):
    """Train one client after the other as a PyTorch module, in double precision."""
    import torch

    class Device(torch.nn.Module):
        def __init__(self, p, q, dense) -> None:
            super().__init__()
            p, q, dense = (torch.tensor(a.astype(float)) for a in (p[None], q, dense))
            self.user = torch.nn.Embedding.from_pretrained(p.clone(), freeze=False, sparse=True)
            self.items = torch.nn.Embedding.from_pretrained(q.clone(), freeze=False, sparse=True)
            self.output = torch.nn.Linear(len(dense) - 1, 1, dtype=torch.float64)
            self.output.load_state_dict({"weight": dense[None, :-1], "bias": dense[-1:]})

        def loss(self, places, targets):
            p = self.user(torch.zeros_like(places))
            q = self.items(places)
            y = self.output(p * q)[:, 0]
            kind = torch.nn.MSELoss if cohort.rated else torch.nn.BCEWithLogitsLoss
            fit = kind(reduction="none")(y, targets) * (0.5 if cohort.rated else 1)
            return (fit + reg / 2 * ((p**2).sum(1) + (q**2).sum(1))).mean()

    samples = cohort.samples
    given = cohort.given
    found = ([], [], [])
    for k in range(cohort.n):
        touched = given.item_rows[samples.items[samples.offsets[k] : samples.offsets[k + 1]]]
        device = Device(given.user_rows[k], touched, given.dense)
        rows = [device.user.weight, device.items.weight]
        optimisers = [torch.optim.SGD(device.parameters(), rate)]
        if by_adam:
            optimisers = [
                torch.optim.SparseAdam(rows, rate),
                torch.optim.Adam(device.output.parameters(), rate),
            ]
        own = slice(samples.starts[k], samples.starts[k + 1])
        places = torch.tensor(samples.places[own].astype(int))
        targets = torch.tensor(samples.targets[own].astype(float))
        for t, batch in enumerate(torch.arange(len(places)).split(min(batch_size, 10**6)), 1):
            if not len(batch):
                continue
            # SparseAdam adds its epsilon before the bias correction, Adam after it.
            if by_adam:
                optimisers[0].param_groups[0]["eps"] = 1e-8 * (1 - 0.999**t) ** 0.5
            device.zero_grad()
            device.loss(places[batch], targets[batch]).backward()
            for optimiser in optimisers:
                optimiser.step()
        dense = torch.cat([device.output.weight[0], device.output.bias]).detach().numpy()
        for column, now, before in zip(
            found,
            (device.user.weight.detach().numpy()[0], device.items.weight.detach().numpy(), dense),
            (given.user_rows[k], touched, given.dense),
            strict=True,
        ):
            column.append(now - before)
    return np.array(found[0]), np.concatenate(found[1]), np.array(found[2])


@both_losses
@both_optimisers
@pytest.mark.parametrize("batch_size", BATCHES)
def test_equals_pytorchs_optimisers(batch_size, by_adam, rated):
    cohort = Cohort(batch_size % 97, d=6, rated=rated)
    expected = by_torch(cohort, batch_size, by_adam)
    assert min(np.abs(e).max() for e in expected) > 1e-3
    assert_within(cohort.train(batch_size, by_adam), expected, atol=2e-5 if by_adam else 2e-6)


# The twin, and the kernel for single samples.


@both_losses
@both_optimisers
@pytest.mark.parametrize("batch_size", BATCHES)
@pytest.mark.parametrize("d", [1, 4, 9])
def test_equals_the_slow_twin(d, batch_size, by_adam, rated):
    cohort = Cohort(d, d, rated, epochs=1)
    twin = [c / SCALE for c in cohort.train(batch_size, by_adam, slow_twin)]
    assert_within(cohort.train(batch_size, by_adam), twin, atol=2e-5 if by_adam else 1e-6)


@both_losses
@pytest.mark.parametrize("d", [1, 5, 8, 17])
def test_batches_of_one_with_sgd_equal_the_kernel_for_single_samples(d, rated):
    """Within one unit of fixed point, which is about 1e-6; the twin too."""
    cohort = Cohort(d + 1, d, rated, epochs=1)
    single = train(
        cohort.given, cohort.samples, rated, 0.02, 0.02, family=kernels.load("gmf_users")
    )
    twin = train(cohort.given, cohort.samples, rated, 0.02, 0.02, family=slow_single_samples)
    for one, other, third in zip(cohort.train(1, False), single, twin, strict=True):
        assert np.abs(one - other).max() <= 1
        assert np.abs(third - other).max() <= 1


# Invariances.


@both_optimisers
@pytest.mark.parametrize("cuts", [[*range(13)], [0, 5, 12], [0, 7, 7, 12]])
def test_the_ranges_of_users_do_not_matter(cuts, by_adam):
    cohort = Cohort(3)
    for found, expected in zip(
        cohort.train(4, by_adam, cuts=cuts), cohort.train(4, by_adam), strict=True
    ):
        np.testing.assert_array_equal(found, expected)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.booleans())
def test_the_order_within_a_batch_does_not_matter(seed, rated):
    rng = np.random.default_rng(seed)
    places = rng.integers(0, 4, 9)
    targets = rng.integers(0, 2, 9)
    order = rng.permutation(9)
    p = rng.normal(0, 0.5, 3)
    q = rng.normal(0, 0.5, (4, 3))
    dense = rng.normal(0, 0.5, 4)
    one, other = (
        train(*single_user(p, q, dense, places[which], targets[which]), rated, 0.02, 0.1, 9, False)
        for which in (np.arange(9), order)
    )
    assert_within(one, [c / SCALE for c in other], atol=2e-6)


@both_optimisers
def test_a_user_without_samples_changes_nothing(by_adam):
    cohort = Cohort(4)
    assert cohort.samples.counts[10] == 0
    changes = cohort.train(4, by_adam)
    assert not changes.user_rows[10].any()
    assert not changes.dense[10].any()
    assert changes.user_rows[[0, 9, 11]].any(axis=1).all()


def test_a_diverging_user_is_marked_and_does_not_affect_others():
    cohort = Cohort(5, rated=True)
    usual = Cohort(5, rated=True).train(2, False)
    wild = cohort.given.user_rows.copy()
    wild[0] = 1e30
    cohort.given = Parameters(wild, cohort.given.item_rows, cohort.given.dense)
    for family in (None, slow_twin):
        changes = cohort.train(2, False, family)
        assert np.isin(changes.user_rows[0], [TOO_LARGE, NOT_FINITE]).all()
        assert np.abs(changes.user_rows[1:] - usual.user_rows[1:]).max() <= 1


# The choice of a kernel.


@pytest.mark.parametrize(
    ("changes", "family", "how"),
    [
        ({}, "gmf_users", ()),
        ({"batch_size": 4}, "gmf_batches", (4, False)),
        ({"optimizer": "adam"}, "gmf_batches", (1, True)),
        ({"optimizer": "adam", "batch_size": 6}, "gmf_batches", (6, True)),
    ],
)
def test_the_learner_uses_the_fastest_kernel_that_applies(changes, family, how):
    cohort = Cohort(6)
    world = world_for("fedavg", histories(6), learning_rate=0.03, reg=0.01, **changes)
    expected = train(
        cohort.given, cohort.samples, False, 0.03, 0.01, *how, family=kernels.load(family)
    )
    for found, wanted in zip(
        gmf.train(world, cohort.given, cohort.samples, False), expected, strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@both_losses
@pytest.mark.parametrize("d", [5, 8, 19])
@pytest.mark.parametrize("wild", [False, True])
def test_summing_equals_the_changes_times_samples(d, rated, wild):
    cohort = Cohort(3, d, rated)
    if wild:
        users = cohort.given.user_rows.copy()
        users[0] = 1e30
        cohort.given = Parameters(users, cohort.given.item_rows, cohort.given.dense)
    samples = cohort.samples
    for family in (kernels.load("gmf_batches"), slow_twin):
        changes = cohort.train(4, False, family)
        n, width = changes.user_rows.shape
        users = np.empty((n, width), np.int32)
        dense = np.empty((n, width + 1), np.int32)
        total = np.zeros((15, width), np.int64)
        faults = np.zeros(n, np.int8)
        given = cohort.given
        how = (rated, 0.02, 0.02, 4, False, 0, n, users, np.empty((0, width), np.int32), dense)
        family.train(
            samples.offsets,
            samples.items,
            samples.starts,
            samples.places,
            samples.targets,
            given.user_rows,
            given.item_rows,
            given.dense,
            *how,
            total,
            faults,
        )
        owner = np.repeat(np.arange(n), np.diff(samples.offsets))
        rows = changes.item_rows.astype(np.int64)
        refused = np.zeros(n, bool)
        np.logical_or.at(refused, owner, (np.abs(rows) >= TOO_LARGE).any(axis=1))
        assert refused.any() == wild
        assert (faults > 0).tolist() == refused.tolist()
        np.testing.assert_array_equal(users, changes.user_rows)
        np.testing.assert_array_equal(dense, changes.dense)
        if not wild:
            wanted = np.zeros_like(total)
            np.add.at(wanted, samples.items, samples.counts[owner, None] * rows)
            np.testing.assert_array_equal(total, wanted)
