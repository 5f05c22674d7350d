"""Runs with given noise: they stop before their budget is passed, and say what they spent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_federation import histories, play, world_for

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

from coterie.algorithms import registry
from coterie.baselines.popular import Popular, solve
from coterie.core.progress import SILENT
from coterie.engines.local import LocalEngine
from coterie.errors import BudgetSpent, ConfigError
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.privacy import accountant
from coterie.federated.privacy.budget import budget_stop, epsilon_of, plan_of_run, releases_in
from coterie.federated.privacy.plan import plan_for, releases_within
from coterie.federated.trainer import Context, Trainer

GIVEN = {"epsilon": 2.0, "noise_multiplier": 6.0, "participation": 0.5}


def work_of(name: str, **settings: Any) -> tuple[Trainer[Any], Any]:
    training = histories(1, 40, 20)
    world = world_for(name, training, **settings)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    engine = LocalEngine.over(world, training, 1)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    return work, (federation, world)


@pytest.mark.parametrize("sampling", [1.0, 0.05])
@pytest.mark.parametrize(("epsilon", "multiplier"), [(2.0, 6.0), (8.0, 1.0), (0.5, 40.0)])
def test_as_many_sums_as_fit(epsilon, multiplier, sampling):
    n = releases_within(epsilon, 1e-5, multiplier, 1 << 20, sampling)
    assert 0 < n < 1 << 20

    def spent(releases: int) -> float:
        return accountant.epsilon_spent(
            noise_multiplier=multiplier, delta=1e-5, releases=releases, sampling=sampling
        )

    assert spent(n) <= epsilon < spent(n + 1)
    assert releases_within(epsilon, 1e-5, multiplier, n - 1, sampling) == n - 1
    assert releases_within(epsilon, 1e-5, 0.1, 10, 1.0) == 0


def test_training_stops_before_the_round_that_would_exceed_its_budget():
    work, (federation, world) = work_of("fcf", rounds=50, **GIVEN)
    assert work.stop is not None
    last = work.stop.step
    plan = plan_of_run(federation, world)
    assert (plan.multiplier, plan.releases) == (6.0, last)
    assert 1 < last < 50 == world.settings.rounds
    assert work.n_steps(50) == last
    assert epsilon_of(plan, last) <= 2.0 < epsilon_of(plan, last + 1)
    assert work.stop.text.startswith(f"{last} of 50 rounds are done and have spent epsilon 1.")
    state, _ = work.start()
    for n in range(1, last + 1):
        state, _ = work.step(state, n)
    with pytest.raises(BudgetSpent, match=f"^{last} of 50 rounds"):
        work.step(state, last + 1)


def test_poisson_sampling_makes_room_for_more_rounds():
    def last(**settings: Any) -> int:
        stop = work_of("fcf", rounds=2_000, **GIVEN | settings)[0].stop
        assert stop is not None
        return stop.step

    assert last(participation=0.1, sampling="poisson") > 3 * last(participation=0.1)


def test_a_budget_for_all_rounds_stops_nothing():
    work, (federation, world) = work_of("fcf", rounds=3, **GIVEN)
    assert work.stop is None
    plan = plan_of_run(federation, world)
    assert releases_in(federation, world, 3) == plan.releases == 3
    assert epsilon_of(plan, 3) < 2.0
    assert work_of("fcf", rounds=50, epsilon=2.0)[0].stop is None
    assert work_of("fcf", rounds=50)[0].stop is None


def test_clients_that_send_once_need_one_sum_in_any_number_of_rounds():
    work, (federation, world) = work_of("fedease", rounds=9, epsilon=2.0, noise_multiplier=2.5)
    assert work.stop is None
    assert releases_in(federation, world, 9) == 1
    assert releases_in(federation, world, 0) == 0


def test_epochs_are_played_whole_or_not_at_all():
    few = {"triples": 2, "users_per_round": 5, "epsilon": 2.0}
    work, _ = work_of("pfpl+", epochs=9, rounds_an_epoch=4, noise_multiplier=6.0, **few)
    assert work.stop is not None
    assert work.stop.step == 1  # 6 rounds fit
    assert "4 of 36 rounds are done" in work.stop.text
    assert "another 4 would exceed it" in work.stop.text
    with pytest.raises(ConfigError, match=r"is spent after \d+ sums .* before 20 rounds are over"):
        work_of("pfpl+", epochs=9, rounds_an_epoch=20, noise_multiplier=6.0, **few)


@pytest.mark.parametrize("name", ["fcf", "fedease"])
def test_noise_that_hides_not_even_one_sum_is_refused(name):
    with pytest.raises(ConfigError, match=r"single sum exceeds epsilon=2 .* at least 2\.149"):
        work_of(name, rounds=5, epsilon=2.0, noise_multiplier=1.0)
    with pytest.raises(ConfigError, match=r"'noise_multiplier' is 3\.0, but 'epsilon' is not set"):
        work_of(name, noise_multiplier=3.0)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e9, "much"])
def test_malformed_multipliers_are_refused(value):
    with pytest.raises(ConfigError, match="noise_multiplier"):
        registry.algorithm("fcf").settings.of({"epsilon": 1.0, "noise_multiplier": value})


def test_given_noise_is_the_noise_that_is_added():
    training = histories(1, 40, 60)
    world = world_for("fedease", training, epsilon=2.0, noise_multiplier=5.0, rounds=1)
    exchange = registry.algorithm("fedease").train.exchanges[0]  # type: ignore[union-attr]
    plan = plan_for(world, exchange.private_sum)  # type: ignore[union-attr,arg-type]
    assert plan is not None
    assert plan.sigma / plan.sensitivity == pytest.approx(5.0)
    states, _ = play("fedease", world, LocalEngine.over(world, training, 1))
    exact = world_for("fedease", training, epsilon=2.0, noise_multiplier=5.0, rounds=1, seed=1)
    again, _ = play("fedease", exact, LocalEngine.over(exact, training, 1))
    difference = (states[-1].pairs - again[-1].pairs).astype(float)
    assert np.std(difference) == pytest.approx(plan.sigma * 2**0.5, rel=0.06)


def test_popularity_has_one_sum():
    training = histories(1, 40, 20)
    settings = Popular.of({"epsilon": 2.0, "noise_multiplier": 4.0})
    assert len(solve(training, settings, Context(0, SILENT)).counts) == 20
    too_little = Popular.of({"epsilon": 2.0, "noise_multiplier": 1.0})
    with pytest.raises(ConfigError, match="a single sum exceeds epsilon=2"):
        solve(training, too_little, Context(0, SILENT))


def test_a_run_without_a_budget_has_no_stop():
    work, (federation, world) = work_of("fcf", rounds=5)
    assert work.n_steps(5) == 5
    assert budget_stop(federation, world, 5, 1) is None
