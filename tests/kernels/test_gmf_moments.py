"""Adam whose moments travel with the parameters: equal to the kernel without them at the start, and to PyTorch's over rounds."""

from __future__ import annotations

import numpy as np
import pytest
from small_federation import histories, play_locally, world_for
from test_gmf_batches import Cohort, one_person

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
def test_without_memory_it_is_the_adam_that_begins_anew(batch_size, rated):
    cohort = Cohort(4, rated=rated)
    fresh = cohort.train(batch_size, True)
    kept = train(cohort.given.with_moments(), cohort.samples, rated, 0.02, 0.02, batch_size)
    for found, expected in zip(kept, fresh, strict=True):
        np.testing.assert_array_equal(values_of(found), expected)


@pytest.mark.parametrize("seed", range(3))
def test_rounds_of_one_step_are_pytorchs_adam(seed):
    """One person, all items in every batch: the moments that come back go out again, and nothing is lost on the way."""
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
    start, samples = one_person(p, q, h, range(n_items), targets)
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
        np.testing.assert_allclose(
            values_of(found), expected.detach().numpy(), atol=1e-3, rtol=0
        )  # fixed point, twelve times
    assert np.abs(now.user_rows[0, :d] - p).max() > 0.1


@pytest.mark.parametrize(
    ("mean", "root", "age"),
    [(0.0, -1e-6, 0.0), (0.01, 0.0, 0.01), (1e-5, 1e-7, 0.5), (-3.0, 0.001, 1.0)],
)
def test_what_rounding_did_to_moments_makes_no_giant_steps(mean, root, age):
    """A mean without a square would be divided by nothing; whatever gradients were, Adam never steps further than 7.3 rates."""
    given, samples = one_person([1.0], [[1.0]], [1.0, 0.0], [0], [1.0])
    wide = given.with_moments()
    wide.item_rows[0, 1:] = mean, root, age
    changes = train(wide, samples, False, 0.1, 0.0, 1)
    assert abs(changes.item_rows[0, 0]) / SCALE <= 0.1 * 7.3
    assert changes.item_rows[0, 0] != 0


def test_a_row_that_is_new_takes_a_first_step_however_old_others_are():
    """Of one rate, as Adam's first step is: an age belongs to a row."""
    given, samples = one_person([1.0], [[1.0]], [1.0, 0.0], [0], [1.0])
    old = given.with_moments()
    old.user_rows[0, 1:] = 0.2, 0.3, 0.9
    old.dense[2:] = 0.1, 0.1, 0.2, 0.2, 0.9
    changes = train(old, samples, False, 0.1, 0.0, 1)
    assert changes.item_rows[0, 0] / SCALE == pytest.approx(0.1, abs=1e-4)
    assert changes.item_rows[0, 3] / SCALE * 1024 == pytest.approx(1)
    assert changes.user_rows[0, 0] / SCALE != pytest.approx(0.1, abs=1e-2)


def test_moments_are_averaged_like_what_they_belong_to():
    """Two people, one item each: a device's own moments, each by its share of the samples."""
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
    assert first.item_rows[:, 2 * d :].min() > -1e-5  # roots, and ages
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
def test_moments_that_nobody_has_are_refused(wrong):
    with pytest.raises(
        ConfigError, match="moments=averaged is for optimizer=adam, model=gmf and device=cpu"
    ):
        algorithm("fedavg").settings.of({"moments": "averaged"} | wrong)
