"""FedSLIM: the bits of SLIM, whatever rounds and paths the histories take into the sum."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hostile import HostileEngine
from small_federation import histories, play, play_locally, sha256, world_for

from coterie import api
from coterie.algorithms import fedslim, pair_sums, registry
from coterie.algorithms.algorithm import score_history
from coterie.algorithms.local import sparse_weights
from coterie.baselines import slim
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.experiments.training import fit
from coterie.federated import trainer
from coterie.models.neighbours import ItemNeighbours, PrivateItemNeighbours
from coterie.models.new_user import NewUser

FEW: dict[str, Any] = {"participation": 1.0, "rounds": 1}
DESCENTS = [
    {},
    {"neighbours": 4},
    {"neighbours": 0, "reg_l1": 2.0, "reg_l2": 5.0},
    {"max_sweeps": 1, "tolerance": 0.0},
]
descents = pytest.mark.parametrize("descent", DESCENTS, ids=str)


def central(training: TrainingSet, **changes: Any) -> ItemNeighbours:
    model = fit(slim.ALGORITHM, training, slim.SLIM.of(changes), trainer.Context(0, SILENT))
    assert isinstance(model, ItemNeighbours)
    return model


def trained(training: TrainingSet, nodes: int = 1, **changes: Any) -> PrivateItemNeighbours:
    world = world_for("fedslim", training, **(FEW | changes))
    engine = LocalEngine.over(world, training, nodes)
    federation = registry.algorithm("fedslim").train
    context = trainer.Context(0, SILENT)
    work = trainer.federated_trainer(federation, world, engine, context)  # type: ignore[arg-type]
    states, _ = play("fedslim", world, engine)
    model = work.model(states[-1])
    assert isinstance(model, PrivateItemNeighbours)
    return model


def weight_bits(model: ItemNeighbours | PrivateItemNeighbours) -> tuple[bytes, ...]:
    return model.offsets.tobytes(), model.followers.tobytes(), model.similarities.tobytes()


# Equal to SLIM.


@descents
@pytest.mark.parametrize("nodes", [1, 3])
def test_weights_are_those_of_slim_bit_for_bit(descent, nodes):
    training = histories(1, n_users=60, n_items=33)
    found = trained(training, nodes, **descent)
    assert weight_bits(found) == weight_bits(central(training, **descent))
    assert found.similarities.min() > 0
    assert 33 < len(found.similarities) < 33 * 32


def test_settings_of_the_descent_change_the_weights():
    """Otherwise the equality above could be that of settings that are not passed on."""
    training = histories(1, n_users=60, n_items=33)
    assert len({weight_bits(trained(training, **descent)) for descent in DESCENTS}) == 4


@pytest.mark.parametrize("table", [0, 7 * 4 * 33])
def test_weights_are_those_of_slim_where_its_table_has_few_rows(table, monkeypatch):
    monkeypatch.setattr(slim, "TABLE_BYTES", table)
    training = histories(2, n_users=60, n_items=33)
    assert weight_bits(trained(training)) == weight_bits(central(training))


@descents
def test_the_private_model_scores_as_the_public_one(descent):
    training = histories(2, n_users=60, n_items=33)
    public = central(training, **descent)
    private = trained(training, 3, **descent)
    users = np.arange(59, -1, -1, dtype=np.int32)
    assert private.score(users).tobytes() == public.score(users).tobytes()
    candidates = np.random.default_rng(0).integers(0, 33, (60, 5)).astype(np.int32)
    assert private.score(users, candidates).tobytes() == public.score(users, candidates).tobytes()
    assert private.serves(users).tolist() == public.serves(users).tolist()
    assert not private.serves(np.array([58], np.int32))[0], "this user has no history"
    for item in range(33):
        assert private.similar_items(item).tobytes() == public.similar_items(item).tobytes()
    history = public.histories().of(3)
    wanted = public.contributions(history, users[-9:])
    np.testing.assert_array_equal(private.contributions(history, users[-9:]), wanted)
    assert private.n_parameters == public.n_parameters == len(public.similarities)


def test_metrics_are_those_of_slim(people):
    same = {"protocol": "full", "seed": 1, "reg_l2": 10.0}
    assert api.run("fedslim", people, **same).full == api.run("slim", people, **same).full


def test_defaults_are_those_of_slim():
    ours = fedslim.FedSLIM().model_dump()
    assert slim.SLIM().model_dump().items() <= ours.items()


def test_the_table_has_all_counts():
    training = histories(3, n_users=40, n_items=21)
    states, _ = play_locally("fedslim", training, **FEW)
    H = np.zeros((40, 21), int)
    H[training.users, training.positives.items] = 1
    counts = sparse_weights.counts_from_pairs(states[-1].pairs, 21)
    np.testing.assert_array_equal(counts.table, H.T @ H)
    np.testing.assert_array_equal(counts.n_users, H.sum(axis=0))
    assert counts.places.tolist() == list(range(21))


@pytest.mark.parametrize("threads", ["1", "3"])
def test_the_number_of_threads_does_not_matter(threads, monkeypatch):
    training = histories(5, n_users=60, n_items=33)
    wanted = weight_bits(central(training))
    monkeypatch.setenv("COTERIE_THREADS", threads)
    assert weight_bits(trained(training)) == wanted


def test_the_same_sums_with_other_settings_are_another_model():
    training = histories(0)
    world = world_for("fedslim", training, **FEW)
    (_, state), _ = play("fedslim", world, LocalEngine.over(world, training, 1))
    first = fedslim.model(world, state).similarities
    assert fedslim.model(world, state).similarities is first, "not solved again"
    other = replace(world, settings=world.settings.model_copy(update={"reg_l2": 3.0}))
    assert fedslim.model(other, state).similarities.sum() > 1.1 * first.sum()


# The rounds.


@pytest.mark.parametrize(
    ("changes", "rounds"),
    [
        ({"participation": 0.3}, 4),
        ({"participation": 0.3, "client_dropout": 0.3}, 14),
        ({"participation": 1.0, "client_dropout": 0.6}, 14),
    ],
    ids=str,
)
def test_rounds_add_every_client_once(changes, rounds):
    """Whatever the rounds, the sum is in the end that of one round with all clients."""
    training = histories(4, n_users=41, n_items=15)
    states, costs = play_locally("fedslim", training, **(FEW | {"rounds": rounds} | changes))
    (_, one), _ = play_locally("fedslim", training, **FEW)
    assert states[1].added.sum() < 40
    assert sum(each.accepted for each in costs) == one.added.sum() == 40
    assert sha256(states[-1]) == sha256(one)


def test_clients_that_were_never_added_are_served():
    training = histories(4, n_users=20, n_items=9)
    model = trained(training, participation=0.5, reg_l2=1.0)
    assert weight_bits(model) != weight_bits(central(training, reg_l2=1.0))
    assert model.serves(np.arange(18, dtype=np.int32)).all()


@pytest.mark.parametrize(
    "changes",
    [{}, {"client_dropout": 0.3}, {"participation": 0.5, "client_dropout": 0.2, "rounds": 2}],
    ids=str,
)
def test_secure_aggregation_gives_the_same_bits(changes):
    pytest.importorskip("cryptography")
    training = histories(6, n_users=34, n_items=11)
    same = FEW | changes
    plain, _ = play_locally("fedslim", training, **same)
    secure, costs = play_locally("fedslim", training, secure_aggregation="ring", **same)
    assert [sha256(state) for state in secure] == [sha256(state) for state in plain]
    assert costs[0].accepted > 8


def test_rings_send_words_of_32_bits():
    """Counts are no larger than the number of users, whatever the lengths of histories."""
    pytest.importorskip("cryptography")
    training = histories(0, n_users=20, n_items=60)
    world = world_for("fedslim", training, **FEW)
    secure = pair_sums.EXCHANGE.secure_sum
    assert secure is not None
    many = replace(world, n_users=1 << 24, n_items=1 << 20)
    assert secure.word(world) == secure.word(many) == 32
    assert secure.max_entry(world) == secure.max_entry(many) == 1
    _, costs = play_locally("fedslim", training, **(FEW | {"secure_aggregation": "ring"}))
    words = 60 * 61 / 2 * 4
    assert words < costs[0].bytes_up / costs[0].accepted < 1.5 * words


def test_hostile_updates_change_nothing():
    """Those who sent an invalid update are selected again, and added once."""
    training = histories(7, n_users=60, n_items=13)
    world = world_for("fedslim", training, **(FEW | {"rounds": 6, "participation": 0.5}))

    def run(attacking: bool, nodes: int) -> tuple[list[Any], int]:
        engine = LocalEngine.over(world, training, nodes)
        hostile = HostileEngine(engine, 13, fedslim.EXCHANGE, 10, 6, attacking)
        states, costs = play("fedslim", world, hostile)
        return states, sum(sum(c.refused.values()) for c in costs)

    states, refused = run(True, 3)
    without, none = run(False, 1)
    assert [sha256(state) for state in states] == [sha256(state) for state in without]
    assert (none, refused > 40) == (0, True)


# Limits.


def test_memory_up_to_the_limit_is_allowed():
    """Three times the sums, which are 64-bit words on and above the diagonal."""
    training = histories(0, n_items=15)
    needed = 3 * 8 * (15**2 / 2) / 2**30
    play_locally("fedslim", training, **(FEW | {"max_memory": needed * 1.001}))
    with pytest.raises(ConfigError, match=r"^FedSLIM needs .* 15 items; .*Use fedals, .*max_mem"):
        play_locally("fedslim", training, **(FEW | {"max_memory": needed * 0.999}))


def test_too_large_an_upload_is_refused():
    training = histories(0, n_items=15)
    upload = 15 * 16 / 2 * 4 / 1e6
    rings = FEW | {"secure_aggregation": "ring"}
    world = world_for("fedslim", training, **(rings | {"max_upload": upload * 0.999}))
    with pytest.raises(ConfigError, match=r"^FedSLIM has every client .*Use fedals, .*max_upload"):
        fedslim.init(world)
    fedslim.init(world_for("fedslim", training, **(rings | {"max_upload": upload * 1.001})))
    fedslim.init(world_for("fedslim", training, **(FEW | {"max_upload": 1e-9})))


# What is sent, and new users.


def test_the_model_that_is_sent_is_sparse_and_has_no_histories():
    training = histories(1, n_users=60, n_items=33)
    model = trained(training)
    sent = model.shared_arrays()
    assert sent.keys() == {"offsets", "followers", "similarities"}
    assert sum(array.nbytes for array in sent.values()) == 8 * 34 + 8 * len(model.similarities)


def test_a_user_of_the_training_data_gets_the_scores_of_training():
    training = histories(3, n_users=20, n_items=13)
    model = trained(training, reg_l2=1.0)
    scores = model.score(np.arange(20, dtype=np.int32))
    for user in range(20):
        new = NewUser(items=training.positives.of(user))
        found = score_history(model, new, fedslim.FedSLIM())
        np.testing.assert_allclose(found, scores[user], atol=1e-6)
    assert np.abs(np.diff(scores, axis=0)).max() > 0.01


def test_reasons_are_items_of_the_history():
    run = api.run("fedslim", n_users=60, n_items=30, reg_l2=1.0)
    item = run.recommend(1, n=1)[0].item
    (reasons,) = run.why(1, [item])
    assert reasons
    assert all(why.contribution > 0 for why in reasons)


def test_a_secure_run_says_what_its_sums_reveal():
    pytest.importorskip("cryptography")
    run = api.run("fedslim", n_users=60, n_items=30, secure_aggregation="ring")
    assert run.result["in_the_clear"] == []
    assert "gives away" in run.result["in_sums"][0]
