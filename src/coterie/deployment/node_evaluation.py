"""Evaluation on nodes: the server sends the model, nodes evaluate it and reply with sums.

A user's own row of the model is sent only to that user's node. Where clients keep such rows as
private state, nodes add them from their store. Per-user metrics never leave a node; it replies with
sums over groups that are large enough (`node_evaluation_groups.py`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from types import SimpleNamespace

import numpy as np

from coterie.deployment.enrolment import FederationTerms, JsonMessage, UserIndices
from coterie.deployment.node import Node
from coterie.deployment.node_data import split_of
from coterie.deployment.node_evaluation_groups import reportable_users
from coterie.deployment.node_policy import policy_of
from coterie.deployment.node_private_store import MODEL, NodeStore
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.evaluation import accuracy_per_user
from coterie.evaluation.metric_names import ACCURACY, WITHOUT_CUTOFF
from coterie.evaluation.protocols import Protocol
from coterie.experiments.training import Evaluator, sampled
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    PrivateState,
)
from coterie.federated.wire import Malformed, decode, encode
from coterie.models.kinds import kind
from coterie.models.recommender import Recommender
from coterie.types import Ints, JsonObject, Message

KIND = "kind"
PARTS = "test", "validation", ""
DIGITS = 2
"""Sums are rounded to so many digits. Metrics such as AUC depend on how many items a user has, so
that an exact sum over ten users tells which of them an item counted for."""


@dataclass(frozen=True, slots=True)
class NodeMetrics(JsonMessage):
    """Sums of metrics over a node's evaluated users; empty where those are too few."""

    users: int
    part: str
    sums: dict[str, float]

    @classmethod
    def parse(cls, data: bytes, hosted: int, names: Container[str]) -> NodeMetrics:
        """Read metrics from an untrusted node that hosts `hosted` users.

        Every metric must be a known one, and its mean between 0 and 1.
        """
        metrics = cls.from_json(data)
        if not 0 <= metrics.users <= hosted or bool(metrics.sums) != bool(metrics.users):
            raise Malformed("the metrics are over more users than the node hosts, or over none")
        if metrics.part not in PARTS:
            raise Malformed(f"the metrics are of an unknown part {metrics.part[:20]!r}")
        most = metrics.users * (1 + 1e-9)
        if not all(name in names and 0 <= total <= most for name, total in metrics.sums.items()):
            raise Malformed("a metric is unknown, or its sum is out of range")
        return metrics


# The server's side


def model_message(federation: AnyFederation, world: AnyWorld, state: object, t: int) -> Message:
    """The model as a message to all users."""
    model = federation.model(world, state)
    arrays = model.shared_arrays()
    own = {name: arrays.pop(name) for name in model.of_users if name in arrays}
    common = arrays | {name: getattr(state, name) for name in federation.client_model_needs}
    kind_bytes = np.frombuffer(model.kind.encode(), np.uint8)
    return Message(t, np.arange(world.n_users, dtype=np.int32), common | {KIND: kind_bytes}, own)


def metric_names(protocol: Protocol) -> set[str]:
    """The metrics that nodes may report."""
    names = {
        name if name in WITHOUT_CUTOFF else f"{name}@{k}"
        for name in ACCURACY
        for k in protocol.cutoffs
    }
    return names | {f"full:{name}" for name in names}


def combine(metrics: Iterable[NodeMetrics]) -> dict[str, float]:
    """Means over the users of all reporting nodes, for the metrics that all of them report."""
    reports = [report for report in metrics if report.users]
    if not reports:
        return {}
    names = set.intersection(*(set(report.sums) for report in reports))
    users = sum(report.users for report in reports)
    return {
        name: math.fsum(report.sums[name] for report in reports) / users
        for name in reports[0].sums
        if name in names
    }


def contributions(reports: Mapping[str, NodeMetrics], names: Collection[str]) -> JsonObject:
    """Each node's own means, with its number of users, and the medians over nodes.

    A node can report what it likes about its own users, and weighs as many as it has enrolled. A
    median that is far from the mean shows it.
    """
    of_nodes = {
        name: {"users": report.users}
        | {metric: report.sums[metric] / report.users for metric in names}
        for name, report in reports.items()
        if report.users
    }
    middle = {metric: median(found[metric] for found in of_nodes.values()) for metric in names}
    return {"metrics_median": middle, "metrics_by_node": of_nodes}


# The node's side


def receive_model(node: Node, data: bytes) -> tuple[Ints, Recommender]:
    """Store a model message; returns its users and the model, whose k-th row is the k-th user's."""
    message, user_ids = node.synchronise(data)
    if KIND not in message.common:
        raise Malformed("the message does not hold a model")
    node.store.put_model(user_ids, message.own, encode(message.round, {}, message.common))
    places = node.node.positions(message.users)
    return message.users, complete_model(node, message.common, message.own, user_ids, places)


def model_for_user(node: Node, user_id: str) -> Recommender | None:
    """The last model for one user; None if there is none, or the user has no part in it."""
    data = node.store.held(MODEL)
    index = next((k for k, name in node.store.numbers().items() if name == user_id), None)
    if data is None or index is None or index not in node.node.users:
        return None
    own = {name: row[None] for name, row in node.store.model_rows(user_id).items()}
    places = node.node.positions(np.array([index]))
    return complete_model(node, decode(data).common, own, [user_id], places)


def complete_model(
    node: Node, common: PrivateState, own: PrivateState, user_ids: list[str], places: np.ndarray
) -> Recommender:
    """Add the users' private state to what the server sent."""
    model = kind(common[KIND].tobytes().decode(errors="replace"))
    kept = node.store.private_state(user_ids)
    if node.federation.client_model is not None:
        state = SimpleNamespace(
            **{name: common[name] for name in node.federation.client_model_needs}
        )
        made = node.federation.client_model(node.world, state, node.node)
        kept = {name: rows[places] for name, rows in made.items()}
    private_state = {name: rows for name, rows in kept.items() if name in model.private}
    if kept and not private_state:
        # With rows of its own choice, a server could make a sum be about one user.
        raise Malformed(
            f"the server sends a model of kind {model.kind}, which has no part of what clients "
            f"keep ({', '.join(sorted(kept))})"
        )
    try:
        return model.from_arrays(dict(common) | own | private_state)
    except (KeyError, TypeError) as error:
        raise Malformed(f"the model is incomplete ({error})") from None


def evaluate_model(
    terms: FederationTerms,
    indices: UserIndices,
    store: NodeStore,
    users: Ints,
    model: Recommender,
    final: bool,
) -> NodeMetrics:
    """Evaluate on the part that follows training; if `final`, on the test part and in full."""
    experiment = terms.experiment
    _, split = split_of(terms, indices, store)
    protocol = experiment.protocol
    n_items = len(terms.items)
    candidates = sampled(protocol, split, experiment.choice.seed) if protocol.candidates else None
    evaluator = Evaluator.of(experiment, split, candidates)
    if final:
        evaluator = replace(
            evaluator,
            part="test",
            seen=split.seen(),
            held=split.test,
            candidates=candidates and candidates.by_user(),
        )
    seen = evaluator.seen.of_users(users)
    wanted = evaluator.held.rows.of_users(users)
    ranked = evaluator.candidates and _candidates_of(evaluator.candidates, users)
    table = accuracy_per_user(model, protocol, seen, wanted, n_items, ranked)
    if final and evaluator.candidates is not None:
        full = accuracy_per_user(model, protocol, seen, wanted, n_items, None)
        table |= {f"full:{name}": values for name, values in full.items()}
    tested = np.flatnonzero(wanted.counts)
    user_ids = store.numbers()
    names = [user_ids[index] for index in users[tested].tolist()]
    least = policy_of(store).smallest_evaluation_group
    chosen = reportable_users(store, evaluator.part, names, least)
    if not chosen:
        return NodeMetrics(0, evaluator.part, {})
    counts = np.array([name in chosen for name in names], bool)  # (tested users,), as in the table
    sums = {name: round(math.fsum(values[counts]), DIGITS) for name, values in table.items()}
    return NodeMetrics(len(chosen), evaluator.part, sums)


def _candidates_of(candidates: Candidates, users: Ints) -> Candidates:
    """The candidates of some users, indexed by their place in `users`."""
    chosen = np.isin(candidates.users, users)
    places = np.searchsorted(users, candidates.users[chosen]).astype(np.int32)
    return Candidates(places, candidates.items[chosen], candidates.relevant[chosen])
