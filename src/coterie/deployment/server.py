"""The server of a federation between parties, whatever carries its bytes: rounds with deadlines and a quorum, commits, measurements.

A round counts when it is written down, before the next one begins: a server that is started again goes on after the last such round.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT, Progress
from coterie.deployment import node_evaluation as judging
from coterie.deployment.enrolment import Terms, Told, world_of
from coterie.deployment.membership import STATUS, Counted, Membership, Nodes
from coterie.deployment.node import NodeEngine
from coterie.deployment.server_config import ServerConfig
from coterie.experiments import checkpoint, training
from coterie.experiments import folder as disk
from coterie.experiments.history import Point, TrainingHistory
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.federated.nodes import write_message
from coterie.federated.trainer import Context, federated_trainer, n_rounds

ACCEPTED = "accepted-{}.npz"


def serve(
    folder: Path,
    terms: Terms,
    nodes: Nodes,
    service: ServerConfig,
    told: Told | None = None,
    progress: Progress = SILENT,
) -> Point:
    """Train to the end, or go on from where the folder says that training stands."""
    federation = terms.federation
    experiment = terms.experiment
    counted = Counted.since(nodes, folder)
    present = Membership.taken(folder, terms, counted, service)
    world = world_of(terms, present.members.told(()), told or Told())
    engine = NodeEngine.over(present.homes, present.ask)
    work = federated_trainer(
        federation, world, engine, Context(world.seed, progress), by_round=True
    )
    chosen = algorithm(experiment.choice.algorithm)
    point = going_on(folder, chosen, terms, engine) or training.begin(work, world.n_users)
    total = n_rounds(federation, world)
    every = experiment.course.evaluate_every
    while True:
        tell(folder, point, counted, total, "training")
        if is_due(point.history, every, total):
            present.greet()
            point = measured(point, world, present, engine, final=point.history.round == total)
            commit(folder, point, terms, engine)
        if point.history.round >= total:
            break
        present.greet()
        point = training.step(work, point)
        commit(folder, point, terms, engine)
    disk.write_model(folder, federation.model(world, point.state))
    disk.write_metrics(folder, point.history.curve)
    tell(folder, point, counted, total, "finished")
    return point


def is_due(history: TrainingHistory, every: int, total: int) -> bool:
    """Whether the model has to be measured, and was not: a server may have died before it wrote down what it heard."""
    last = history.curve[-1]["round"] if history.curve else 0
    n = history.round
    return n > last and (n == total or bool(every and n % every == 0))


def measured(
    point: Point, world: AnyWorld, present: Membership, engine: NodeEngine, final: bool
) -> Point:
    """Nodes get the model, keep it for their people, and say what it is worth. Whoever is not there is not counted."""
    letter = judging.letter(present.terms.federation, world, point.state, point.history.round)
    parts = {present.names[n]: write_message(part) for n, part in engine.parts(letter).items()}
    back = present.send("show" if final else "measure", parts)
    protocol = present.terms.experiment.protocol
    hosted = present.hosted()
    names = judging.measures(protocol)
    said = list(
        present.counted.heard(
            "worth", back, lambda name, data: judging.NodeMetrics.heard(data, hosted[name], names)
        ).values()
    )
    metrics = judging.put_together(said)
    headline = protocol.followed
    if headline not in metrics:
        return point
    part = next(worth.part for worth in said if worth.people)
    return replace(point, history=point.history.measured(part, metrics, headline))


def commit(folder: Path, point: Point, terms: Terms, engine: NodeEngine) -> None:
    """Write down that a round counts, and whose updates it was made of."""
    mine = folder / ACCEPTED.format(point.history.round)
    disk.write_arrays(mine, {"accepted": engine.accepted})
    checkpoint.write(folder, point, terms.run, terms.config)
    for old in folder.glob(ACCEPTED.format("*")):
        if old != mine:
            old.unlink(missing_ok=True)


def going_on(folder: Path, chosen: Algorithm, terms: Terms, engine: NodeEngine) -> Point | None:
    """Where a server that was started before stands."""
    point = checkpoint.read(folder, chosen.state, terms.run, terms.config, with_devices=False)
    if point is not None:
        name = ACCEPTED.format(point.history.round)
        engine.accepted[:] = disk.read_arrays(folder, name)["accepted"]
    return point


def tell(folder: Path, point: Point, counted: Counted, total: int, state: str) -> None:
    """What `coterie status` shows."""
    history = point.history
    counts = counted.counts
    about: dict[str, Any] = {
        "state": state,
        "round": history.round,
        "rounds": total,
        "nodes": len(counted.nodes.joined()),
        "updates": history.updates,
        "dropped": history.dropped,
        "refused": dict(history.refused + counted.refused),
        "unanswered": counts["unanswered"],
        "bytes_up": counts["bytes_up"],
        "bytes_down": counts["bytes_down"],
        "bytes_beside": counts["bytes_beside"],
        "metrics": _last(point),
    }
    disk.write_text(folder, STATUS, json.dumps(about, allow_nan=False) + "\n")


def _last(point: Point) -> dict[str, Any]:
    """The last measurement, and of which round and part it is."""
    curve = point.history.curve
    costs = ("seconds", "updates", "bytes_up", "bytes_down")
    return {name: value for name, value in curve[-1].items() if name not in costs} if curve else {}
