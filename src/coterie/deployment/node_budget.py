"""Whether a node takes part in a run, and for which users: their limits and what the run asks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from coterie.deployment.enrolment import FederationTerms, Roster
from coterie.deployment.node_ledger import Excess, RunLedger, limit_of, over_limit
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.private_terms import refuse_unprivate, without_users
from coterie.errors import ConfigError
from coterie.federated.federation import AnyWorld, exchanges_with_clients
from coterie.federated.privacy.budget import plan_of_run
from coterie.federated.privacy.plan import NoisePlan, central_plan, sampling_rate
from coterie.federated.privacy.settings import is_private


def refuse_terms(terms: FederationTerms, store: NodeStore) -> None:
    """Reject terms that protect nobody, and those without a budget where users have a limit."""
    refuse_unprivate(terms.experiment)
    limit = limit_of(store)
    if limit is not None and not is_private(terms.experiment.settings):
        raise ConfigError(
            f"run {terms.run} has no privacy budget (epsilon), and users of {store.path} have a "
            f"limit of {limit:g} (--epsilon-limit); expected a run with epsilon. Join without a "
            "limit (--epsilon-limit 0) if the users agree, or ask the server's owner."
        )


def refuse_changed_terms(terms: FederationTerms, store: NodeStore) -> None:
    """Reject other settings of a run that has begun, if it has a budget, before or after."""
    known = store.meta("terms")
    if known is None or store.meta("run") != terms.run:
        return
    before = FederationTerms.from_json(known)
    if before.config == terms.config:
        return
    if is_private(before.experiment.settings) or is_private(terms.experiment.settings):
        raise ConfigError(
            f"the server changed the settings of run {terms.run} after it began, and its privacy "
            "budget holds for the settings that it began with; expected the same. Ask its owner."
        )


def ledger_for(
    terms: FederationTerms, world: AnyWorld, store: NodeStore, warn: Callable[[str], None]
) -> RunLedger | None:
    """The ledger of a run; None if the run has no privacy budget.

    ConfigError if no user of the store may take part.
    """
    refuse_terms(terms, store)
    if world.settings.epsilon is None:
        return None
    plan = plan_of_run(terms.federation, world)
    excluded = _excluded(terms, plan, store, warn)
    return RunLedger(store, terms.run, plan, warn, excluded)


def within_limit(
    terms: FederationTerms, roster: Roster, store: NodeStore, warn: Callable[[str], None]
) -> Roster:
    """The roster, in which users whose limit the run would exceed do not learn.

    The number of all users is not known yet. So this plan has no more noise than that of the run,
    and no less delta: some users may be excluded only when training begins.
    """
    is_limited = limit_of(store) is not None and is_private(terms.experiment.settings)
    if not is_limited or not any(roster.learning):
        return roster
    excluded = _excluded(terms, _plan_before(terms, roster), store, warn)
    learning = [
        learns and user not in excluded
        for user, learns in zip(roster.users, roster.learning, strict=True)
    ]
    return replace(roster, learning=learning, positives=sum(learning))


def _plan_before(terms: FederationTerms, roster: Roster) -> NoisePlan:
    """The noise of a run, as if this node had all its users."""
    world = replace(
        without_users(terms.experiment),
        n_users=max(len(roster.users), 1),
        members=np.array(roster.learning, bool),
        n_items=len(terms.items),
    )
    private = exchanges_with_clients(terms.federation, world)[0].private_sum
    assert private is not None
    return central_plan(
        world.settings, world.n_users, private.releases(world), sampling_rate(world, private)
    )


def _excluded(
    terms: FederationTerms, plan: NoisePlan, store: NodeStore, warn: Callable[[str], None]
) -> frozenset[str]:
    """The users who do not take part; ConfigError if all of them do not."""
    limit = limit_of(store)
    if limit is None:
        return frozenset()
    excess = over_limit(store, terms.run, plan, limit)
    if not excess.users:
        return excess.users
    n_users = len(store.users())
    text = describe(excess, n_users, terms.run, limit)
    if len(excess.users) == n_users:
        raise ConfigError(text)
    warn(text)
    return excess.users


def describe(excess: Excess, n_users: int, run: str, limit: float) -> str:
    """Which users stay out of a run, why, and what to do."""
    return (
        f"{len(excess.users):,} of {n_users:,} users do not take part in run {run}: their data has "
        f"spent epsilon up to {excess.spent:.3g}, the run asks for {excess.asked:.3g} (at delta "
        f"{excess.delta:.2g}), and together that exceeds the limit of {limit:g}. "
        "Join with a higher --epsilon-limit if the users agree, or ask the server's owner for a "
        "smaller epsilon."
    )
