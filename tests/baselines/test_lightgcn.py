"""LightGCN: layers, loss and steps equal dense twins, and training can resume."""

from __future__ import annotations

import sys
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie import api
from coterie.baselines import lightgcn
from coterie.baselines.lightgcn import ALGORITHM, Graph, LightGCNSettings, LightGCNState
from coterie.core.progress import SILENT
from coterie.data.synthetic import Synthetic, generate
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, MissingExtra
from coterie.experiments import checkpoint
from coterie.experiments.history import Point, TrainingHistory
from coterie.experiments.training import fit
from coterie.federated.trainer import Context, Trainer
from coterie.models.lightgcn import LightGCN
from coterie.models.new_user import NewUser
from coterie.types import Rows

torch = pytest.importorskip("torch", reason="PyTorch (the extra 'neural') is not installed")

SMALL = LightGCNSettings(
    embedding_size=4, layers=3, epochs=3, batch_size=16, learning_rate=0.02, reg=0.05
)
EVERYONE = np.arange(20, dtype=np.int32)
CPU = torch.device("cpu")


def matrix_of(
    seed: int = 0, n_users: int = 20, n_items: int = 12, density: float = 0.3
) -> np.ndarray:
    X = (np.random.default_rng(seed).random((n_users, n_items)) < density).astype(int)
    X[3] = 0  # a user without items
    X[:, 5] = 0  # an item without users
    X[4] = 1  # a user with every item, and so without negatives
    return X


def training_on(X: np.ndarray) -> TrainingSet:
    users, items = np.nonzero(X)
    rows = Rows.build(users.astype(np.int32), items.astype(np.int32), len(X))
    return TrainingSet(*X.shape, rows, rows, None)


def graph_of(X: np.ndarray) -> Graph:
    return Graph.of(training_on(X), CPU)


def trainer(X: np.ndarray, chosen: LightGCNSettings = SMALL, seed: int = 0) -> Trainer:
    return lightgcn.make(training_on(X), chosen, Context(seed, SILENT))


def trained(X: np.ndarray, chosen: LightGCNSettings = SMALL, seed: int = 0) -> LightGCN:
    model = fit(ALGORITHM, training_on(X), chosen, Context(seed, SILENT))
    assert isinstance(model, LightGCN)
    return model


def trained_state(X: np.ndarray, chosen: LightGCNSettings = SMALL) -> LightGCNState:
    work = trainer(X, chosen)
    state = work.start()[0]
    for n in range(1, chosen.epochs + 1):
        state = work.step(state, n)[0]
    assert isinstance(state, LightGCNState)
    return state


def random_rows(X: np.ndarray, seed: int = 0, size: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(sum(X.shape), size)).astype(np.float32)


# The slow twin: He et al. 2020, equations 8, 11 and 15, with dense matrices in double precision.


def slow_adjacency(X: np.ndarray) -> np.ndarray:
    """D^-1/2 A D^-1/2; rows and columns of nodes without neighbours are zero."""
    n_users, n_items = X.shape
    A = np.block([[np.zeros((n_users, n_users)), X], [X.T, np.zeros((n_items, n_items))]])
    degrees = A.sum(axis=1)
    roots = np.array([1 / sqrt(d) if d else 0.0 for d in degrees])
    return np.diag(roots) @ A @ np.diag(roots)


def slow_final(X: np.ndarray, rows: Any, layers: int) -> Any:
    """The mean of the layers; of arrays or of tensors."""
    A = slow_adjacency(X)
    powers = [np.linalg.matrix_power(A, k) for k in range(layers + 1)]
    P = np.mean(powers, axis=0)
    return (P if isinstance(rows, np.ndarray) else torch.from_numpy(P)) @ rows


def slow_loss(X: np.ndarray, rows: Any, batch: np.ndarray, chosen: LightGCNSettings) -> Any:
    final = slow_final(X, rows, chosen.layers)
    total = torch.zeros((), dtype=torch.float64)
    for u, i, j in batch.T:
        lead = final[u] @ final[i] - final[u] @ final[j]
        total = total - torch.log(torch.sigmoid(lead))
        total = total + chosen.reg / 2 * sum((rows[node] ** 2).sum() for node in (u, i, j))
    return total / batch.shape[1]


# The graph.


def test_a_layer_by_hand():
    """User 0 has items 0 and 1, user 1 has item 1; user 2 and item 2 have no neighbours."""
    X = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0]])
    rows = torch.tensor([[1.0], [2.0], [3.0], [10.0], [20.0], [30.0]])
    layer = graph_of(X).convolve(rows)[:, 0].tolist()
    by_hand = [
        10 / sqrt(2 * 1) + 20 / sqrt(2 * 2),  # user 0
        20 / sqrt(1 * 2),
        0,
        1 / sqrt(1 * 2),  # item 0
        1 / sqrt(2 * 2) + 2 / sqrt(2 * 1),
        0,
    ]
    assert layer == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.parametrize("layers", [1, 2, 3, 5])
def test_the_mean_of_the_layers_equals_the_dense_twin(layers):
    X = matrix_of()
    rows = random_rows(X)
    final = graph_of(X).propagate(torch.from_numpy(rows), layers).numpy()
    np.testing.assert_allclose(final, slow_final(X, rows.astype(np.float64), layers), atol=1e-5)


# Triples.


def test_an_epoch_has_every_interaction_once_with_an_unseen_item():
    X = matrix_of()
    u, i, j = lightgcn.draw_triples(training_on(X), 1, seed=0)
    with_negatives = X.copy()
    with_negatives[4] = 0
    expected = list(zip(*np.nonzero(with_negatives), strict=True))
    assert sorted(zip(u, i - 20, strict=True)) == expected
    assert not X[u, j - 20].any()
    assert (j - 20).min() >= 0
    assert (j - 20).max() < 12


def test_every_epoch_has_its_own_order_and_negatives():
    training = training_on(matrix_of())
    one, other = (lightgcn.draw_triples(training, n, seed=0) for n in (1, 2))
    assert (one[:2] != other[:2]).any()
    by_pair = [dict(zip(zip(*t[:2], strict=True), t[2], strict=True)) for t in (one, other)]
    changed = [by_pair[0][pair] != by_pair[1][pair] for pair in by_pair[0]]
    assert np.mean(changed) > 0.5


def test_negatives_are_uniform():
    X = np.zeros((1, 6), int)
    X[0, [1, 4]] = 1
    drawn = [lightgcn.draw_triples(training_on(X), n, seed=0)[2] - 1 for n in range(1, 1001)]
    counts = np.bincount(np.concatenate(drawn), minlength=6)
    assert counts[[1, 4]].tolist() == [0, 0]
    assert np.abs(counts[[0, 2, 3, 5]] - 500).max() < 80  # four standard deviations


def test_held_out_items_are_not_spared_unless_as_published():
    """Negatives exclude `excluded`, which is the training positives or more than them."""
    X = matrix_of()
    training = training_on(X)
    more = X.copy()
    more[0] = 1
    leaking = TrainingSet(*X.shape, training.positives, training_on(more).positives, None)
    assert 0 in lightgcn.draw_triples(training, 1, seed=0)[0]
    assert 0 not in lightgcn.draw_triples(leaking, 1, seed=0)[0]


def test_batches_have_about_equal_sizes(monkeypatch):
    sizes = []
    gradient = lightgcn.loss_gradient

    def noted(rows, batch, graph, chosen):
        sizes.append(batch.shape[1])
        return gradient(rows, batch, graph, chosen)

    monkeypatch.setattr(lightgcn, "loss_gradient", noted)
    X = matrix_of()
    trained(X, SMALL.model_copy(update={"epochs": 1, "batch_size": 30}))
    n_triples = X.sum() - 12
    assert sum(sizes) == n_triples
    assert len(sizes) == -(-n_triples // 30)
    assert max(sizes) - min(sizes) <= 1


# Steps.


def test_the_gradient_equals_that_of_the_twins_loss():
    X = matrix_of()
    rows = random_rows(X)
    batch = lightgcn.draw_triples(training_on(X), 1, seed=0)[:, :30]
    wide = torch.from_numpy(rows.astype(np.float64)).requires_grad_()
    (wanted,) = torch.autograd.grad(slow_loss(X, wide, batch, SMALL), wide)
    got = lightgcn.loss_gradient(
        torch.from_numpy(rows), torch.from_numpy(batch), graph_of(X), SMALL
    )
    assert wanted.abs().max() > 0.01
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), atol=1e-6)


def slow_training(X: np.ndarray, chosen: LightGCNSettings, epochs: int) -> np.ndarray:
    """PyTorch's own Adam on the twin's loss."""
    training = training_on(X)
    begin = lightgcn.start(training, chosen, 0).all_rows().astype(np.float64)
    rows = torch.from_numpy(begin).requires_grad_()
    optimiser = torch.optim.Adam([rows], lr=chosen.learning_rate)
    for n in range(1, epochs + 1):
        triples = lightgcn.draw_triples(training, n, 0)
        n_batches = -(-triples.shape[1] // chosen.batch_size)
        for batch in np.array_split(triples, n_batches, axis=1):
            optimiser.zero_grad()
            slow_loss(X, rows, batch, chosen).backward()
            optimiser.step()
    return rows.detach().numpy()


def test_steps_are_those_of_adam():
    X = matrix_of()
    work = trainer(X)
    state = work.start()[0]
    for n in (1, 2):
        state = work.step(state, n)[0]
        np.testing.assert_allclose(state.all_rows(), slow_training(X, SMALL, n), atol=2e-5)
    assert np.abs(state.all_rows() - work.start()[0].all_rows()).max() > 0.1


# The model.


def test_scores_are_products_of_the_twins_rows():
    X = matrix_of()
    state = trained_state(X)
    final = slow_final(X, state.all_rows().astype(np.float64), SMALL.layers)
    model = trained(X)
    np.testing.assert_allclose(model.score(EVERYONE), final[:20] @ final[20:].T, atol=1e-5)
    assert model.n_parameters == 4 * (20 + 12)


def test_a_trained_row_is_its_own_part_and_what_the_graph_adds():
    X = matrix_of()
    state = trained_state(X)
    model = trained(X)
    for user in (0, 4, 7):
        history = np.flatnonzero(X[user])
        by_graph = model.messages[history].sum(axis=0) / sqrt(len(history))
        own = state.user_rows[user] / (SMALL.layers + 1)
        np.testing.assert_allclose(model.user_rows[user], own + by_graph, atol=1e-6)


def loss_of(scores: np.ndarray, history: np.ndarray) -> float:
    others = np.setdiff1d(np.arange(len(scores)), history)
    leads = scores[history][:, None] - scores[others]
    return float(np.log1p(np.exp(-leads)).mean())


def test_the_own_part_of_a_new_user_lowers_the_loss():
    X = matrix_of()
    model = trained(X)
    history = np.flatnonzero(X[0]).astype(np.int32)
    row = model.messages[history].sum(axis=0) / sqrt(len(history))
    by_graph = model.item_rows @ row
    held = model.score_new_user(history, SMALL.layers, reg=1e6)
    np.testing.assert_allclose(held, by_graph, atol=1e-5)
    free = model.score_new_user(history, SMALL.layers, reg=1e-3)
    assert loss_of(free, history) < 0.9 * loss_of(by_graph, history)
    # The part is a row times the item rows, so the scores stay in their span.
    residual = np.linalg.lstsq(model.item_rows, free, rcond=None)[1]
    assert residual == pytest.approx(0, abs=1e-6)


def test_a_new_user_with_every_item_gets_finite_scores():
    model = trained(matrix_of())
    assert np.isfinite(model.score_new_user(np.arange(12, dtype=np.int32), 3, 0.0)).all()


def test_without_items_a_new_user_gets_the_average_row():
    model = trained(matrix_of())
    wanted = model.item_rows @ model.user_rows.mean(axis=0)
    got = model.score_new_user(np.empty(0, np.int32), SMALL.layers, SMALL.reg)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_new_user_ranks_items_as_a_trained_user_of_the_same_history():
    run = api.run("lightgcn", n_users=120, n_items=60, batch_size=128)
    settings = LightGCNSettings.of(run.result["settings"])
    users = np.arange(20, dtype=np.int32)
    assert isinstance(run.model, LightGCN)
    for user, scores in zip(users, run.model.score(users), strict=True):
        new = NewUser(items=run.catalogue.seen.of(user))
        got = lightgcn.score_new_user(run.model, new, settings)
        assert np.corrcoef(got, scores)[0, 1] > 0.95


# Same seed, same bits.


def test_resuming_from_a_checkpoint_gives_the_same_bits(tmp_path: Path):
    X = matrix_of()
    whole = trainer(X)
    state = whole.start()[0]
    for n in range(1, 5):
        state = whole.step(state, n)[0]
        if n == 2:
            history = TrainingHistory.begin(20, whole.start()[1])
            checkpoint.write(tmp_path, Point(state, history), "data", {})
    again = checkpoint.read(tmp_path, LightGCNState, "data", {})
    assert again is not None
    later = again.state
    fresh = trainer(X)
    for n in (3, 4):
        later = fresh.step(later, n)[0]
    assert all(
        later.arrays()[name].tobytes() == array.tobytes() for name, array in state.arrays().items()
    )
    assert fresh.model(later).user_rows.tobytes() == whole.model(state).user_rows.tobytes()


def test_a_step_does_not_change_its_input():
    work = trainer(matrix_of())
    state = work.step(work.start()[0], 1)[0]
    before = {name: array.copy() for name, array in state.arrays().items()}
    work.step(state, 2)
    assert all(np.array_equal(array, before[name]) for name, array in state.arrays().items())


def test_pytorchs_global_generator_is_not_used():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = trained(matrix_of())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert trained(matrix_of()).item_rows.tobytes() == one.item_rows.tobytes()
    assert trained(matrix_of(), seed=1).item_rows.tobytes() != one.item_rows.tobytes()


def test_the_number_of_threads_changes_nothing(monkeypatch):
    monkeypatch.setattr(lightgcn, "LARGE", 0)
    X = matrix_of(n_users=300, n_items=700, density=0.1)
    chosen = LightGCNSettings(epochs=1, batch_size=4000)
    threads = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2, 4):
            torch.set_num_threads(n)
            found.append(trained(X, chosen).item_rows.tobytes())
            assert torch.get_num_threads() == n
    finally:
        torch.set_num_threads(threads)
    assert found[1:] == found[:1] * 2


def test_a_run_can_start_from_the_rows_of_another(tmp_path: Path):
    data = generate(Synthetic(n_users=60, n_items=40))
    folder = tmp_path / "first"
    api.run("lightgcn", data, epochs=2, out=folder)
    again = api.run("lightgcn", data, epochs=1, start_from=str(folder))
    fresh = api.run("lightgcn", data, epochs=1)
    assert isinstance(again.model, LightGCN)
    assert isinstance(fresh.model, LightGCN)
    assert not np.allclose(again.model.item_rows, fresh.model.item_rows, atol=1e-3)


# Without PyTorch, without a GPU, without Numba.


def test_training_without_pytorch_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        MissingExtra, match=r"training lightgcn needs .* pip install 'coterie\[neural\]'"
    ):
        trainer(matrix_of())


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


def test_a_trained_model_needs_no_pytorch(monkeypatch):
    model = trained(matrix_of())
    before = model.score(EVERYONE)
    monkeypatch.setitem(sys.modules, "torch", None)
    back = LightGCN.from_arrays(model.arrays())
    np.testing.assert_array_equal(back.score(EVERYONE), before)
    assert back.score_new_user(np.array([1], np.int32), 3, 0.1).shape == (12,)


# Quality.


def test_it_learns_tastes_and_not_only_popularity():
    data = generate(Synthetic(n_users=300, n_items=120, n_groups=6, mean_interactions=20))
    popular = api.run("popular", data, protocol="full").full["NDCG@10"]
    learned = api.run("lightgcn", data, protocol="full", embedding_size=16, epochs=30)
    assert learned.full["NDCG@10"] > 2.5 * popular
