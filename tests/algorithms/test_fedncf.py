"""FedNCF: FedAvg whose user rows stay on the clients, with GMF, an MLP or NeuMF."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from drawn_samples import by_user
from pydantic import ValidationError
from slow_fedfast import Weights, client_update, equation_1, equation_1_touched
from small_federation import histories, play, world_for

from coterie.algorithms import fedavg, fedncf
from coterie.algorithms.local.samples import draw
from coterie.core.records import Record
from coterie.engines.local import LocalEngine
from coterie.models.private_neumf import PrivateNeuMF
from coterie.testing import FederatedAlgorithmTests
from coterie.types import TOO_LARGE, Updates

FEW: dict[str, Any] = {"embedding_size": 3, "layers": (4, 2), "participation": 0.5, "rounds": 3}
MODELS = ("gmf", "mlp", "neumf")


class TestConformance(FederatedAlgorithmTests):
    algorithm = "fedncf"


class TestConformanceOfGMF(FederatedAlgorithmTests):
    algorithm = "fedncf"
    settings: ClassVar[dict[str, Any]] = {"model": "gmf", "weights": "samples", "average": "all"}


class TestConformanceOfMLP(FederatedAlgorithmTests):
    algorithm = "fedncf"
    settings: ClassVar[dict[str, Any]] = {"model": "mlp"}


# Rounds


@pytest.mark.parametrize("average", ["touched", "all"])
@pytest.mark.parametrize("weights", ["users", "samples"])
def test_rounds_of_gmf_equal_the_twin(average, weights):
    training = histories(2, n_users=14, n_items=11)
    changes = FEW | {"model": "gmf", "average": average, "weights": weights}
    world = world_for("fedncf", training, **changes)
    engine = LocalEngine.over(world, training, 1)
    states, all_costs = play("fedncf", world, engine)
    s = world.settings
    for t, costs in enumerate(all_costs):
        before = states[t]
        w = Weights(*(a.astype(float) for a in (before.user_rows, before.item_rows, before.dense)))
        cohort = costs.users.tolist()
        drawn = by_user(draw(world, costs.users, t, engine.nodes[0]))
        samples = dict(zip(cohort, drawn, strict=True))
        trained = {
            k: client_update(k, w, samples[k], s.learning_rate, s.reg, False) for k in cohort
        }
        n = {k: len(samples[k]) if weights == "samples" else 1 for k in cohort}
        touched = {k: {item for item, _ in samples[k]} for k in cohort}
        if average == "touched":
            expected = equation_1_touched(cohort, trained, n, w, touched)
        else:
            expected = equation_1(cohort, trained, n)
        np.testing.assert_allclose(states[t + 1].item_rows, expected.I, atol=1e-5, rtol=0)
        np.testing.assert_allclose(states[t + 1].dense, expected.N, atol=1e-5, rtol=0)
        for k in range(training.n_users):
            own = trained[k].U[k] if k in trained else w.U[k]
            np.testing.assert_allclose(states[t + 1].user_rows[k], own, atol=1e-5, rtol=0)


@pytest.mark.parametrize("model", MODELS)
def test_rounds_are_those_of_fedavg_bit_for_bit(model):
    """From the same rows, with its weights: user rows are elsewhere, and nothing else differs."""
    training = histories(7, n_users=16, n_items=12)
    changes = FEW | {"model": model, "local_epochs": 2, "learning_rate": 0.1, "reg": 0.01}
    central = world_for("fedavg", training, **changes)
    private = world_for("fedncf", training, **changes, weights="samples")
    known = fedavg.init(central)
    start = fedncf.FedNCFState(known.item_rows, known.dense, known.user_rows)
    wanted, _ = play("fedavg", central, LocalEngine.over(central, training, 1), known)
    found, _ = play("fedncf", private, LocalEngine.over(private, training, 1), start)
    for name in ("user_rows", "item_rows", "dense"):
        np.testing.assert_array_equal(getattr(found[-1], name), getattr(wanted[-1], name))
    assert not np.array_equal(found[-1].item_rows, start.item_rows)


def test_the_gmf_part_of_an_mlp_is_zero_and_not_sent():
    training = histories(7, n_users=16, n_items=12)
    world = world_for("fedncf", training, **FEW, model="mlp")
    engine = LocalEngine.over(world, training, 1)
    states, _ = play("fedncf", world, engine)
    for rows in (states[-1].user_rows, states[-1].item_rows):
        assert rows.shape[1] == 6
        assert not rows[:, :3].any()
        assert rows[:, 3:].any()
    message = fedncf.broadcast(world, states[-1], np.arange(4, dtype=np.int32), 0)
    assert message.common["item_rows"].shape == (12, 3)
    assert fedncf.sizes(world, states[-1]).item_width == 3


def test_the_score_of_an_mlp_by_hand():
    """Rows 1 and 2, a layer of ones with bias 1, output 3 and bias 0.5: 3 (1 + 2 + 1) + 0.5."""
    model = PrivateNeuMF(
        np.array([[0.0, 1.0]], np.float32),
        np.array([[0.0, 2.0]], np.float32),
        np.array([1.0, 1.0, 1.0, 3.0, 7.0, 0.5], np.float32),
        np.array([2, 1]),
    )
    assert float(model.score(np.zeros(1, np.int32))[0, 0]) == 12.5


# What leaves a client


def test_user_rows_are_in_no_update():
    training = histories(3)
    world = world_for("fedncf", training, **FEW)
    engine = LocalEngine.over(world, training, 1)
    state: Record = fedncf.init(world)
    assert isinstance(state, fedncf.FedNCFState)
    assert state.user_rows is None
    users = np.arange(4, dtype=np.int32)
    own = engine.gather(fedncf.init_clients)["user_rows"][users]
    message = replace(fedncf.broadcast(world, state, users, 0), private_state={"user_rows": own})
    result = fedncf.client_update(world, message, engine.nodes[0])
    assert isinstance(result, tuple)
    updates, private = result
    assert updates.user_rows.shape == (4, 0)
    assert (updates.samples == 1).all()
    assert private["user_rows"].shape == own.shape
    assert not np.array_equal(private["user_rows"], own)


def test_an_update_is_out_of_range_where_the_own_row_is():
    rows = np.zeros((3, 2), np.int32)
    rows[1, 0] = -TOO_LARGE
    dense = np.ones((3, 4), np.int32)
    none = np.empty((0, 2), np.int32)
    trained = Updates(
        np.arange(3, dtype=np.int32),
        np.ones(3, np.int64),
        np.zeros(4, np.int64),
        np.empty(0, np.int32),
        none,
        rows,
        dense,
    )
    np.testing.assert_array_equal(fedncf.refused_with_row(trained).max(axis=1), [1, TOO_LARGE, 1])
    assert (dense == 1).all()


def test_moments_that_are_sent_are_refused():
    with pytest.raises(ValidationError, match=r"'moments' is 'averaged'.*Set moments=fresh"):
        fedncf.FedNCF(model="gmf", optimizer="adam", moments="averaged")
