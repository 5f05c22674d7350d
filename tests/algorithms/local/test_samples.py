"""What a cohort trains on, whoever draws it: any number of threads, any part of the cohort, with Numba or without."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from small_federation import histories, world_for

from coterie import kernels
from coterie.algorithms.local.samples import Samples, draw
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import NodeData, World
from coterie.kernels.fallback import samples as without_numba
from coterie.types import Rows

COLUMNS = "offsets", "items", "starts", "places", "targets"
drawers = pytest.mark.parametrize("family", ["kernel", "numpy"])


@st.composite
def people(draw: st.DrawFn, most_items: int = 90) -> TrainingSet:
    """Anybody, from nothing to everything done; negatives may avoid more than what was done."""
    n_items = draw(st.integers(1, most_items))
    several = st.sets(st.integers(0, n_items - 1)) | st.just(set(range(n_items)))
    done = [sorted(s) for s in draw(st.lists(several, min_size=1, max_size=6))]
    more = draw(st.sets(st.integers(0, n_items - 1), max_size=4))
    known = [sorted({*d, *more}) for d in done]
    ratings = None
    if draw(st.booleans()):
        ratings = np.arange(1, sum(map(len, done)) + 1, dtype=np.float32)
    return TrainingSet(len(done), n_items, as_rows(done), as_rows(known), ratings)


def as_rows(lists: list[list[int]]) -> Rows:
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    return Rows(offsets, np.array([item for items in lists for item in items], np.int32))


def hosted(training: TrainingSet) -> NodeData:
    return NodeData(np.arange(training.n_users, dtype=np.int32), training)


def drawn(world: World, training: TrainingSet, users=None, t: int = 0) -> Samples:
    everybody = np.arange(training.n_users, dtype=np.int32)
    return draw(
        world, everybody if users is None else np.array(users, np.int32), t, hosted(training)
    )


def of_user(samples: Samples, k: int) -> tuple[list[int], list[tuple[int, float]]]:
    """Rows, and (item, target) of every sample."""
    rows = samples.items[samples.offsets[k] : samples.offsets[k + 1]]
    mine = slice(samples.starts[k], samples.starts[k + 1])
    return rows.tolist(), list(
        zip(rows[samples.places[mine]].tolist(), samples.targets[mine].tolist(), strict=True)
    )


def use(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    if family == "numpy":
        monkeypatch.setattr(kernels, "_loaded", {"samples": without_numba})


def assert_equal(one: Samples, other: Samples) -> None:
    for name in COLUMNS:
        assert getattr(one, name).dtype == getattr(other, name).dtype
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@settings(deadline=None, max_examples=150)
@given(people(), st.integers(1, 6), st.integers(1, 3), st.integers(0, 10**9))
def test_numpy_draws_exactly_what_the_kernel_draws(training, negatives, epochs, seed):
    world = world_for("fedavg", training, seed, negatives=negatives, local_epochs=epochs)
    compiled = drawn(world, training, t=3)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, "numpy")
        assert_equal(drawn(world, training, t=3), compiled)


def test_numpy_draws_the_same_from_real_sizes():
    """Hundreds of positives, so that rejected tries come in every number; few users have done three quarters of all items."""
    rng = np.random.default_rng(0)
    lists = [
        sorted(rng.permutation(400)[:n].tolist()) for n in (1, 60, 200, 299, 300, 301, 399, 400)
    ]
    training = TrainingSet(8, 400, as_rows(lists), as_rows(lists), None)
    world = world_for("fedavg", training, negatives=4, local_epochs=2)
    compiled = drawn(world, training)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, "numpy")
        assert_equal(drawn(world, training), compiled)


@drawers
@settings(deadline=None, max_examples=60)
@given(people(40), st.integers(1, 4), st.integers(1, 3))
def test_samples_are_what_they_should_be(family, training, negatives, epochs):
    with pytest.MonkeyPatch.context() as patch:
        use(patch, family)
        samples = drawn(
            world_for("fedavg", training, negatives=negatives, local_epochs=epochs), training
        )
    ratings = np.ones(len(training)) if training.ratings is None else training.ratings
    for u in range(training.n_users):
        rows, found = of_user(samples, u)
        assert rows == sorted({item for item, _ in found})  # ascending, and exactly what is touched
        values = ratings[training.positives.offsets[u] : training.positives.offsets[u + 1]].tolist()
        done = list(zip(training.positives.of(u).tolist(), values, strict=True))
        excluded = set(training.excluded.of(u).tolist())
        each = negatives if training.ratings is None and len(excluded) < training.n_items else 0
        assert len(found) == samples.counts[u] == epochs * len(done) * (1 + each)
        groups = [found[i : i + 1 + each] for i in range(0, len(found), 1 + each)]
        for epoch in range(epochs):  # every positive once, each before its negatives
            assert sorted(g[0] for g in groups[epoch * len(done) : (epoch + 1) * len(done)]) == done
        assert all(target == 0 and item not in excluded for g in groups for item, target in g[1:])


@drawers
@pytest.mark.parametrize("had", [2, 33])
def test_negatives_are_uniform(family, had, monkeypatch):
    """Where few and where most items were had, which are two ways of drawing."""
    use(monkeypatch, family)
    lists = [list(range(had))]
    training = TrainingSet(1, 40, as_rows(lists), as_rows(lists), None)
    world = world_for("fedavg", training, negatives=5, local_epochs=20 if had == 2 else 5)
    counts: Counter[int] = Counter()
    for t in range(15):
        counts.update(
            item for item, target in of_user(drawn(world, training, t=t), 0)[1] if target == 0
        )
    assert set(counts) == set(range(had, 40))
    assert chisquare(list(counts.values())).pvalue > 1e-3


@drawers
def test_orders_are_uniform(family, monkeypatch):
    use(monkeypatch, family)
    training = TrainingSet(1, 3, as_rows([[0, 1, 2]]), as_rows([[0, 1, 2]]), None)
    world = world_for("fedavg", training, local_epochs=2)
    orders: Counter[tuple[int, ...]] = Counter()
    for t in range(600):
        items = [item for item, _ in of_user(drawn(world, training, t=t), 0)[1]]
        orders.update([tuple(items[:3]), tuple(items[3:])])
    assert set(orders) == set(permutations(range(3)))
    assert chisquare(list(orders.values())).pvalue > 1e-3


@drawers
@pytest.mark.parametrize("threads", ["2", "3", "8"])
def test_the_number_of_threads_does_not_matter(family, threads, monkeypatch):
    use(monkeypatch, family)
    training = histories(3, n_users=30, n_items=80)
    world = world_for("fedavg", training, local_epochs=2)
    monkeypatch.setenv("COTERIE_THREADS", "1")
    only_node = drawn(world, training)
    monkeypatch.setenv("COTERIE_THREADS", threads)
    assert_equal(drawn(world, training), only_node)


@drawers
@settings(deadline=None, max_examples=40)
@given(st.sets(st.integers(0, 19), min_size=1), st.integers(0, 50))
def test_who_else_takes_part_does_not_matter(family, users, t):
    training = histories(4, n_users=20, n_items=50)
    world = world_for("fedavg", training)
    with pytest.MonkeyPatch.context() as patch:
        use(patch, family)
        whole = drawn(world, training, t=t)
        part = drawn(world, training, sorted(users), t)
    for k, u in enumerate(sorted(users)):
        assert of_user(part, k) == of_user(whole, u)
