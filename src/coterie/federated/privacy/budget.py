"""A run whose noise is given (`noise_multiplier`): it stops before its budget is passed.

Every round counts for every user, whether selected or not: nobody's selections must decide when
training stops. With noise that is calibrated to the budget, all rounds fit.
"""

from __future__ import annotations

from typing import NamedTuple

from coterie.errors import ConfigError
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    Exchange,
    exchanges_with_clients,
)
from coterie.federated.privacy import accountant
from coterie.federated.privacy.noise import plan_of
from coterie.federated.privacy.plan import NoisePlan


class BudgetStop(NamedTuple):
    """Where training ends because of its budget."""

    step: int
    """The last step within the budget."""
    text: str
    """Rounds, what they spend, and the limit."""


def plan_of_run(federation: AnyFederation, world: AnyWorld) -> NoisePlan:
    """The noise of a run whose algorithm has a private version: all its exchanges share a plan."""
    plan = plan_of(world, exchanges_with_clients(federation, world)[0])
    assert plan is not None
    return plan


def budget_stop(
    federation: AnyFederation, world: AnyWorld, n_rounds: int, rounds_per_step: int
) -> BudgetStop | None:
    """Where a run of n_rounds stops; None if all of it is within its budget."""
    if world.settings.epsilon is None:
        return None
    private = exchanges_with_clients(federation, world)[0].private_sum
    assert private is not None
    plan = plan_of_run(federation, world)
    if plan.releases >= private.releases(world):
        return None
    before, per_round = _sums(federation, world)
    step = (plan.releases - before) // per_round // rounds_per_step
    if step < 1:
        raise ConfigError(
            f"setting 'epsilon' is {plan.epsilon:g}, which is spent after {plan.releases:,} sums "
            f"of noise_multiplier={plan.multiplier:g}, before {rounds_per_step:,} rounds are over; "
            "expected a budget for that many at least. Raise noise_multiplier or epsilon, or leave "
            "noise_multiplier out."
        )
    done = step * rounds_per_step
    spent = epsilon_of(plan, releases_in(federation, world, done))
    return BudgetStop(
        step,
        f"{done:,} of {n_rounds:,} rounds are done and have spent epsilon {spent:.4g} of "
        f"{plan.epsilon:g}; with noise_multiplier={plan.multiplier:g}, "
        f"{'another' if rounds_per_step == 1 else f'another {rounds_per_step:,}'} would exceed it",
    )


def stop_with_undone(
    federation: AnyFederation, world: AnyWorld, n_rounds: int, undone: int
) -> BudgetStop | None:
    """Where a run stops that rolled some rounds back: they have spent their part of the budget.

    None if there are no such rounds, or no budget.
    """
    if world.settings.epsilon is None or not undone:
        return None
    plan = plan_of_run(federation, world)
    before, per_round = _sums(federation, world)
    within = min(n_rounds, (plan.releases - before) // per_round)
    step = max(within - undone, 0)
    spent = epsilon_of(plan, releases_in(federation, world, step + undone))
    return BudgetStop(
        step,
        f"{step:,} of {n_rounds:,} rounds are done and {undone:,} were rolled back; together they "
        f"have spent epsilon {spent:.4g} of {plan.epsilon:g}, since what was spent is not refunded",
    )


def releases_in(federation: AnyFederation, world: AnyWorld, n_rounds: int) -> int:
    """How many sums the data of a user may have entered after some rounds."""
    if not n_rounds:
        return 0
    before, per_round = _sums(federation, world)
    return min(before + n_rounds * per_round, plan_of_run(federation, world).releases)


def epsilon_of(plan: NoisePlan, releases: int) -> float:
    """The epsilon of some releases of a plan."""
    if not releases:
        return 0.0
    return accountant.epsilon_spent(
        noise_multiplier=plan.multiplier,
        delta=plan.delta,
        releases=releases,
        sampling=plan.sampling,
    )


def _sums(federation: AnyFederation, world: AnyWorld) -> tuple[int, int]:
    """(before the first round, in a round) sums that a client's data enters."""
    before = 0 if federation.setup(world) is None else 1
    return before, sum(isinstance(step, Exchange) for step in federation.exchanges)
