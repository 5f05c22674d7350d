"""What a private run claims: checked before it starts, and written down with its result."""

from __future__ import annotations

from coterie.core.progress import Progress
from coterie.errors import ConfigError
from coterie.federated.federation import AnyFederation, AnyWorld, exchanges_with_clients
from coterie.federated.privacy.budget import epsilon_of, plan_of_run
from coterie.federated.privacy.plan import NoisePlan
from coterie.types import JsonObject

UNIT = "a user, with everything that the user contributed to this run"
NEIGHBOURS = "two datasets are neighbours if one has a single user more than the other"
ADVERSARY = {
    "central": (
        "anyone who receives the model or any sum that the server releases. The server itself is "
        "trusted: it sees sums without noise and adds the noise"
    ),
    "distributed": (
        "the server, up to the number of colluding clients that secure aggregation allows for, and "
        "anyone who receives the model. The guarantee rests on secure aggregation"
    ),
    "local": "the server, all other clients, and anyone who receives the model",
}
MECHANISM = {
    "central": "the server adds noise to each sum over clients",
    "distributed": (
        "each client adds a share of the noise before secure aggregation, so that no sum exists "
        "without it; a group with too few survivors is abandoned"
    ),
    "local": "each client adds all of the noise to its own report",
}
NOT_COVERED = (
    "the catalogue and the ids of items",
    "who takes part, when, and that a participant has at least one interaction",
    "the number of users, which is taken as public",
    "accuracy figures of a simulation, which are computed from held-out interactions",
    "a user's own recommendations, which the user's device computes from the user's own history",
)
RANDOMNESS = {
    "seeded": (
        "drawn from the seed of the run, so that this simulation can be repeated: whoever knows "
        "the seed can remove the noise"
    ),
    "system": "drawn from the generator of the operating system, with exact integer arithmetic",
}


def check_and_report(federation: AnyFederation, world: AnyWorld, progress: Progress) -> None:
    """Refuse a private run of an algorithm that reveals more than noisy sums; log the claim."""
    if world.settings.epsilon is None:
        return
    reason = why_not_private(federation, world)
    if reason:
        raise ConfigError(
            f"epsilon is {world.settings.epsilon:g}, but this algorithm cannot be trained under a "
            f"privacy budget: {reason}. Use another (docs/differential-privacy.md lists those that "
            "can), or leave epsilon out."
        )
    progress.log(claim(plan_of_run(federation, world), world.settings.noise, world.n_users))


def why_not_private(federation: AnyFederation, world: AnyWorld) -> str:
    """Why an algorithm cannot be trained under a privacy budget; "" if it can."""
    exchanges = exchanges_with_clients(federation, world)
    reason = federation.not_private(world)
    private = [exchange.private_sum for exchange in exchanges]
    if reason:
        return reason
    if all(private):
        drawn_anew = all(each.drawn_anew for each in private if each)
        if world.settings.sampling == "poisson" and not drawn_anew:
            return "its cohorts depend on earlier ones, so that sampling=poisson is not possible"
        return ""
    visible = [exchange.visible for exchange in exchanges if exchange.visible]
    if visible:
        return f"its server receives of every user {visible[0]}"
    return "what a client adds to its sums has no bound"


def claim(plan: NoisePlan, noise: str, n_users: int) -> str:
    """The guarantee in one line."""
    return (
        f"user-level differential privacy: epsilon {plan.epsilon:g}, delta {plan.delta:.2g} for "
        f"{n_users:,} users; each user's data enters {_sums(plan)}; noise multiplier "
        f"{plan.multiplier:.4g}; {MECHANISM[noise]}"
    )


def statement(
    plan: NoisePlan, noise: str, source: str, n_users: int, made: int, stopped: str = ""
) -> JsonObject:
    """The guarantee of a run, as data and as a paragraph.

    `made` are the sums so far that a user's data may have entered; `stopped` says why training
    ended before its last round, if it did.
    """
    return {
        "epsilon": plan.epsilon,
        "epsilon_spent": epsilon_of(plan, made),
        "releases_made": made,
        "stopped": stopped,
        "delta": plan.delta,
        "unit": UNIT,
        "neighbouring": NEIGHBOURS,
        "adversary": ADVERSARY[noise],
        "noise": noise,
        "mechanism": MECHANISM[noise],
        "releases": plan.releases,
        "noise_multiplier": plan.multiplier,
        "sensitivity": plan.sensitivity,
        "sigma": plan.sigma,
        "log2_sigma_of_a_draw": plan.log2_sigma,
        "shares_that_count": plan.n_shares,
        "accountant": "Renyi differential privacy of the discrete Gaussian (dp-accounting)",
        "users": n_users,
        "noise_source": source,
        "randomness": RANDOMNESS[source],
        "not_covered": list(NOT_COVERED),
        "text": paragraph(plan, noise, source, n_users, made),
    }


def paragraph(plan: NoisePlan, noise: str, source: str, n_users: int, made: int) -> str:
    """For somebody who is responsible for data protection."""
    return (
        f"This run is differentially private at the level of users, with epsilon "
        f"{plan.epsilon:g} and delta {plan.delta:.2g}. It protects {UNIT}: {NEIGHBOURS}, and what "
        f"the run releases is almost as likely with either. The guarantee holds against "
        f"{ADVERSARY[noise]}. Each user's data enters {_sums(plan)}; what one user can add to a "
        f"sum is bounded, and {MECHANISM[noise]}: discrete Gaussian noise of "
        f"{plan.multiplier:.4g} times that bound. So far, that is epsilon "
        f"{epsilon_of(plan, made):.4g}. Noise is {RANDOMNESS[source]}. Not covered: "
        f"{'; '.join(NOT_COVERED)}. The number of users is {n_users:,}."
    )


def _sums(plan: NoisePlan) -> str:
    return "one sum" if plan.releases == 1 else f"up to {plan.releases:,} sums"
