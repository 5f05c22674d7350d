"""GPFedRec: rounds equal a twin in PyTorch; the graph by hand, and the cosine that is not one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_batches import batches_of
from small_federation import few_settings, histories, play, play_locally, world_for

from coterie.algorithms import gpfedrec
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError

FEW: dict[str, Any] = {
    "rounds": 2,
    "layers": (6, 4),
    "learning_rate": 0.2,
    "user_rate": 2.0,
    "item_rate": 4.0,
    "reg": 0.5,
    "batch_size": 10,
    "start_scale": 0.7,
    "participation": 1.0,
}
TOLERANCE = 2e-6
"""Two units of fixed point. Over forty histories and both graphs the largest difference was 8e-7
and the closest a similarity came to the threshold 2.4e-7: no graph differed. One that did would
move guides by tenths."""


@pytest.mark.parametrize("similarity", ["cosine", "distance"])
def test_rounds_equal_the_slow_twin(similarity: str) -> None:
    pytest.importorskip("torch")
    from slow_gpfedrec import Client, client_update, graph_aggregation

    training = histories(8)
    world = world_for("gpfedrec", training, **FEW, similarity=similarity, embedding_size=5)
    s = world.settings
    states, costs = play("gpfedrec", world, LocalEngine.over(world, training, 1))
    q = states[0].item_rows.astype(float)
    guides = dict.fromkeys(range(12), q)
    networks = {u: states[0].networks[u].astype(float) for u in range(12)}
    rates = (
        s.learning_rate,
        s.learning_rate * s.user_rate,
        s.item_learning_rate(world.n_items),
    )
    for t, (after, cost) in enumerate(zip(states[1:], costs, strict=True)):
        tables = []
        batches = batches_of(world, cost.users, t, training)
        for u, own in zip(cost.users.tolist(), batches, strict=True):
            client = Client(networks[u], [10, 6, 4], q)
            client_update(client, guides[u], own, rates, s.reg)
            networks[u] = client.flat()
            tables.append(client.q.detach().numpy())
            np.testing.assert_allclose(after.networks[u], networks[u], atol=TOLERANCE)
            scores = client(list(range(15))).detach().numpy()
            np.testing.assert_allclose(after.scores[u], scores, atol=TOLERANCE)
        new, q = graph_aggregation(tables, similarity == "distance", s.threshold)
        guides |= dict(zip(cost.users.tolist(), new, strict=True))
        np.testing.assert_allclose(after.item_rows, q, atol=TOLERANCE)
        for u, guide in guides.items():
            np.testing.assert_allclose(after.guides[u], guide, atol=TOLERANCE)


TABLES = np.array([[[1.0, 0.0]], [[2.0, 0.0]], [[0.0, 3.0]]], np.float32)
"""Three clients with one item: two in the same direction, one at a right angle."""


def graph(**changes: Any) -> list[list[float]]:
    settings = few_settings("gpfedrec", **changes)
    flat = TABLES.reshape(len(TABLES), -1)
    return gpfedrec.user_graph(gpfedrec.similarities(flat @ flat.T, settings), settings).tolist()


def test_neighbours_by_hand() -> None:
    """Cosines are 1 within the pair and with oneself, and 0 otherwise: the mean is 5 / 9."""
    assert graph(similarity="cosine") == [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]


def test_the_authors_neighbours_are_those_least_alike() -> None:
    """Distances are 0 within the pair and with oneself, and 1 otherwise: the mean is 4 / 9."""
    assert graph(similarity="distance") == [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]]


def test_a_number_of_neighbours_and_none_at_all() -> None:
    assert graph(neighbours=1) == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert graph(threshold=9.0) == np.eye(3).tolist()


def test_the_distance_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    flat = np.random.default_rng(0).normal(size=(7, 12)).astype(np.float32)
    ours = gpfedrec.similarities(flat @ flat.T, few_settings("gpfedrec", similarity="distance"))
    theirs = metrics.pairwise_distances(flat, metric="cosine")
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_users_who_did_not_take_part_keep_their_guides() -> None:
    states, costs = play_locally("gpfedrec", histories(1), rounds=2, participation=0.3)
    others = np.setdiff1d(np.arange(12), costs[0].users)
    assert len(others)
    np.testing.assert_array_equal(states[0].guides[others], states[1].guides[others])
    assert (states[0].guides[costs[0].users] != states[1].guides[costs[0].users]).any()


def test_secure_aggregation_is_refused() -> None:
    pytest.importorskip("cryptography")
    with pytest.raises(ConfigError, match="needs every client's own update"):
        play_locally("gpfedrec", histories(1), secure_aggregation="ring")


def test_guides_of_many_users_and_items_are_refused_by_name() -> None:
    world = world_for("gpfedrec", histories(0), max_memory=1e-9)
    with pytest.raises(ConfigError, match=r"15 items .* 12 users; max_memory allows 1e-09"):
        gpfedrec.init(world)


def test_pytorch_averages_over_the_same_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arithmetic of a GPU, on the device that every machine has."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(gpfedrec, "find_device", lambda name: torch.device("cpu"))
    tables = np.random.default_rng(0).normal(size=(9, 4, 3)).astype(np.float32)
    settings = few_settings("gpfedrec", device="cuda")
    on_gpu = gpfedrec.aggregate_on_gpu(tables, settings)
    np.testing.assert_allclose(on_gpu, gpfedrec.aggregate_over_graph(tables, settings), atol=1e-6)


def test_a_gpu_averages_or_is_missed_before_training() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"'device' is 'cuda', but PyTorch finds no GPU"):
            gpfedrec.init(world_for("gpfedrec", histories(0), device="cuda"))
        return
    states = [play_locally("gpfedrec", histories(1), device=name)[0] for name in ("cpu", "cuda")]
    np.testing.assert_allclose(states[0][-1].guides, states[1][-1].guides, atol=TOLERANCE)
