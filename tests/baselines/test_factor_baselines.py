"""BPR and GMF: sizes, falling losses, and divergence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from coterie import api
from coterie.baselines import bpr, gmf
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.data.splits import Split, split
from coterie.data.training_set import TrainingSet
from coterie.errors import Diverged
from coterie.experiments.training import models
from coterie.federated.trainer import Context
from coterie.models.gmf import GMF


@pytest.fixture(scope="module")
def parts(people) -> Split:
    return split(people, "leave-one-out", 0.2, seed=0)


def test_gmf_has_21_009_parameters_at_eight_dimensions_on_ml_100k():
    """(943 + 1,682) x 8 rows, 8 weights and a bias."""
    assert GMF.start(943, 1_682, 8, seed=0, scale=0.1).n_parameters == 21_009


def test_gmf_trains_21_009_parameters_on_the_real_ml_100k(real_data):
    real_data("ml-100k", "u.data", "ml-100k.inter")
    run = api.run("gmf", "ml-100k", embedding_size=8, epochs=1, negatives=1)
    assert run.result["parameters"] == 21_009


def test_the_start_of_gmf_is_plain_matrix_factorisation():
    start = GMF.start(4, 5, 3, seed=1, scale=0.1)
    users = np.arange(4, dtype=np.int32)
    np.testing.assert_allclose(start.score(users), start.user_rows @ start.item_rows.T, rtol=1e-6)


# Ratings.


def rated(seed: int = 0, n_users: int = 60, n_items: int = 40) -> Interactions:
    """Ratings from two planted tastes and a little noise, between 1 and 5."""
    rng = np.random.default_rng(seed)
    taste = rng.choice([-1, 1], n_users)
    kind = rng.choice([-1, 1], n_items)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.4)
    ratings = np.clip(3 + 1.5 * taste[users] * kind[items] + rng.normal(0, 0.2, len(users)), 1, 5)
    return Interactions.from_columns(users, items, ratings, rng.permutation(len(users)))


def squared_error(model: GMF, data: Interactions) -> float:
    scores = model.score(data.users, data.items[:, None].astype(np.int32))[:, 0]
    return float(((scores - data.ratings) ** 2).mean())


def test_gmf_lowers_the_squared_error_of_ratings():
    parts = split(rated(), "random", 0.2, seed=0)
    settings = gmf.GMFSettings(embedding_size=4, epochs=60, learning_rate=0.02, reg=0.01)
    errors = [
        (squared_error(m, parts.train), squared_error(m, parts.test))
        for m in models(gmf.ALGORITHM, parts.training(), settings, Context(0, SILENT))
    ]
    variance = float(parts.test.ratings.var())
    assert variance > 2
    assert errors[-1][0] < errors[0][0] / 5
    assert errors[-1][1] < variance / 5  # on unseen ratings


def test_gmf_starts_at_the_mean_rating():
    parts = split(rated(), "random", 0.2, seed=0)
    settings = gmf.GMFSettings(epochs=1, learning_rate=1e-9, start_scale=0.0)
    model = next(models(gmf.ALGORITHM, parts.training(), settings, Context(0, SILENT)))
    np.testing.assert_allclose(model.bias, parts.train.ratings.mean(), rtol=1e-5)


def test_ratings_stay_with_their_pairs():
    """Training orders positives by item, the data by time: ratings must be reordered too."""
    data = rated(3)
    training = split(data, "random", 0.2, seed=0).training()
    known = dict(zip(data.pairs().tolist(), data.ratings.tolist(), strict=True))
    pairs = training.users.astype(np.int64) * data.n_items + training.positives.items
    assert training.ratings.tolist() == [known[pair] for pair in pairs.tolist()]


# Learning.


def loss_of_bpr(model, training: TrainingSet, seed: int) -> float:
    """- ln sigmoid(x_ui - x_uj), over freshly drawn triples."""
    rng = np.random.default_rng(seed)
    scores = model.score(np.arange(training.n_users, dtype=np.int32))
    total = []
    for user, item in zip(training.users, training.positives.items, strict=True):
        other = rng.choice(np.setdiff1d(np.arange(training.n_items), training.positives.of(user)))
        total.append(np.logaddexp(0, -(scores[user, item] - scores[user, other])))
    return float(np.mean(total))


def test_bpr_lowers_its_loss(parts):
    settings = bpr.BPR(embedding_size=8, epochs=20, learning_rate=0.05)
    first, *_, last = models(bpr.ALGORITHM, parts.training(), settings, Context(0, SILENT))
    assert loss_of_bpr(last, parts.training(), 1) < 0.6 * loss_of_bpr(first, parts.training(), 1)


def test_gmf_separates_positives_from_the_rest(parts):
    training = parts.training()
    settings = gmf.GMFSettings(embedding_size=8, epochs=30, learning_rate=0.05, reg=0.001)
    *_, model = models(gmf.ALGORITHM, training, settings, Context(0, SILENT))
    scores = model.score(np.arange(training.n_users, dtype=np.int32)).astype(float)
    probabilities = 1 / (1 + np.exp(-scores))
    positive = np.zeros(probabilities.shape, bool)
    positive[training.users, training.positives.items] = True
    assert probabilities[positive].mean() > probabilities[~positive].mean() + 0.3


# GMF in batches and with a falling learning rate.

WAYS = [
    {"optimizer": "adam", "learning_rate": 0.01, "batch_size": 32},
    {"batch_size": 4, "learning_rate": 0.2},
    {"final_rate": 0.1},
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_gmf_learns_in_every_way_and_resumes_with_the_same_bits(way, parts):
    training = parts.training()
    settings = gmf.GMFSettings(embedding_size=8, epochs=8, reg=0.001, **way)
    context = Context(0, SILENT)
    trainer = gmf.make(training, settings, context)
    states = [trainer.start()[0]]
    for n in range(1, 9):
        states.append(trainer.step(states[-1], n)[0])
    resumed = gmf.GMFState.from_arrays({k: v.copy() for k, v in states[4].arrays().items()})
    for n in range(5, 9):
        resumed, _ = trainer.step(resumed, n)
    for name, array in states[-1].arrays().items():
        np.testing.assert_array_equal(array, resumed.arrays()[name])
    scores = gmf.model(states[-1]).score(np.arange(training.n_users, dtype=np.int32))
    positive = np.zeros(scores.shape, bool)
    positive[training.users, training.positives.items] = True
    assert scores[positive].mean() > scores[~positive].mean() + 0.3


def test_adams_steps_are_counted_over_all_epochs():
    """Three positives with a negative each are one batch of six, so that epoch n is step n.

    Rows restart at zero moments, so that Adam's first step is as long as the correction of t says:
    (1 - beta1) / (1 - beta1^t) over sqrt((1 - beta2) / (1 - beta2^t)) learning rates.
    """
    data = Interactions.from_columns([0, 0, 1], [0, 1, 2])
    training = replace(split(data, "leave-one-out", 0.2, seed=0), train=data).training()
    settings = gmf.GMFSettings(
        embedding_size=1, optimizer="adam", batch_size=6, negatives=1, learning_rate=0.1, reg=0.0
    )
    state = gmf.start(training, settings, Context(0, SILENT))
    for n in (1, 4):
        after = gmf.epoch(state, n, training, settings, Context(0, SILENT))
        moved = np.abs(after.user_rows - state.user_rows)
        first_step = 0.1 * (0.1 / (1 - 0.9**n)) / np.sqrt(0.001 / (1 - 0.999**n))
        np.testing.assert_allclose(moved, first_step, rtol=1e-3)


@pytest.mark.parametrize(
    ("n", "expected"), [(1, 0.4), (2, 0.4 * 0.01**0.25), (3, 0.04), (5, 0.004)]
)
def test_the_learning_rate_of_gmf_falls_by_the_same_factor_each_epoch(n, expected):
    settings = gmf.GMFSettings(epochs=5, learning_rate=0.4, final_rate=0.01)
    assert settings.learning_rate_at(n) == pytest.approx(expected)


@pytest.mark.parametrize("way", [{}, {"optimizer": "adam", "batch_size": 32}], ids=str)
def test_the_last_epoch_of_gmf_has_the_final_rate(way, parts):
    training = parts.training()
    settings = gmf.GMFSettings(embedding_size=4, epochs=2, final_rate=1e-6, **way)
    trainer = gmf.make(training, settings, Context(0, SILENT))
    start, _ = trainer.start()
    first, _ = trainer.step(start, 1)
    second, _ = trainer.step(first, 2)
    assert np.abs(first.item_rows - start.item_rows).max() > 0.01
    assert np.abs(second.item_rows - first.item_rows).max() < 1e-4


def test_one_epoch_of_gmf_has_the_whole_learning_rate():
    settings = gmf.GMFSettings(epochs=1, learning_rate=0.4, final_rate=0.01)
    assert settings.learning_rate_at(1) == 0.4


def test_a_user_with_every_item_does_not_stop_training(parts):
    full = Interactions.from_columns([0] * 6 + [1, 1, 2, 2], [*range(6), 0, 1, 1, 2])
    training = replace(split(full, "leave-one-out", 0.2, seed=0), train=full).training()
    for algorithm, settings in ((bpr, bpr.BPR(epochs=2)), (gmf, gmf.GMFSettings(epochs=2))):
        *_, model = models(algorithm.ALGORITHM, training, settings, Context(0, SILENT))
        assert np.isfinite(model.score(np.arange(3, dtype=np.int32))).all()


@pytest.mark.parametrize("name", ["bpr", "gmf"])
@pytest.mark.parametrize("learning_rate", [1e3, 1e30, 1e39])
def test_divergence_is_reported_with_its_round(name, learning_rate, people):
    with pytest.raises(Diverged, match=r"training diverged at round \d+: .*Lower learning_rate"):
        api.run(name, people, learning_rate=learning_rate, epochs=3)
