"""A node's policy: what its owner allows a server, whatever the server's terms say.

The owner writes it as a YAML file (`coterie join --policy`). The node's store keeps it, so that it
holds until another one is given. Terms are held against it at enrolment, when a federation begins,
and whenever the node is loaded.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from coterie.algorithms.registry import names
from coterie.core.settings import Settings
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_private_store_faults import damaged
from coterie.deployment.private_terms import protection_of, without_users
from coterie.errors import ConfigError, PolicyError, UnknownName
from coterie.experiments.config import read_file
from coterie.federated.federation import exchanges_with_clients

POLICY = "policy"
"""Metadata key of the policy."""
INVITED = "invited"
"""Metadata key of what the node was invited to train; empty if it joined without an invitation."""


class NodePolicy(Settings):
    """What a server may ask of a node. The defaults hold where the owner writes nothing."""

    algorithms: tuple[str, ...] = ()
    """Algorithms that this node trains; empty for all."""
    secure_aggregation: Literal["optional", "required", "secagg"] = "optional"
    """Whether updates must be hidden in sums: optional, required (ring or secagg), or by secagg,
    which also withstands a server that lies."""
    smallest_group: int = Field(3, ge=3, le=1000)
    """Smallest group of clients whose updates are summed by secagg."""
    epsilon_limit: float | None = Field(None, gt=0)
    """Privacy budget of each user over all runs that this store takes part in. Users stay out of a
    run that would exceed it, and all stay out of runs without epsilon; empty for no limit."""
    questions_an_hour: int = Field(100_000, ge=1)
    """Messages that are answered within an hour."""
    questions_a_day: int = Field(500_000, ge=1)
    """Messages that are answered within a day."""
    replays_a_day: int = Field(100, ge=0)
    """Times a day that a server may send an exchange, or an evaluation, again with other content.
    An honest one does after it was restored from a backup, and when users change during a round."""
    rollbacks: int = Field(3, ge=0)
    """Times that a server may roll a run back. Rounds since then are answered again, from the
    private state of that time."""
    evaluation: bool = True
    """Whether the node reports metrics of models that a server sends."""
    evaluations_a_day: int = Field(100, ge=0)
    """Models whose metrics are reported within a day. Further ones are stored, without a report."""
    smallest_evaluation_group: int = Field(10, ge=2)
    """Smallest group of users for which metrics are reported, and by which two groups differ."""
    evaluation_noise: float = Field(0.0, ge=0, le=1e6)
    """Standard deviation of the noise on sums of metrics, in users; 0 for none."""


def read_policy(path: Path) -> NodePolicy:
    """The policy in a YAML file; errors say to change that file."""
    try:
        values = read_file(str(path), "rollbacks: 3")
        policy = NodePolicy.of(values)
    except ConfigError as error:
        hint = r"Change it with --set \w+=VALUE\."
        why = re.sub(hint, "Change it there.", str(error)).removeprefix(f"{path}: ")
        raise ConfigError(f"{path}: {why}") from None
    for name in policy.algorithms:
        if name not in names():
            raise UnknownName("algorithm", name, names(), f" in {path}")
    return policy


def policy_of(store: NodeStore) -> NodePolicy:
    """The policy that a store keeps; the defaults if it has none."""
    text = store.meta(POLICY)
    if text is None:
        return NodePolicy()
    try:
        return NodePolicy.model_validate_json(text)
    except ValidationError as error:
        raise damaged(store.path, f"its policy cannot be read: {error}") from None


def put_policy(store: NodeStore, policy: NodePolicy) -> None:
    """Keep a policy until another is given."""
    store.put_meta(**{POLICY: policy.model_dump_json()})


def describe_policy(policy: NodePolicy) -> list[str]:
    """A policy in plain words, a line for each rule."""
    listed = ", ".join(policy.algorithms) or "any algorithm"
    protection = {
        "optional": "Updates need not be protected by secure aggregation: a server may read them.",
        "required": "Updates are sent under secure aggregation only (ring or secagg).",
        "secagg": "Updates are sent under secure aggregation with secagg only.",
    }
    lines = [
        f"This node trains {listed}.",
        protection[policy.secure_aggregation],
        f"A group of secagg has at least {policy.smallest_group} clients.",
    ]
    if policy.epsilon_limit is None:
        lines.append("There is no limit of epsilon: runs without differential privacy are joined.")
    else:
        lines.append(
            f"Each user spends at most epsilon {policy.epsilon_limit:g} over all runs, and runs "
            "without differential privacy are refused."
        )
    lines.append(
        f"At most {policy.questions_an_hour:,} messages an hour and {policy.questions_a_day:,} a "
        f"day are answered; {policy.replays_a_day:,} times a day one may be repeated with other "
        "content."
    )
    lines.append(
        f"A server may roll a run back {policy.rollbacks:,} times; rounds are then answered again."
        if policy.rollbacks
        else "A server may not roll a run back."
    )
    if policy.evaluation:
        lines.append(
            f"Metrics of {policy.evaluations_a_day:,} models a day are reported, as sums over at "
            f"least {policy.smallest_evaluation_group} users"
            + (
                f", with noise of {policy.evaluation_noise:g} users."
                if policy.evaluation_noise
                else ", without noise: a server that makes up models learns about single users."
            )
        )
    else:
        lines.append("No metrics are reported.")
    return lines


def refuse_by_policy(terms: FederationTerms, store: NodeStore) -> None:
    """Reject terms that the policy of a store does not allow."""
    policy = policy_of(store)
    name = terms.experiment.choice.algorithm
    if policy.algorithms and name not in policy.algorithms:
        raise _refusal(
            terms,
            f"trains {name}",
            f"algorithms: {', '.join(policy.algorithms)}",
            f"Add {name} to the policy if the users agree",
        )
    _refuse_plain(terms, policy)
    _refuse_no_budget(terms, policy)
    _refuse_uninvited(terms, store)


def _refuse_plain(terms: FederationTerms, policy: NodePolicy) -> None:
    """Reject terms under which a server reads single updates, where the policy forbids it."""
    world = without_users(terms.experiment)
    settings = world.settings
    protocol = settings.secure_aggregation
    if protocol == "secagg" and settings.fewest_in_group < policy.smallest_group:
        raise _refusal(
            terms,
            f"has groups of {settings.fewest_in_group} clients (smallest_group)",
            f"smallest_group: {policy.smallest_group}",
            "Lower it in the policy if the users agree",
        )
    if policy.secure_aggregation == "optional":
        return
    wanted = ("secagg",) if policy.secure_aggregation == "secagg" else ("ring", "secagg")
    exchanges = exchanges_with_clients(terms.federation, world)
    n_plain = sum(exchange.secure_sum is None for exchange in exchanges)
    if protocol in wanted and not n_plain:
        return
    found = f"has secure_aggregation {protocol!r}"
    if protocol in wanted:
        found += f", and {n_plain} of its {len(exchanges)} exchanges are without it"
    raise _refusal(
        terms,
        found,
        f"secure_aggregation: {policy.secure_aggregation}",
        "Ask the server's owner for it, or change the policy if the users agree",
    )


def _refuse_no_budget(terms: FederationTerms, policy: NodePolicy) -> None:
    if (
        policy.epsilon_limit is not None
        and without_users(terms.experiment).settings.epsilon is None
    ):
        raise _refusal(
            terms,
            "has no privacy budget (epsilon)",
            f"epsilon_limit: {policy.epsilon_limit:g}",
            "Take the limit out of the policy if the users agree, or ask the server's owner",
        )


def _refuse_uninvited(terms: FederationTerms, store: NodeStore) -> None:
    """Reject a run that trains anything else than the node's invitation says."""
    invited = store.meta(INVITED)
    trains = protection_of(terms.experiment)
    if invited and trains != invited:
        raise PolicyError(
            f"run {terms.run} trains {trains}; this node was invited to {invited}. Ask the "
            "server's owner for a new invitation, and join with it if the users agree."
        )


def _refusal(terms: FederationTerms, found: str, rule: str, remedy: str) -> PolicyError:
    return PolicyError(f"run {terms.run} {found}; this node's policy has {rule}. {remedy}.")
