"""Batched training in PyTorch equals the kernels, on the CPU and on a GPU if there is one."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
from small_federation import histories, play_locally, world_for

from coterie.algorithms import registry
from coterie.algorithms.local import batched, gmf
from coterie.algorithms.local.learner import Changes, Parameters
from coterie.algorithms.local.samples import Samples, draw
from coterie.errors import ConfigError, MissingExtra
from coterie.federated.federation import NodeData, World
from coterie.types import NOT_FINITE, SCALE, TOO_LARGE

torch = pytest.importorskip("torch", reason="PyTorch (the extra 'neural') is not installed")
WAYS = [
    pytest.param({"batch_size": size, "optimizer": optimizer}, id=f"{optimizer}-{size}")
    for size in (1, 4, 7, 10**9)
    for optimizer in ("sgd", "adam")
]
both_losses = pytest.mark.parametrize("rated", [False, True], ids=["choices", "ratings"])
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU here")


class Cohort:
    """The samples of users with very different histories: one has no item, one has every item."""

    def __init__(self, seed: int = 0, rated: bool = False, users=None, **changes) -> None:
        self.training = histories(seed, n_users=12, n_items=25, rated=rated)
        usual = {"learning_rate": 0.02, "local_epochs": 2, "start_scale": 0.3}
        self.world: World = world_for("fedavg", self.training, seed, **usual | changes)
        self.rated = rated
        all_users = np.arange(12, dtype=np.int32)
        self.users = all_users if users is None else np.array(users, np.int32)
        self.samples: Samples = draw(self.world, self.users, 0, NodeData(all_users, self.training))
        start = gmf.start(self.world)
        self.given = Parameters(start.user_rows[self.users], start.item_rows, start.dense)

    def by_kernel(self) -> Changes:
        return gmf.train(self.world, self.given, self.samples, self.rated)

    def by_torch(self, on: str = "cpu", forward=gmf.forward) -> Changes:
        return batched.train(forward, self.world, self.given, self.samples, self.rated, on=on)

    def after(self, changes: Changes) -> tuple[np.ndarray, ...]:
        """The clients' parameters after training."""
        before = self.given.user_rows, self.given.item_rows[self.samples.items], self.given.dense
        return tuple(b + c / SCALE for b, c in zip(before, changes, strict=True))


def assert_close(one: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> None:
    """Equal within 1e-5, relative to the size of the parameters."""
    for a, b in zip(one, other, strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(b)
        np.testing.assert_allclose(a, b, atol=1e-5 * np.abs(b).max())


def assert_same(one: Changes, other: Changes) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@both_losses
@pytest.mark.parametrize("way", WAYS)
def test_equals_the_kernels(way, rated):
    cohort = Cohort(1, rated, **way)
    found = cohort.by_torch()
    expected = cohort.by_kernel()
    assert [(c.dtype, c.shape) for c in found] == [(c.dtype, c.shape) for c in expected]
    assert all(np.abs(c).max() > 100 for c in expected)  # units of 1e-6
    assert_close(cohort.after(found), cohort.after(expected))


@pytest.mark.parametrize("way", WAYS)
def test_repeats_bit_for_bit(way):
    cohort = Cohort(2, **way)
    assert_same(cohort.by_torch(), cohort.by_torch())


@pytest.mark.parametrize("way", WAYS)
def test_a_user_does_not_depend_on_neighbours(way):
    """Alone or in a cohort: equal within rounding, which the shape of a tensor can change."""
    whole = Cohort(3, **way)
    changes = whole.by_torch()
    for u in (0, 5, 10, 11):
        only_node = Cohort(3, users=[u], **way)
        rows = slice(whole.samples.offsets[u], whole.samples.offsets[u + 1])
        own = Changes(changes.user_rows[[u]], changes.item_rows[rows], changes.dense[[u]])
        for a, b in zip(only_node.by_torch(), own, strict=True):
            assert np.abs(a - b).max(initial=0) <= 10  # units of 1e-6


@pytest.mark.parametrize("way", WAYS)
def test_a_diverging_user_does_not_affect_others(way):
    """The first user starts with NaN; its short batches are padded like all others."""
    usual = Cohort(4, **way)
    wild = Cohort(4, **way)
    rows = wild.given.user_rows.copy()
    rows[0] = np.nan
    wild.given = Parameters(rows, wild.given.item_rows, wild.given.dense)
    changes = wild.by_torch()
    expected = usual.by_torch()
    assert (changes.user_rows[0] == NOT_FINITE).all()
    end = wild.samples.offsets[1]
    np.testing.assert_array_equal(changes.user_rows[1:], expected.user_rows[1:])
    np.testing.assert_array_equal(changes.item_rows[end:], expected.item_rows[end:])
    np.testing.assert_array_equal(changes.dense[1:], expected.dense[1:])


@pytest.mark.parametrize("way", WAYS)
def test_a_user_without_samples_changes_nothing(way):
    cohort = Cohort(5, **way)
    assert cohort.samples.counts[10] == 0
    changes = cohort.by_torch()
    assert not changes.user_rows[10].any()
    assert not changes.dense[10].any()
    only_node = Cohort(5, users=[10], **way).by_torch()
    assert [c.shape for c in only_node] == [(1, 5), (0, 5), (1, 6)]
    assert not any(c.any() for c in only_node)


def test_read_only_arrays_are_accepted_and_not_changed():
    cohort = Cohort(6, batch_size=4)
    given = (cohort.given.user_rows, cohort.given.item_rows, cohort.given.dense)
    before = [array.copy() for array in given]
    for array in (*given, cohort.samples.places):
        array.flags.writeable = False
    cohort.by_torch()
    for now, copy in zip(given, before, strict=True):
        np.testing.assert_array_equal(now, copy)


# Any model with a forward function.


def two_layers(p, q, dense):
    """relu([p, q] W) . h, where W and h of a user are one flat row."""
    n, batch, width = q.shape
    weights = dense[:, : 2 * width * 3].view(n, 2 * width, 3)
    hidden = torch.relu(torch.cat([p[:, None].expand(n, batch, width), q], 2) @ weights)
    return (hidden * dense[:, None, 2 * width * 3 :]).sum(2)


def one_by_one(cohort: Cohort, rate: float, reg: float, size: int) -> list[list[np.ndarray]]:
    """SGD in a plain loop, one client after the other, in double precision."""
    found: list[list[np.ndarray]] = [[], [], []]
    samples = cohort.samples
    given = cohort.given
    for k in range(len(cohort.users)):
        touched = given.item_rows[samples.items[samples.offsets[k] : samples.offsets[k + 1]]]
        before = given.user_rows[k], touched, given.dense
        p, q, h = (torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in before)
        for begin in range(samples.starts[k], samples.starts[k + 1], size):
            batch = slice(begin, min(begin + size, samples.starts[k + 1]))
            rows = q[torch.tensor(samples.places[batch])]
            y = two_layers(p[None], rows[None], h[None])[0]
            fit = torch.nn.functional.binary_cross_entropy_with_logits(
                y, torch.tensor(samples.targets[batch]).double()
            )
            loss = fit + reg / 2 * ((p**2).sum() + (rows**2).sum() / len(rows))
            for part, gradient in zip((p, q, h), torch.autograd.grad(loss, (p, q, h)), strict=True):
                part.data -= rate * gradient
        for column, part, start in zip(found, (p, q, h), before, strict=True):
            column.append(part.detach().numpy() - start)
    return found


@pytest.mark.parametrize("size", [1, 5])
def test_a_model_supplies_only_its_forward_function(size):
    cohort = Cohort(7, batch_size=size, learning_rate=0.05, reg=0.03)
    dense = np.random.default_rng(0).normal(0, 0.5, 2 * 5 * 3 + 3).astype(np.float32)
    cohort.given = Parameters(cohort.given.user_rows, cohort.given.item_rows, dense)
    users, items, dense_changes = one_by_one(cohort, 0.05, 0.03, size)
    found = [c / SCALE for c in cohort.by_torch(forward=two_layers)]
    for one, other in zip(
        found, (np.array(users), np.concatenate(items), np.array(dense_changes)), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=3e-6)


@both_losses
def test_neumf_equals_its_kernel(rated):
    from coterie.algorithms.local import neumf

    cohort = Cohort(8, rated, model="neumf", layers=(12, 6))
    start = neumf.start(cohort.world)
    cohort.given = Parameters(start.user_rows[cohort.users], start.item_rows, start.dense)
    found = cohort.by_torch(forward=partial(neumf.forward, neumf.sizes_of(cohort.world).tolist()))
    expected = neumf.train(cohort.world, cohort.given, cohort.samples, rated)
    assert_close(cohort.after(found), cohort.after(expected))


# Fixed point.


def test_fixed_point_is_that_of_the_kernels():
    from coterie.kernels.quantise import quantise

    halves = np.arange(-5, 6) * np.float32(0.5) / SCALE
    edges = [7.999999, 7.9999995, 8, -8, 1e5, 3e38, np.inf, -np.inf, np.nan, 1.0, -7.9375, 0.0]
    x = np.append(halves, edges).astype(np.float32)
    found = batched._quantised(torch.tensor(x), torch.zeros(len(x)))
    assert found.tolist() == [quantise(v) for v in x]
    assert {TOO_LARGE, NOT_FINITE} <= set(found.tolist())


# Missing hardware and packages.


def test_without_a_gpu_there_is_a_remedy(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    world = world_for("fedfast", histories(0), device="cuda")
    with pytest.raises(
        ConfigError, match=r"'device' is 'cuda'.* no GPU here; expected one\. Set device=cpu"
    ):
        gmf.start(world)  # before the first round
    with pytest.raises(ConfigError, match="no GPU here"):
        play_locally("fedavg", histories(0), device="cuda")


def test_without_pytorch_there_is_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"'device' is 'cuda'.*pip install 'coterie\[neural\]'"):
        gmf.start(world_for("fedfast", histories(0), device="cuda"))


def test_a_gpu_needs_no_training_kernels():
    chosen = registry.algorithm("fedfast")
    assert set(chosen.kernels_for(chosen.settings(device="cuda"))) == {
        "samples",
        "sums",
        "clusters",
    }


def test_the_settings_have_help_texts():
    for name in ("fedavg", "fedfast"):
        rows = {
            key: (default, text) for key, default, text in registry.algorithm(name).settings.rows()
        }
        assert rows["optimizer"][0] == "sgd"
        assert rows["batch_size"][0] == "1"
        assert rows["device"][0] == "cpu"
        assert all(rows[key][1] for key in ("optimizer", "batch_size", "device"))


# On a GPU.


@on_gpu
@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_agrees_and_repeats(way, monkeypatch):
    """With enough steps, a captured graph is replayed."""
    monkeypatch.setattr(batched, "MIN_STEPS_FOR_A_GRAPH", 5)
    cohort = Cohort(8, **way | {"local_epochs": 4})
    once = cohort.by_torch("cuda")
    assert_same(cohort.by_torch("cuda"), once)
    assert_close(cohort.after(once), cohort.after(cohort.by_kernel()))


@on_gpu
def test_a_whole_run_on_a_gpu_repeats():
    states = [
        play_locally("fedfast", histories(9), device="cuda", batch_size=3)[0][-1] for _ in range(2)
    ]
    for name, array in states[0].arrays().items():
        np.testing.assert_array_equal(array, states[1].arrays()[name])
