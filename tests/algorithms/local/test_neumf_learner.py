"""NeuMF trained by FedAvg and FedFast: the same bits for any layout, and it learns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_federation import WITH_LEARNERS, few_settings, histories, play_locally, sha256, world_for

from coterie import api
from coterie.algorithms import fedavg, fedfast, registry
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.experiments.training import fit
from coterie.federated.federation import NodeData
from coterie.federated.trainer import Context
from coterie.models.neumf import NeuMF
from coterie.types import SCALE

federated = pytest.mark.parametrize("name", WITH_LEARNERS)
NEUMF = {"model": "neumf", "layers": (9, 4)}


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


# Same bits.


@federated
def test_the_number_of_threads_does_not_matter(name, choices, monkeypatch):
    found = set()
    for threads in (1, 2, 5):
        monkeypatch.setenv("COTERIE_THREADS", str(threads))
        found.add(sha256(play_locally(name, choices, **NEUMF)[0][-1]))
    assert len(found) == 1


@federated
@pytest.mark.parametrize("rated", [False, True], ids=["choices", "ratings"])
def test_the_number_of_nodes_does_not_matter(name, rated, choices):
    ratings = (
        np.random.default_rng(0).normal(3, 1, len(choices)).astype(np.float32) if rated else None
    )
    training = replace(choices, ratings=ratings)
    changes = NEUMF | ({"learning_rate": 0.01} if rated else {})
    played = [
        play_locally(name, training, *how, **changes) for how in ((1, False), (1, True), (3, None))
    ]
    assert len({sha256(states[-1]) for states, _ in played}) == 1
    assert sha256(played[0][0][0]) != sha256(played[0][0][-1])
    assert [t.bytes_up for t in played[0][1]] == [t.bytes_up for t in played[2][1]]
    assert all(t.accepted and not t.refused for t in played[0][1])


def test_the_number_of_nodes_is_a_setting(people):
    few = {"rounds": 3, "embedding_size": 4, **NEUMF}
    one, three = (api.run("fedfast", people, nodes=n, **few) for n in (1, 3))
    assert isinstance(one.model, NeuMF)
    assert sha256(one.model) == sha256(three.model)
    assert one.metrics == three.metrics


@federated
def test_another_seed_is_another_run(name, choices):
    assert (
        len({sha256(play_locally(name, choices, seed=seed, **NEUMF)[0][-1]) for seed in range(3)})
        == 3
    )


# Behaviour.


def test_a_round_of_one_user_is_that_users_own_training():
    """The average over one client is its update: the state changes by what the client sent."""
    training = histories(3, n_users=8)
    world = world_for("fedavg", training, average="touched", **NEUMF)
    start = fedavg.init(world)
    user = np.array([2], np.int32)
    message = fedavg.broadcast(world, start, user, 0)
    sent = fedavg.client_update(world, message, NodeData(np.arange(8, dtype=np.int32), training))
    sums = fedavg.weigh_by_samples(world, message, sent)
    after = fedavg.average(
        world, start, sums, fedavg.Accepted(sent.users, sent.samples, sent.user_rows), 0
    )
    np.testing.assert_allclose(after.dense - start.dense, sent.dense[0] / SCALE, atol=1e-6)
    np.testing.assert_allclose(
        after.item_rows[sent.items] - start.item_rows[sent.items], sent.item_rows / SCALE, atol=1e-6
    )
    np.testing.assert_allclose(
        after.user_rows[2] - start.user_rows[2], sent.user_rows[0] / SCALE, atol=1e-6
    )
    assert all(part.any() for part in (sent.dense, sent.item_rows, sent.user_rows))
    assert (sent.item_rows != 0).any(axis=0).all()  # both parts of a row change


def test_users_are_clustered_on_both_parts_of_their_rows():
    """Rows that differ in one part only, in either part, are in different clusters."""
    training = histories(1, n_users=12)
    world = world_for(
        "fedfast", training, embedding_size=4, clusters=2, cluster_iterations=20, **NEUMF
    )
    groups = np.where(world.members, np.arange(12) % 2, -1).astype(np.int32)
    for part in (slice(0, 4), slice(4, 8)):
        rows = np.zeros((12, 8), np.float32)
        rows[:6, part] = 5.0
        found = fedfast.cluster_users(world, rows, groups)
        first = set(found[:6][world.members[:6]])
        second = set(found[6:][world.members[6:]])
        assert len(first) == len(second) == 1
        assert first != second


@pytest.mark.parametrize(
    ("name", "changes"), [("fedfast", {}), ("fedavg", {"rounds": 150, "average": "touched"})]
)
def test_it_beats_popularity(name, changes, people):
    """200 users with four tastes.

    HR@10 over four seeds: FedFast 0.52 to 0.60, FedAvg 0.60 to 0.68, popularity 0.34.
    """
    settings = {"rounds": 60, "embedding_size": 8, "participation": 0.3, **NEUMF, **changes}
    settings |= {"popularity_prior": 0}
    run = api.run(name, people, protocol="loo-50", **settings)
    popular = api.run("popular", people, protocol="loo-50")
    untrained = api.run(
        name,
        people,
        protocol="loo-50",
        model="neumf",
        rounds=1,
        learning_rate=1e-9,
        popularity_prior=0,
    )
    assert run.metrics["HR@10"] > popular.metrics["HR@10"] + 0.1
    assert run.metrics["HR@10"] > untrained.metrics["HR@10"] + 0.25


def rated(seed: int = 0, n_users: int = 60, n_items: int = 40) -> Interactions:
    """Ratings from two planted tastes and a little noise, between 1 and 5."""
    rng = np.random.default_rng(seed)
    taste = rng.choice([-1, 1], n_users)
    kind = rng.choice([-1, 1], n_items)
    users, items = np.nonzero(rng.random((n_users, n_items)) < 0.4)
    ratings = np.clip(3 + 1.5 * taste[users] * kind[items] + rng.normal(0, 0.2, len(users)), 1, 5)
    return Interactions.from_columns(users, items, ratings, rng.permutation(len(users)))


@pytest.mark.parametrize("name", ["neumf", "fedfast"])
def test_it_learns_ratings(name):
    parts = split(rated(), "random", 0.2, seed=0)
    changes = (
        {"epochs": 60}
        if name == "neumf"
        else {"rounds": 150, "participation": 0.5, "model": "neumf"}
    )
    chosen = registry.algorithm(name)
    settings = chosen.settings.of(
        {"embedding_size": 4, "learning_rate": 0.02, "layers": (8, 4), **changes}
    )
    model = fit(chosen, parts.training(), settings, Context(0, SILENT))
    found = model.score(parts.test.users, parts.test.items[:, None].astype(np.int32))[:, 0]
    assert parts.test.ratings is not None
    variance = float(parts.test.ratings.var())
    assert variance > 2
    assert float(((found - parts.test.ratings) ** 2).mean()) < variance / 4


# Settings.


@pytest.mark.parametrize("given", ["32,16,8", [32, 16, 8], (32, 16, 8), "32, 16, 8"])
def test_layers_can_be_given_as_text(given):
    assert few_settings("fedfast", layers=given).layers == (32, 16, 8)
    assert registry.algorithm("neumf").settings.of({"layers": given}).layers == (32, 16, 8)


def test_a_single_layer_is_a_number():
    assert few_settings("fedavg", layers=12).layers == (12,)


@pytest.mark.parametrize(
    "given", [[], [0], [-3], "8,many", [5_000], [8] * 9, True, [True], None, 1.5]
)
@pytest.mark.parametrize("name", ["neumf", "fedfast"])
def test_invalid_layers_are_rejected_by_name(name, given):
    with pytest.raises(
        ConfigError, match=r"^setting 'layers' is .*Change it with --set layers=VALUE\.$"
    ):
        registry.algorithm(name).settings.of({"layers": given})


@pytest.mark.long
@pytest.mark.parametrize(
    "how",
    [{"batch_size": 8}, {"optimizer": "adam", "batch_size": 32, "learning_rate": 0.02}],
    ids=str,
)
def test_batches_and_adam_use_torch_and_repeat_and_learn(how, people):
    pytest.importorskip("torch", reason="PyTorch (the extra 'neural') is not installed")
    few = {"rounds": 40, "embedding_size": 6, "participation": 0.5, "learning_rate": 0.5}
    few |= {"cutoffs": 10} | NEUMF | how
    one, again = (api.run("fedfast", people, **few) for _ in range(2))
    assert sha256(one.model) == sha256(again.model)
    popular = api.run("popular", people, cutoffs=10)
    assert one.metrics["NDCG@10"] > 0.7 * popular.metrics["NDCG@10"]


@pytest.mark.parametrize(("model", "family"), [("gmf", "gmf_users"), ("neumf", "neumf_users")])
def test_the_kernels_compiled_at_start_are_those_of_the_model(model, family):
    for name in WITH_LEARNERS:
        chosen = registry.algorithm(name)
        families = chosen.kernels_for(few_settings(name, model=model))
        assert {f for f in families if "users" in f} == {family}
        assert {"samples", "sums", "clusters"} <= set(families)
