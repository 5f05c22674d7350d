"""Clipped updates: no client adds more than the sensitivity, whatever its update is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_algorithm import HERE
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play_locally, sha256, world_for

pytest.importorskip("dp_accounting")

from coterie.algorithms import registry
from coterie.core import streams
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.experiments.tuning import Search, tune
from coterie.federated import selection
from coterie.federated.federation import Exchange, Federation
from coterie.federated.privacy import clipping, noise
from coterie.federated.privacy.clipping import clip, lengths, to_fixed_point
from coterie.federated.privacy.plan import plan_for
from coterie.types import SCALE, TOO_LARGE, Updates

BUDGET: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5}
SETTINGS: dict[str, dict[str, Any]] = {
    "fcf": {"rounds": 2, "participation": 1.0},
    "fedmf": {"rounds": 2, "participation": 1.0},
    "pfpl": {"epochs": 1, "rounds_an_epoch": 2},
    "pfpl+": {"epochs": 1, "rounds_an_epoch": 2, "triples": 3},
}
TOWERS: dict[str, dict[str, Any]] = {
    "fl-dssm": {"rounds": 2, "inputs": 40, "participation": 1.0},
}
"""PyTorch trains them: their bits depend on how users are distributed over nodes."""
entries = st.integers(-TOO_LARGE + 1, TOO_LARGE - 1)


def one_update(rows: list[list[int]], dense: list[int]) -> Updates:
    items = np.arange(len(rows), dtype=np.int32)
    return Updates(
        users=np.zeros(1, np.int32),
        samples=np.ones(1, np.int64),
        offsets=np.array([0, len(rows)]),
        items=items,
        item_rows=np.array(rows, np.int32).reshape(len(rows), 2),
        user_rows=np.empty((1, 0), np.int32),
        dense=np.array([dense], np.int32),
    )


def exact_norm(updates: Updates) -> float:
    values = [*updates.item_rows.ravel().tolist(), *updates.dense.ravel().tolist()]
    return math.sqrt(sum(value**2 for value in values))


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(entries, entries).map(list), max_size=8),
    dense=st.lists(entries, max_size=8),
    longest=st.floats(1e-4, 100.0),
    sensitivity=st.floats(10.0, float(1 << 22)),
)
def test_no_update_is_longer_than_the_sensitivity(rows, dense, longest, sensitivity):
    clipped = clip(one_update(rows, dense), longest, sensitivity)
    assert exact_norm(clipped) <= sensitivity


def test_a_short_update_keeps_its_length_and_a_long_one_its_direction():
    short = one_update([[300_000, 400_000]], [])  # of norm 500,000 / SCALE
    clipped = clip(short, longest=1.0, sensitivity=float(SCALE))
    assert clipped.item_rows.tolist() == short.item_rows.tolist()
    shortened = clip(short, longest=0.1, sensitivity=100_000.0)
    assert shortened.item_rows.ravel() == pytest.approx([60_000, 80_000], abs=1)


@pytest.mark.parametrize("value", [TOO_LARGE, -TOO_LARGE, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_diverged_update_adds_nothing(value: int, n: int):
    """The squares of two or four such entries overflow in 64 bits: to less than 0, and to 0."""
    for diverged in (one_update([[value, 1]] * n, []), one_update([], [value] * n)):
        assert lengths(diverged).tolist() == [math.inf]
        assert exact_norm(clip(diverged, longest=1.0, sensitivity=1000.0)) == 0


def test_lengths_by_hand():
    assert lengths(one_update([[3, 0], [0, 4]], [12])).tolist() == [13.0]


def test_sums_come_back_in_fixed_point():
    sums = to_fixed_point({"items": np.array([10, -20])}, longest=2.0, sensitivity=float(SCALE))
    assert sums["items"].tolist() == [20, -40]


@pytest.mark.parametrize("name", [*SETTINGS, *(name for name in TOWERS if name in HERE)])
@settings(deadline=None, max_examples=8)
@given(longest=st.sampled_from([1e-4, 0.05, 10.0]), seed=st.integers(0, 100))
def test_clients_add_no_more_than_the_sensitivity(name, longest, seed):
    """Through the exchange itself, one client at a time: empty and complete histories, too."""
    training = histories(seed, 12, 15)
    given_here = (SETTINGS | TOWERS)[name] | BUDGET
    world = world_for(name, training, **given_here, clip=longest)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    exchange = federation.exchanges[0]
    assert isinstance(exchange, Exchange)
    plan = noise.plan_of(world, exchange)
    assert plan is not None
    node = LocalEngine.over(world, training, 1).nodes[0]
    state = federation.init(world)
    private = federation.init_clients(world, node)
    for user in range(12):
        message = exchange.broadcast(world, state, np.array([user], np.int32), 0)
        rows = {key: column[[user]] for key, column in private.items()}
        result = exchange.client_update(world, replace(message, private_state=rows), node)
        updates = result if isinstance(result, Updates) else result[0]
        sums = exchange.aggregate(world, message, updates)
        table = exchange.secure_sum.to_table(world, sums)  # type: ignore[union-attr]
        vector = np.concatenate([part.ravel() for part in table.values()])
        assert math.sqrt(sum(value**2 for value in vector.tolist())) <= plan.sensitivity


@pytest.mark.parametrize("name", SETTINGS)
def test_secure_aggregation_has_the_same_bits(name):
    pytest.importorskip("cryptography")
    training = histories(4, 20, 15)
    given = SETTINGS[name] | BUDGET
    plain, _ = play_locally(name, training, **given)
    masked = {"secure_aggregation": "secagg", "colluders": 0}
    secure, _ = play_locally(name, training, **given, **masked)
    assert sha256(plain[-1]) == sha256(secure[-1])


@pytest.mark.parametrize("name", SETTINGS)
def test_several_nodes_have_the_same_bits(name):
    training = histories(4, 20, 15)
    given = SETTINGS[name] | BUDGET
    one, _ = play_locally(name, training, **given)
    three, _ = play_locally(name, training, nodes=3, **given)
    assert sha256(one[-1]) == sha256(three[-1])


def test_without_noise_a_wide_clip_changes_little(monkeypatch):
    """The grid is finer than what training needs."""
    training = histories(4, 20, 15)
    plain, _ = play_locally("fcf", training, **SETTINGS["fcf"])
    monkeypatch.setattr(noise, "central_noise", lambda plan, n, words: np.zeros(n, np.int64))
    wide, _ = play_locally("fcf", training, **SETTINGS["fcf"], **BUDGET, clip=20.0)
    assert wide[-1].item_rows == pytest.approx(plain[-1].item_rows, abs=1e-3)


# Poisson sampling


def test_poisson_cohorts_vary_in_size():
    training = histories(0, 200, 15)
    given = {"participation": 0.3, "sampling": "poisson", "rounds": 30} | BUDGET
    world = world_for("fcf", training, **given)
    federation = registry.algorithm("fcf").train
    assert isinstance(federation, Federation)
    sizes = [len(selection.poisson_cohort(federation, world, t)) for t in range(200)]
    assert np.mean(sizes) == pytest.approx(0.3 * 199, rel=0.05)
    assert np.var(sizes) == pytest.approx(199 * 0.3 * 0.7, rel=0.3)


def test_a_poisson_cohort_does_not_depend_on_the_blocks_of_its_coins(monkeypatch):
    given = {"participation": 0.3, "sampling": "poisson", "rounds": 30} | BUDGET
    world = world_for("fcf", histories(0, 200, 15), **given)
    federation = registry.algorithm("fcf").train
    coins = streams.at(world.seed, "poisson cohort", 4).random(world.n_users)
    expected = np.flatnonzero(world.members & (coins < 0.3)).tolist()
    for block in (1, 7, 1 << 16):
        monkeypatch.setattr(selection, "BLOCK", block)
        assert selection.poisson_cohort(federation, world, 4).tolist() == expected


def test_poisson_sampling_needs_less_noise():
    training = histories(0, 200, 15)
    given: dict[str, Any] = {"participation": 0.1, "rounds": 10} | BUDGET
    fixed = world_for("fcf", training, **given)
    poisson = world_for("fcf", training, **given, sampling="poisson")
    private = registry.algorithm("fcf").train.exchanges[0].private_sum  # type: ignore[union-attr]
    assert plan_for(poisson, private).multiplier < 0.5 * plan_for(fixed, private).multiplier


def test_poisson_sampling_is_not_for_noise_of_clients():
    with pytest.raises(ConfigError, match=r"sampling.*noise=distributed"):
        world_for(
            "fcf",
            histories(0),
            **BUDGET,
            sampling="poisson",
            noise="distributed",
            secure_aggregation="secagg",
        )


# Refusals


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fedavg", "their row of the model"),
        ("fedfast", "statistics of their history"),
        ("fedbso", "server receives of every user"),
        ("fedslim", "SLIM counts pairs"),
        ("sttfedrec-dssm", "items they request"),
        ("pfpl", "rounds_an_epoch"),
    ],
)
def test_others_are_refused_with_the_reason(name, reason):
    changes = {"rounds_an_epoch": 0} if name == "pfpl" else {}
    with pytest.raises(ConfigError, match=reason):
        play_locally(name, histories(0), **BUDGET, **changes)


def test_a_search_is_refused():
    with pytest.raises(ConfigError, match="every trial of a search looks at"):
        tune(Search("fcf", held={"epsilon": 1.0}))


def test_clipping_is_only_under_a_budget(monkeypatch):
    def never(*_: object) -> Updates:
        raise AssertionError("clipped without a budget")

    monkeypatch.setattr(clipping, "clip", never)
    play_locally("fcf", histories(0), **SETTINGS["fcf"])
