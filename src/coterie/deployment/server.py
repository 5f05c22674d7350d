"""The server of a federation of nodes, for any transport: rounds, commits and evaluations.

Each round is committed to disk before the next one begins. A restarted server resumes after the
last committed round.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

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
from coterie.experiments import checkpoint, run_folder, training
from coterie.experiments.history import Point, TrainingHistory
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.federated.nodes import write_message
from coterie.federated.trainer import Context, federated_trainer, n_rounds
from coterie.types import JsonObject

ACCEPTED = "accepted-{}.npz"


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
    while True:
        write_status(folder, point, traffic, total, "training")
        if evaluation_is_due(point.history, every, total):
            membership.enrol_new_nodes()
            final = point.history.round == total
            if final:
                # Only now, after the commit: a server that dies here does not repeat the round.
                point = training.finish(trainer, point)
            point = evaluate(point, world, membership, engine, final)
            commit(folder, point, terms, engine)
        if point.history.round >= total:
            break
        membership.enrol_new_nodes()
        point = training.step(trainer, point)
        commit(folder, point, terms, engine)
    run_folder.write_model(folder, federation.model(world, point.state))
    run_folder.write_metrics(folder, point.history.curve)
    write_status(folder, point, traffic, total, "finished")
    return point


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


def write_status(folder: Path, point: Point, traffic: NodeTraffic, total: int, state: str) -> None:
    """Write what `coterie status` shows."""
    history = point.history
    counts = traffic.counts
    status: JsonObject = {
        "state": state,
        "round": history.round,
        "rounds": total,
        "nodes": len(traffic.nodes.joined()),
        "updates": history.updates,
        "dropped": history.dropped,
        "refused": dict(history.refused + traffic.refused),
        "unanswered": counts["unanswered"],
        "bytes_up": counts["bytes_up"],
        "bytes_down": counts["bytes_down"],
        "bytes_control": counts["bytes_control"],
        "metrics": _last_metrics(history),
    }
    run_folder.write_text(folder, STATUS, json.dumps(status, allow_nan=False) + "\n")


def _last_metrics(history: TrainingHistory) -> JsonObject:
    """The last evaluation with its round and part, without costs."""
    if not history.curve:
        return {}
    costs = ("seconds", "updates", "bytes_up", "bytes_down")
    return {name: value for name, value in history.curve[-1].items() if name not in costs}
