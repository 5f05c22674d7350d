"""Adam with averaged moments: equal to fresh moments in the first round, to PyTorch over rounds."""

from __future__ import annotations

import numpy as np
import pytest
from small_federation import histories, play_locally, world_for
from test_gmf_batches import Cohort, single_user

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.local.learner import Changes, Parameters, values_of
from coterie.algorithms.registry import algorithm
from coterie.errors import ConfigError
from coterie.types import SCALE


def train(
    given: Parameters, samples, rated: bool, rate: float, reg: float, batch_size: int
) -> Changes:
    changes = Changes.room_for(given, samples)
    kernels.load("gmf_moments").train(
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
        batch_size,
        0,
        len(given.user_rows),
        *changes,
    )
    return changes


@pytest.mark.parametrize("batch_size", [1, 3, 10**9])
@pytest.mark.parametrize("rated", [False, True], ids=["choices", "ratings"])
def test_zero_moments_equal_fresh_moments(batch_size, rated):
    cohort = Cohort(4, rated=rated)
    fresh = cohort.train(batch_size, True)
    averaged = train(cohort.given.with_moments(), cohort.samples, rated, 0.02, 0.02, batch_size)
    for found, expected in zip(averaged, fresh, strict=True):
        np.testing.assert_array_equal(values_of(found), expected)


@pytest.mark.parametrize("seed", range(3))
def test_rounds_of_one_step_are_pytorchs_adam(seed):
    """One user with all items in every batch: the moments are sent out again in the next round."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    rate = 0.05
    reg = 0.03
    d = 3
    n_items = 4
    p = rng.normal(size=d)
    q = rng.normal(size=(n_items, d))
    h = rng.normal(size=d + 1)
    targets = rng.integers(0, 2, n_items).astype(float)
    start, samples = single_user(p, q, h, range(n_items), targets)
    now = start.with_moments()
    P, Q, H = (torch.tensor(np.asarray(x, np.float32), requires_grad=True) for x in (p, q, h))
    optimiser = torch.optim.Adam([P, Q, H], lr=rate)
    for _ in range(12):
        changes = train(now, samples, False, rate, reg, 10**9)
        now = Parameters(
            now.user_rows + (changes.user_rows / SCALE).astype(np.float32),
            now.item_rows + (changes.item_rows / SCALE).astype(np.float32),
            now.dense + (changes.dense[0] / SCALE).astype(np.float32),
        )
        optimiser.zero_grad()
        y = (Q * (P * H[:-1])).sum(1) + H[-1]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            y, torch.tensor(targets, dtype=torch.float32)
        )
        loss = loss + reg / 2 * (P.square().sum() + Q.square().sum() / n_items)
        loss.backward()
        optimiser.step()
    for found, expected in ((now.user_rows[0], P), (now.item_rows, Q), (now.dense, H)):
        # The tolerance is twelve roundings to fixed point.
        np.testing.assert_allclose(values_of(found), expected.detach().numpy(), atol=1e-3, rtol=0)
    assert np.abs(now.user_rows[0, :d] - p).max() > 0.1


@pytest.mark.parametrize(
    ("mean", "root", "age"),
    [(0.0, -1e-6, 0.0), (0.01, 0.0, 0.01), (1e-5, 1e-7, 0.5), (-3.0, 0.001, 1.0)],
)
def test_rounded_moments_do_not_cause_huge_steps(mean, root, age):
    """A mean without a square would be divided by zero.

    For any gradients, a step of Adam is at most 7.3 learning rates long.
    """
    given, samples = single_user([1.0], [[1.0]], [1.0, 0.0], [0], [1.0])
    wide = given.with_moments()
    wide.item_rows[0, 1:] = mean, root, age
    changes = train(wide, samples, False, 0.1, 0.0, 1)
    assert abs(changes.item_rows[0, 0]) / SCALE <= 0.1 * 7.3
    assert changes.item_rows[0, 0] != 0


def test_a_new_row_takes_a_first_step_whatever_the_age_of_others():
    """The step is one learning rate long, as Adam's first step: every row has its own age."""
    given, samples = single_user([1.0], [[1.0]], [1.0, 0.0], [0], [1.0])
    old = given.with_moments()
    old.user_rows[0, 1:] = 0.2, 0.3, 0.9
    old.dense[2:] = 0.1, 0.1, 0.2, 0.2, 0.9
    changes = train(old, samples, False, 0.1, 0.0, 1)
    assert changes.item_rows[0, 0] / SCALE == pytest.approx(0.1, abs=1e-4)
    assert changes.item_rows[0, 3] / SCALE * 1024 == pytest.approx(1)
    assert changes.user_rows[0, 0] / SCALE != pytest.approx(0.1, abs=1e-2)


def test_moments_are_averaged_like_their_values():
    """The state holds moments of plausible sign after a round, and the model ignores them."""
    training = histories(0, n_users=6)
    states, _ = play_locally(
        "fedavg",
        training,
        rounds=2,
        participation=1.0,
        optimizer="adam",
        batch_size=4,
        moments="averaged",
        average="touched",
    )
    first = states[1]
    d = first.item_rows.shape[1] // 3
    assert first.item_rows.shape[1] == 3 * d + 1 == 16
    assert np.abs(first.item_rows[:, d:]).max() > 0
    assert first.item_rows[:, 2 * d :].min() > -1e-5  # roots and ages
    world = world_for("fedavg", training, optimizer="adam", batch_size=4, moments="averaged")
    assert fedavg.model(world, first).score(np.array([0], np.int32)).shape == (1, 15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"optimizer": "sgd"},
        {"optimizer": "adam", "model": "neumf"},
        {"optimizer": "adam", "device": "cuda"},
    ],
)
def test_unsupported_averaged_moments_are_rejected(wrong):
    with pytest.raises(
        ConfigError, match="moments=averaged needs optimizer=adam, model=gmf and device=cpu"
    ):
        algorithm("fedavg").settings.of({"moments": "averaged"} | wrong)
