"""Whether a node takes part in a run, and for which users: their limits and what the run asks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from coterie.deployment.enrolment import FederationTerms, Roster
from coterie.deployment.node_ledger import Excess, RunLedger, over_limit
from coterie.deployment.node_policy import policy_of, refuse_by_policy
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.private_terms import refuse_unprivate, without_users
from coterie.errors import ConfigError, PolicyError
from coterie.federated.federation import AnyWorld, exchanges_with_clients
from coterie.federated.privacy.budget import plan_of_run
from coterie.federated.privacy.plan import NoisePlan, central_plan, sampling_rate

PINNED_TERMS = "pinned_terms"
"""Metadata key of the run that the node enrolled for last, and of a digest of its terms."""


def refuse_terms(terms: FederationTerms, store: NodeStore) -> None:
    """Reject terms that protect nobody, and those that the node's policy does not allow."""
    refuse_unprivate(terms.experiment)
    refuse_by_policy(terms, store)


def pin_terms(terms: FederationTerms, store: NodeStore) -> None:
    """Remember the terms of a run when they first come, and reject others for the same run.

    A server that could change them could switch to an algorithm, or to a protocol, with which it
    reads single updates.
    """
    text = f"{terms.run} {hashlib.sha256(terms.to_json().encode()).hexdigest()}"
    pinned = store.meta(PINNED_TERMS) or ""
    if pinned and pinned.rpartition(" ")[0] == terms.run and pinned != text:
        raise _changed(terms)
    known = store.meta("terms")
    if known is not None and store.meta("run") == terms.run and known != terms.to_json():
        raise _changed(terms)
    store.put_meta(**{PINNED_TERMS: text})


def _changed(terms: FederationTerms) -> PolicyError:
    name = terms.experiment.choice.algorithm
    return PolicyError(
        f"the server changed the terms of run {terms.run} after this node enrolled (they now have "
        f"algorithm {name}); expected the terms of enrolment in every message. Ask its owner why."
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
    is_limited = policy_of(store).epsilon_limit is not None
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
    limit = policy_of(store).epsilon_limit
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
        "Join with a higher epsilon_limit in the policy if the users agree, or ask the server's "
        "owner for a smaller epsilon."
    )
