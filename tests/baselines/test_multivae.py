"""Mult-VAE: loss, steps and scores equal NumPy, and training can resume."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie import api
from coterie.baselines import multivae
from coterie.baselines.multivae import ALGORITHM, Core, HistoryBatch, Learning, MultVAESettings
from coterie.core.progress import SILENT
from coterie.data.synthetic import Synthetic, generate
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, MissingExtra
from coterie.experiments import checkpoint
from coterie.experiments.history import Point, TrainingHistory
from coterie.experiments.training import fit
from coterie.federated.trainer import Context, Trainer
from coterie.models.multivae import LOWEST, MultVAE
from coterie.types import Ints, Rows

torch = pytest.importorskip("torch", reason="PyTorch (the extra 'neural') is not installed")

SMALL = MultVAESettings(
    hidden=5, latent=3, epochs=3, batch_size=8, learning_rate=0.01, beta=0.7, anneal_steps=10
)


def matrix_of(
    seed: int = 0, n_users: int = 20, n_items: int = 12, density: float = 0.3
) -> np.ndarray:
    X = (np.random.default_rng(seed).random((n_users, n_items)) < density).astype(int)
    # Every user has an item.
    X[:, :2] |= 1 - X.any(axis=1, keepdims=True)
    return X


def training_on(X: np.ndarray) -> TrainingSet:
    users, items = np.nonzero(X)
    rows = Rows.build(users.astype(np.int32), items.astype(np.int32), len(X))
    return TrainingSet(*X.shape, rows, rows, None)


def trainer(X: np.ndarray, chosen: MultVAESettings = SMALL, seed: int = 0) -> Trainer:
    return multivae.make(training_on(X), chosen, Context(seed, SILENT))


def trained(X: np.ndarray, chosen: MultVAESettings = SMALL, seed: int = 0) -> MultVAE:
    model = fit(ALGORITHM, training_on(X), chosen, Context(seed, SILENT))
    assert isinstance(model, MultVAE)
    return model


def perturbed(X: np.ndarray, seed: int = 1) -> tuple[Core, dict[str, np.ndarray]]:
    """A network away from its initial values, where biases are zero and gradients small."""
    core = Core.of(training_on(X), SMALL)
    flat = multivae.start(core, SMALL, seed).parameters
    flat += np.random.default_rng(seed).normal(0, 0.5, len(flat)).astype(np.float32)
    return core, multivae.split_by_name(flat, multivae.shapes(len(core.items), SMALL))


def tensors(net: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: torch.from_numpy(part.copy()) for name, part in net.items()}


# The slow twin: Liang et al. 2018, one user at a time.


def slow_logits(
    net: dict[str, np.ndarray], x: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, float]:
    """The logits of all items, and the KL divergence from the prior."""
    h = np.tanh(x @ net["encoder_rows"] + net["encoder_bias"])
    code = h @ net["latent_weights"] + net["latent_bias"]
    mu = code[: len(noise)]
    sigma = np.exp(code[len(noise) :] / 2)
    divergence = sum(0.5 * (m * m + s * s - 1) - np.log(s) for m, s in zip(mu, sigma, strict=True))
    h = np.tanh((mu + noise * sigma) @ net["decoder_weights"] + net["decoder_bias"])
    return net["item_rows"] @ h + net["item_bias"], divergence


def slow_loss(net: dict[str, np.ndarray], batch: HistoryBatch, beta: float) -> float:
    net = {name: part.astype(np.float64) for name, part in net.items()}
    total = 0.0
    offsets = batch.offsets.numpy()
    n_items = len(net["item_bias"])
    for k, noise in enumerate(batch.noise.numpy().astype(np.float64)):
        part = slice(offsets[k], offsets[k + 1])
        items = batch.items.numpy()[part]
        x = np.zeros(n_items)
        x[items] = batch.shown.numpy()[part]
        y, divergence = slow_logits(net, x, noise)
        probabilities = np.exp(y) / np.exp(y).sum()
        total += beta * divergence - np.log(probabilities[items]).sum()
    return total / (len(offsets) - 1)


def first_batch(core: Core) -> HistoryBatch:
    return next(iter(multivae.batches(core, 1, SMALL, 0)))


@pytest.mark.parametrize("beta", [0.0, 0.2, 1.0])
def test_the_loss_of_a_batch_equals_the_twin(beta):
    core, net = perturbed(matrix_of())
    batch = first_batch(core)
    assert float(multivae.loss(tensors(net), batch, beta)) == pytest.approx(
        slow_loss(net, batch, beta), rel=1e-5
    )


def test_the_gradient_equals_that_of_the_twins_loss():
    """By central differences, in some entries of every parameter."""
    core, net = perturbed(matrix_of())
    batch = first_batch(core)
    rng = np.random.default_rng(0)
    wide = {name: part.astype(np.float64) for name, part in net.items()}
    for name, gradient in multivae.gradients(tensors(net), batch, 0.3).items():
        assert gradient.abs().max() > 1e-3, name
        for place in rng.integers(0, wide[name].size, 6):
            at = np.unravel_index(place, wide[name].shape)
            ends = []
            for step in (1e-5, -1e-5):
                moved = wide[name].copy()
                moved[at] += step
                ends.append(slow_loss(wide | {name: moved}, batch, 0.3))
            assert float(gradient[at]) == pytest.approx(
                (ends[0] - ends[1]) / 2e-5, rel=1e-3, abs=1e-5
            ), name


def slow_training(core: Core, chosen: MultVAESettings, epochs: int) -> np.ndarray:
    """Adam in double precision by gradients checked above; steps are counted over all epochs."""
    of = multivae.shapes(len(core.items), chosen)
    theta = multivae.start(core, chosen, 0).parameters.astype(np.float64)
    m = np.zeros_like(theta)
    v = np.zeros_like(theta)
    t = 0
    for n in range(1, epochs + 1):
        for batch in multivae.batches(core, n, chosen, 0):
            net = tensors(multivae.split_by_name(theta.astype(np.float32), of))
            beta = min(chosen.beta, t / chosen.anneal_steps)
            gradients = multivae.gradients(net, batch, beta)
            g = np.concatenate([gradients[name].numpy().ravel() for name in of]).astype(np.float64)
            t += 1
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g * g
            theta -= (
                chosen.learning_rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
            )
    return theta


def test_steps_are_those_of_adam():
    X = matrix_of()
    work = trainer(X)
    core = Core.of(training_on(X), SMALL)
    state = work.start()[0]
    for n in (1, 2, 3):
        state = work.step(state, n)[0]
        np.testing.assert_allclose(state.parameters, slow_training(core, SMALL, n), atol=2e-5)
    assert np.abs(state.parameters - work.start()[0].parameters).max() > 0.03


def test_the_weight_of_the_prior_rises_to_its_limit():
    chosen = MultVAESettings(beta=0.2, anneal_steps=1000)
    assert [multivae.prior_weight(t, chosen) for t in (0, 1, 150, 200, 5000)] == [
        0,
        0.001,
        0.15,
        0.2,
        0.2,
    ]
    assert multivae.prior_weight(0, MultVAESettings(beta=0.2, anneal_steps=0)) == 0.2


def test_a_strong_prior_collapses_the_codes():
    """At beta = 100 the code holds nothing of a history, and all users get the same scores."""
    X = matrix_of()
    spread = {}
    for beta in (0.0, 100.0):
        chosen = SMALL.model_copy(
            update={"epochs": 60, "learning_rate": 0.03, "beta": beta, "anneal_steps": 0}
        )
        spread[beta] = float(
            trained(X, chosen).score(np.arange(20, dtype=np.int32)).std(axis=0).mean()
        )
    assert spread[100.0] < 0.05 < 0.5 < spread[0.0]


# Batches.


def of_epoch(
    core: Core, n: int, chosen: MultVAESettings = SMALL
) -> Iterator[tuple[Ints, np.ndarray]]:
    """(items, the encoder's input) of every user."""
    for batch in multivae.batches(core, n, chosen, 0):
        cuts = batch.offsets.numpy()[1:-1]
        yield from zip(
            np.split(batch.items.numpy(), cuts), np.split(batch.shown.numpy(), cuts), strict=True
        )


def test_an_epoch_visits_every_user_once_in_its_own_order():
    X = matrix_of(n_users=37)
    X[[3, 36]] = 0
    core = Core.of(training_on(X), SMALL)
    epochs = [[tuple(items.tolist()) for items, _ in of_epoch(core, n)] for n in (1, 2)]
    histories = Counter(tuple(core.rows.of(u).tolist()) for u in range(37) if X[u].any())
    assert Counter(epochs[0]) == Counter(epochs[1]) == histories
    assert epochs[0] != epochs[1]
    assert [len(b.noise) for b in multivae.batches(core, 1, SMALL, 0)] == [8, 8, 8, 8, 3]


def test_dropout_hides_its_share_and_scales_the_rest():
    X = matrix_of(n_users=400, n_items=50)
    core = Core.of(training_on(X), SMALL)
    chosen = SMALL.model_copy(update={"dropout": 0.4})
    hidden = 0
    for items, shown in of_epoch(core, 1, chosen):
        hidden += int((shown == 0).sum())
        np.testing.assert_allclose(shown[shown > 0], 1 / sqrt(len(items)) / 0.6, rtol=1e-6)
    assert hidden / X.sum() == pytest.approx(0.4, abs=0.03)
    whole = SMALL.model_copy(update={"dropout": 0.0})
    assert all(
        np.linalg.norm(shown) == pytest.approx(1, rel=1e-6) for _, shown in of_epoch(core, 1, whole)
    )


def test_every_epoch_has_its_own_dropout_and_noise():
    core = Core.of(training_on(matrix_of()), SMALL)
    whole = SMALL.model_copy(update={"batch_size": 100})
    one, other = (next(multivae.batches(core, n, whole, 0)) for n in (1, 2))
    hidden = [Counter(b.items[b.shown == 0].tolist()) for b in (one, other)]
    assert hidden[0] != hidden[1]
    assert not np.isin(one.noise.numpy(), other.noise.numpy()).any()


# Scores.


def test_scores_are_those_of_pytorchs_own_layers():
    """At the mean of the code and without dropout, with dense histories in torch's layers."""
    X = matrix_of()
    assert X.any(axis=0).all()
    model = trained(X)
    x = torch.nn.functional.normalize(torch.from_numpy(X).float())
    net = {name: torch.from_numpy(getattr(model, name)) for name in model.trained}

    def layer(below: Any, weights: str, bias: str) -> Any:
        return torch.nn.functional.linear(below, net[weights].T, net[bias])

    mu = layer(
        torch.tanh(layer(x, "encoder_rows", "encoder_bias")), "latent_weights", "latent_bias"
    )[:, :3]
    top = torch.tanh(layer(mu, "decoder_weights", "decoder_bias"))
    expected = torch.nn.functional.linear(top, net["item_rows"], net["item_bias"]).numpy()
    np.testing.assert_allclose(
        model.score(np.arange(20, dtype=np.int32)), expected, rtol=1e-4, atol=1e-5
    )


def test_a_new_user_is_scored_by_their_history():
    X = matrix_of()
    model = trained(X)
    for user in (0, 7):
        got = model.score_new_user(np.flatnonzero(X[user]).astype(np.int32))
        np.testing.assert_allclose(got, model.score(np.array([user], np.int32))[0], rtol=1e-5)
    assert np.isfinite(model.score_new_user(np.empty(0, np.int32))).all()


# Users and items with few interactions.


@settings(deadline=None, max_examples=100)
@given(
    st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=40),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_the_core_equals_dropping_interactions_one_by_one(pairs, min_user_items, min_item_users):
    listed = sorted(pairs)
    left = set(pairs)
    while True:
        users = Counter(u for u, _ in left)
        items = Counter(i for _, i in left)
        dropped = [
            (u, i) for u, i in left if users[u] < min_user_items or items[i] < min_item_users
        ]
        if not dropped:
            break
        left.remove(dropped[0])
    columns = np.array(listed, np.int32).reshape(-1, 2).T
    remaining = multivae.find_core(columns[0], columns[1], min_user_items, min_item_users)
    assert {pair for pair, stays in zip(listed, remaining, strict=True) if stays} == left


BLOCK_AND_RIM = np.array(
    [
        [1, 1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],  # item 3 is dropped: one user has it
        [0, 0, 1, 0, 1, 0],  # without item 4 this user has one item, and is dropped too
        [0, 0, 0, 0, 0, 0],
    ]
)
RIM = SMALL.model_copy(update={"min_user_items": 2, "min_item_users": 2})


def test_dropped_users_are_not_served_and_dropped_items_rank_last():
    model = trained(BLOCK_AND_RIM, RIM)
    users = np.arange(5, dtype=np.int32)
    assert model.serves(users).tolist() == [True, True, True, False, False]
    assert model.serves(np.array([3, 0], np.int32)).tolist() == [False, True]
    scores = model.score(users)
    assert (scores[:, 3:] == np.float32(LOWEST)).all()
    assert (scores[:, :3] > -100).all()
    some = np.array([[5, 0], [1, 3], [2, 2], [4, 3], [0, 5]], np.int32)
    np.testing.assert_allclose(
        model.score(users, some), np.take_along_axis(scores, some, axis=1), rtol=1e-5
    )
    assert Rows(model.offsets, model.history).of(2).tolist() == [0, 1]
    assert model.n_parameters == 2 * 3 * 5 + 3 + 2 * 5 + 5 * 6 + 6 + 3 * 5  # three items


def test_dropped_items_do_not_affect_a_new_user():
    model = trained(BLOCK_AND_RIM, RIM)
    one, other = (model.score_new_user(np.array(h, np.int32)) for h in ([0, 2], [0, 2, 3, 5]))
    np.testing.assert_array_equal(one, other)


def test_by_default_only_items_without_users_are_dropped():
    model = trained(BLOCK_AND_RIM)
    assert model.serves(np.arange(5, dtype=np.int32)).tolist() == [True, True, True, True, False]
    lowest = model.score(np.arange(5, dtype=np.int32)) == np.float32(LOWEST)
    assert lowest.any(axis=0).tolist() == [False] * 5 + [True]


def test_dropped_items_do_not_matter_to_the_network():
    """With dropped items between the others, or without them, the model is the same."""
    apart = np.zeros((20, 24), int)
    apart[:, 1::2] = X = matrix_of()
    assert trained(apart).score(np.arange(20, dtype=np.int32))[:, 1::2].tobytes() == (
        trained(X).score(np.arange(20, dtype=np.int32)).tobytes()
    )


def test_an_empty_core_is_rejected():
    chosen = SMALL.model_copy(update={"min_user_items": 9, "min_item_users": 1})
    with pytest.raises(
        ConfigError,
        match=r"'min_user_items' 9 and 'min_item_users' 1 leave none of 11 interactions .*Lower",
    ):
        trainer(BLOCK_AND_RIM, chosen)


# Same seed, same bits.


def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path: Path):
    X = matrix_of()
    whole = trainer(X)
    state = whole.start()[0]
    for n in range(1, 5):
        state = whole.step(state, n)[0]
        if n == 2:
            checkpoint.write(
                tmp_path, Point(state, TrainingHistory.begin(20, whole.start()[1])), "data", {}
            )
    again = checkpoint.read(tmp_path, Learning, "data", {})
    assert again is not None
    later = again.state
    fresh = trainer(X)
    for n in (3, 4):
        later = fresh.step(later, n)[0]
    assert all(
        later.arrays()[name].tobytes() == array.tobytes() for name, array in state.arrays().items()
    )
    assert fresh.model(later).score(np.arange(20, dtype=np.int32)).tobytes() == (
        whole.model(state).score(np.arange(20, dtype=np.int32)).tobytes()
    )


def test_a_step_does_not_change_its_input():
    work = trainer(matrix_of())
    state = work.start()[0]
    before = {name: array.copy() for name, array in state.arrays().items()}
    work.step(state, 1)
    assert all(np.array_equal(array, before[name]) for name, array in state.arrays().items())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named():
    with pytest.raises(ConfigError, match=r"'device' is 'cuda', but PyTorch finds no GPU"):
        trainer(matrix_of(), SMALL.model_copy(update={"device": "cuda"}))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_repeats_its_bits_and_agrees_with_the_cpu():
    X = matrix_of()
    on_gpu = SMALL.model_copy(update={"device": "cuda"})
    one, other = (trained(X, on_gpu).item_rows for _ in range(2))
    assert one.tobytes() == other.tobytes()
    np.testing.assert_allclose(one, trained(X).item_rows, atol=1e-4)


def test_pytorchs_global_generator_is_not_used():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = trained(matrix_of())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert trained(matrix_of()).item_rows.tobytes() == one.item_rows.tobytes()
    assert trained(matrix_of(), seed=1).item_rows.tobytes() != one.item_rows.tobytes()


@pytest.mark.parametrize("large", [False, True])
def test_the_number_of_threads_changes_at_most_rounding(large, monkeypatch):
    """In a small network it changes nothing."""
    if large:
        monkeypatch.setattr(multivae, "LARGE", 0)
    X = matrix_of(n_users=300, n_items=700, density=0.05)
    chosen = MultVAESettings(hidden=32, latent=16, epochs=1, batch_size=100)
    threads = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2, 4):
            torch.set_num_threads(n)
            found.append(trained(X, chosen).score(np.arange(300, dtype=np.int32)))
            assert torch.get_num_threads() == n
    finally:
        torch.set_num_threads(threads)
    for scores in found[1:]:
        np.testing.assert_allclose(scores, found[0], atol=1e-4 if large else 0)


# Without PyTorch.


def test_training_without_pytorch_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtra, match=r"training multivae needs .* pip install 'coterie\[neural\]'"
    ):
        trainer(matrix_of())


def test_a_trained_model_needs_no_pytorch(monkeypatch):
    model = trained(matrix_of())
    before = model.score(np.arange(20, dtype=np.int32))
    monkeypatch.setitem(sys.modules, "torch", None)
    back = MultVAE.from_arrays(model.arrays())
    np.testing.assert_array_equal(back.score(np.arange(20, dtype=np.int32)), before)
    assert back.score_new_user(np.array([1], np.int32)).shape == (12,)


# Quality.


def test_it_learns_tastes_and_not_only_popularity():
    data = generate(Synthetic(n_users=300, n_items=120, n_groups=6, mean_interactions=20))
    popular = api.run("popular", data, protocol="full").full["NDCG@10"]
    learned = api.run(
        "multivae", data, protocol="full", hidden=64, latent=16, epochs=30, batch_size=50
    )
    assert learned.full["NDCG@10"] > 2.5 * popular
