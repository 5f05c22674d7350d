"""The server of a federation of nodes, for any transport: rounds, commits and evaluations.

Each round is committed to disk before the next one begins. A restarted server resumes after the
last committed round.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT, Progress
from coterie.deployment.enrolment import FederationTerms, ItemContent
from coterie.deployment.membership import Membership
from coterie.deployment.node import NodeEngine
from coterie.deployment.node_evaluation import NodeMetrics, combine, metric_names, model_message
from coterie.deployment.node_service import EVALUATE, FINISH
from coterie.deployment.server_config import ServerConfig
from coterie.deployment.traffic import STATUS, Nodes, NodeTraffic
from coterie.deployment.world import server_world
from coterie.errors import NoQuorum
from coterie.experiments import checkpoint, run_folder, training
from coterie.experiments.history import Point, TrainingHistory
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.federated.nodes import write_message
from coterie.federated.trainer import Context, Trainer, federated_trainer, n_rounds
from coterie.types import JsonObject

ACCEPTED = "accepted-{}.npz"
RECENT = 100
"""Rounds whose median duration the status shows."""


def serve(
    folder: Path,
    terms: FederationTerms,
    nodes: Nodes,
    service: ServerConfig,
    content: ItemContent | None = None,
    progress: Progress = SILENT,
) -> Point:
    """Train to the end, from the beginning or from the folder's last committed round."""
    federation = terms.federation
    experiment = terms.experiment
    traffic = NodeTraffic.resume(nodes, folder)
    membership = Membership.establish(folder, terms, traffic, service)
    public = membership.members.indices_for(())
    world = server_world(terms, public, content or ItemContent())
    engine = NodeEngine.over(membership.hosts, membership.train)
    trainer = federated_trainer(
        federation, world, engine, Context(world.seed, progress), by_round=True
    )
    chosen = algorithm(experiment.choice.algorithm)
    point = resume(folder, chosen, terms, engine) or training.begin(trainer, world.n_users)
    total = n_rounds(federation, world)
    every = experiment.course.evaluate_every
    durations: deque[float] = deque(maxlen=RECENT)

    def report(state: str, note: str = "") -> None:
        status = status_of(point, membership, total, state, durations)
        if note:
            status |= {"note": note}
        run_folder.write_text(folder, STATUS, json.dumps(status, allow_nan=False) + "\n")

    with progress.task(f"Training with {len(membership.enrolled)} nodes", total) as advance:
        advance(point.history.round)
        while True:
            report("training")
            if evaluation_is_due(point.history, every, total):
                final = point.history.round == total
                membership.enrol_new_nodes(everybody=final)
                if final:
                    # Only now, after the commit: a server that dies here does not repeat the round.
                    point = training.finish(trainer, point)
                point = evaluate(point, world, membership, engine, final)
                commit(folder, point, terms, engine)
            if point.history.round >= total:
                break
            began = time.perf_counter()
            point = next_round(trainer, point, membership, engine, service, report)
            commit(folder, point, terms, engine)
            durations.append(time.perf_counter() - began)
            advance(1, f"{len(membership.enrolled)} nodes, {point.history.updates:,} updates")
    run_folder.write_model(folder, federation.model(world, point.state))
    run_folder.write_metrics(folder, point.history.curve)
    report("finished")
    return point


def next_round(
    trainer: Trainer[Any],
    point: Point,
    membership: Membership,
    engine: NodeEngine,
    service: ServerConfig,
    report: Callable[[str, str], None],
) -> Point:
    """Train one round. Without a quorum it is repeated until nodes return, or time is up."""
    until = time.monotonic() + service.wait_seconds
    accepted = engine.accepted.copy()
    while True:
        membership.enrol_new_nodes()
        try:
            return training.step(trainer, point)
        except NoQuorum as error:
            # Nodes discard what they computed in a round whose updates were not accepted.
            engine.accepted[:] = accepted
            if time.monotonic() > until:
                raise
            report("waiting", str(error))
            membership.wait_for_change(until)


def evaluation_is_due(history: TrainingHistory, every: int, total: int) -> bool:
    """Whether the current round needs an evaluation and has none.

    A server may have died between the commit of a round and its evaluation.
    """
    last = history.curve[-1]["round"] if history.curve else 0
    n = history.round
    return n > last and (n == total or bool(every and n % every == 0))


def evaluate(
    point: Point, world: AnyWorld, membership: Membership, engine: NodeEngine, final: bool
) -> Point:
    """Send the model to the nodes and average their metrics. Nodes without a reply do not count."""
    terms = membership.terms
    message = model_message(terms.federation, world, point.state, point.history.round)
    parts = engine.split_by_node(message)
    out = {membership.names[node]: write_message(part) for node, part in parts.items()}
    replies = membership.send(FINISH if final else EVALUATE, out)
    protocol = terms.experiment.protocol
    hosted = membership.users_per_node()
    names = metric_names(protocol)

    def parse(name: str, data: bytes) -> NodeMetrics:
        return NodeMetrics.parse(data, hosted[name], names)

    reports = list(membership.traffic.parse("metrics", replies, parse).values())
    metrics = combine(reports)
    headline = protocol.followed
    if headline not in metrics:
        return point
    part = next(report.part for report in reports if report.users)
    return replace(point, history=point.history.measured(part, metrics, headline))


def commit(folder: Path, point: Point, terms: FederationTerms, engine: NodeEngine) -> None:
    """Write a round to disk: which updates were accepted, then the state."""
    path = folder / ACCEPTED.format(point.history.round)
    run_folder.write_arrays(path, {"accepted": engine.accepted})
    checkpoint.write(folder, point, terms.run, terms.config)
    for old in folder.glob(ACCEPTED.format("*")):
        if old != path:
            old.unlink(missing_ok=True)


def resume(
    folder: Path, chosen: Algorithm, terms: FederationTerms, engine: NodeEngine
) -> Point | None:
    """The last committed round; None if there is none."""
    point = checkpoint.read(folder, chosen.state, terms.run, terms.config, with_devices=False)
    if point is not None:
        name = ACCEPTED.format(point.history.round)
        engine.accepted[:] = run_folder.read_arrays(folder, name)["accepted"]
    return point


def status_of(
    point: Point, membership: Membership, total: int, state: str, durations: Collection[float]
) -> JsonObject:
    """What `coterie status` shows."""
    history = point.history
    traffic = membership.traffic
    counts = traffic.counts
    return {
        "state": state,
        "round": history.round,
        "rounds": total,
        "seconds_per_round": median(durations) if durations else None,
        "nodes": len(traffic.nodes.joined()),
        "silent": sorted(membership.silent),
        "updates": history.updates,
        "dropped": history.dropped,
        "refused": dict(history.refused + traffic.refused + Counter(traffic.nodes.refused)),
        "unanswered": counts["unanswered"],
        "bytes_up": counts["bytes_up"],
        "bytes_down": counts["bytes_down"],
        "bytes_control": counts["bytes_control"],
        "metrics": _last_metrics(history),
    }


def _last_metrics(history: TrainingHistory) -> JsonObject:
    """The last evaluation with its round and part, without costs."""
    if not history.curve:
        return {}
    costs = ("seconds", "updates", "bytes_up", "bytes_down")
    return {name: value for name, value in history.curve[-1].items() if name not in costs}
