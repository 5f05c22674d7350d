"""Test a claim of differential privacy from outside: can one user be told from the noise?

A canary is a user with an extreme history. The mechanism of a run releases a sum with the canary
and without it, many times, and an attacker who knows everybody else's data looks at the sum in the
direction of what the canary adds. Its errors bound epsilon from below (`gaussian_dp.py`). A bound
above the claim proves the claim wrong. A bound below it proves nothing: an audit finds mistakes, it
does not replace the proof.

Nothing is trained: the canary's part is what clients really compute in the first round, and noise
is drawn by the functions that a run calls.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from coterie.attacks.gaussian_dp import epsilon_of, mu_lower_bound
from coterie.baselines.popular import Popular, private_counts
from coterie.core.progress import Progress
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import (
    AnyExchange,
    AnyFederation,
    AnyWorld,
    exchanges_with_clients,
)
from coterie.federated.nodes import client_columns
from coterie.federated.privacy import noise
from coterie.federated.privacy.discrete_gaussian import system_words
from coterie.federated.privacy.plan import NoisePlan, central_plan
from coterie.federated.secagg.session import SessionSlot
from coterie.types import Doubles, Ints, JsonObject, Longs, Message, Rows, Updates

DRAWS = 10_000
"""Releases with the canary, and as many without."""
CONFIDENCE = 0.99
MOST_ENTRIES = 2048
"""Entries of a sum that the attacker looks at, times the shares of noise in each: those to which
the canary adds most."""
DISCRETISATION = 1e-2
"""Steps of privacy loss, for sampled releases."""
AT_ONCE = 1 << 22
"""Noisy entries that are held in memory at a time."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What the attacker found out about one canary."""

    canary: str
    noise: str
    """How noise was drawn; "none" is the control."""
    length: float
    """L2 norm of what the canary adds, over the sensitivity that noise is made for."""
    draws: int
    errors: int
    mu: float
    """Lower bound, of one release."""
    epsilon: float
    """Lower bound, of the whole run at the delta of the claim."""
    claimed: float | None
    """The epsilon of the claim; None for the control."""

    @property
    def refutes(self) -> bool:
        """Whether the claim is wrong."""
        return self.claimed is not None and self.epsilon > self.claimed

    def as_json(self) -> JsonObject:
        return asdict(self) | {"refutes": self.refutes}


class AuditedSum(NamedTuple):
    """A sum that a run releases."""

    plan: NoisePlan
    noise: str
    """Who draws it: the setting `noise`."""
    contribution: Callable[[Ints], Longs]
    """Items of a user -> what the user adds to the sum, as one vector."""
    draw: Callable[[int, int], Longs]
    """(n, length) -> noise of n releases of so many entries, drawn as a run draws it."""


def audit(sums: list[AuditedSum], n_items: int, progress: Progress) -> list[Finding]:
    """Every canary in every sum, with the mechanism and, as a control, without noise."""
    findings = []
    for each in sums:
        for name, items in canaries(n_items).items():
            vector = each.contribution(items)
            with progress.task(f"Auditing with {name}", None):
                findings += [examine(each, name, vector, noisy) for noisy in (True, False)]
    return findings


def sums_of_federation(
    federation: AnyFederation, world: AnyWorld, training: TrainingSet
) -> list[AuditedSum]:
    """What the server of a federation releases, or receives where clients draw the noise."""
    # The audit must not depend on the seed of the run.
    settings = world.settings.model_copy(update={"noise_source": "system"})
    world = replace(world, settings=settings)
    sums = []
    for exchange in exchanges_with_clients(federation, world):
        plan = noise.plan_of(world, exchange)
        assert plan is not None
        sums.append(
            AuditedSum(
                plan,
                settings.noise,
                partial(contribution, federation, exchange, world, training),
                partial(drawn_noise, world, exchange, plan),
            )
        )
    return sums


def sums_of_popular(settings: Popular, training: TrainingSet) -> list[AuditedSum]:
    plan = central_plan(settings, training.n_users, releases=1)

    def counts(items: Ints) -> Longs:
        return private_counts(Rows(np.array([0, len(items)]), items), training.n_items, plan)

    def draw(n: int, length: int) -> Longs:
        drawn = noise.central_noise(plan, n * length, system_words())
        return drawn.reshape(n, length)

    return [AuditedSum(plan, "central", counts, draw)]


def canaries(n_items: int) -> dict[str, Ints]:
    """Histories that add as much to a sum as any: name -> items."""
    return {
        "a user of one item": np.zeros(1, np.int32),
        "a user of 20 items": np.arange(min(20, n_items), dtype=np.int32),
        "a user of all items": np.arange(n_items, dtype=np.int32),
    }


def contribution(
    federation: AnyFederation,
    exchange: AnyExchange,
    world: AnyWorld,
    training: TrainingSet,
    items: Ints,
) -> Longs:
    """What a user with this history adds to the sums of the first round, as one vector."""
    training = with_history(training, items)
    node = LocalEngine.over(world, training, 1).nodes[0]
    state = federation.init(world)
    message = exchange.broadcast(world, state, np.zeros(1, np.int32), 0)
    private = federation.init_clients(world, node)
    rows = {name: column[:1] for name, column in private.items()}
    message = replace(message, private_state=rows)
    columns, _ = client_columns(world, exchange, message, node, SessionSlot())
    sums = exchange.aggregate(world, message, Updates(**columns))
    assert exchange.secure_sum is not None
    table = exchange.secure_sum.to_table(world, sums)
    return np.concatenate([part.ravel() for _, part in sorted(table.items())])


def with_history(training: TrainingSet, items: Ints) -> TrainingSet:
    """The training data with another history of the first user."""
    before = training.positives
    users = np.repeat(np.arange(training.n_users, dtype=np.int32), before.counts)
    others = users > 0
    rows = Rows.build(
        np.concatenate([np.zeros(len(items), np.int32), users[others]]),
        np.concatenate([items, before.items[others]]),
        training.n_users,
    )
    return replace(training, positives=rows, excluded=rows, ratings=None)


def examine(audited: AuditedSum, canary: str, vector: Longs, noisy: bool) -> Finding:
    """Tell releases with the canary from those without it."""
    plan = audited.plan
    n_entries = -(-MOST_ENTRIES // plan.n_shares)
    largest = np.argsort(-np.abs(vector), kind="stable")[:n_entries]
    part = vector[largest]
    length = float(np.linalg.norm(part.astype(np.float64)))
    errors = Errors(DRAWS, 0)  # of an attacker who always claims that the canary is there
    if length:
        errors = told_apart(audited, part, part / length, noisy)
    mu = mu_lower_bound(errors.false_positives, errors.false_negatives, DRAWS, CONFIDENCE)
    return Finding(
        canary=canary,
        noise=audited.noise if noisy else "none",
        length=float(np.linalg.norm(vector.astype(np.float64))) / plan.sensitivity,
        draws=2 * DRAWS,
        errors=sum(errors),
        mu=mu,
        epsilon=epsilon_of_run(mu, plan),
        claimed=plan.epsilon if noisy else None,
    )


class Errors(NamedTuple):
    false_positives: int
    false_negatives: int


def told_apart(audited: AuditedSum, part: Longs, direction: Doubles, noisy: bool) -> Errors:
    """Errors of an attacker who guesses by whether a release is nearer to the canary's part."""
    threshold = float(part @ direction) / 2
    without = projections(audited, np.zeros_like(part), direction, noisy)
    with_canary = projections(audited, part, direction, noisy)
    return Errors(int((without > threshold).sum()), int((with_canary <= threshold).sum()))


def epsilon_of_run(mu: float, plan: NoisePlan) -> float:
    """A lower bound of the epsilon of a run whose single releases are mu-GDP and no better."""
    if plan.sampling == 1:
        # Whoever sees all releases adds up what each shows.
        return epsilon_of(mu * math.sqrt(plan.releases), plan.delta)
    if mu <= 0:
        return 0.0
    from dp_accounting.pld import privacy_loss_distribution as losses

    one = losses.from_gaussian_mechanism(
        standard_deviation=1 / mu,
        sampling_prob=plan.sampling,
        pessimistic_estimate=False,
        value_discretization_interval=DISCRETISATION,
    )
    return float(one.self_compose(plan.releases).get_epsilon_for_delta(plan.delta))


def projections(audited: AuditedSum, part: Longs, direction: Doubles, noisy: bool) -> Doubles:
    """(draws,) what releases show in the canary's direction."""
    exact = float(part @ direction)
    if not noisy:
        return np.full(DRAWS, exact)
    at_once = max(AT_ONCE // len(part), 1)
    shown = []
    for first in range(0, DRAWS, at_once):
        n = min(at_once, DRAWS - first)
        shown.append(exact + audited.draw(n, len(part)) @ direction)
    return np.concatenate(shown)


def drawn_noise(
    world: AnyWorld, exchange: AnyExchange, plan: NoisePlan, n: int, length: int
) -> Longs:
    """(n, length) noise of so many releases, by whoever draws it in a run.

    Of clients' shares, only those that are certain to be in a sum.
    """
    zeros = np.zeros((n, length), np.int64)
    if world.settings.noise == "central":
        nothing = Message(0, np.empty(0, np.int32), {}, {})
        return noise.with_central_noise(world, exchange, nothing, {"sum": zeros})["sum"]
    for _ in range(plan.n_shares):
        share = noise.share_of_noise(plan, n * length, secrets.token_bytes(32))
        zeros += share.reshape(n, length)
    return zeros
