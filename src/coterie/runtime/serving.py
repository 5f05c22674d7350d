"""The server of a federation between parties, whatever carries its bytes: who there is, rounds with deadlines and a quorum, commits.

A round counts when it is written down, before the next one begins: a server that is started again goes on after the last such round.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from coterie import training
from coterie.algorithm import Algorithm, Context
from coterie.errors import NoQuorum
from coterie.federation import Federation, World
from coterie.journey import Point
from coterie.progress import SILENT, Watch
from coterie.registry import algorithm
from coterie.rounds import trainer_on
from coterie.runtime import checkpoint
from coterie.runtime import folder as disk
from coterie.runtime.enrolment import Roll, Terms, take_up, world_of
from coterie.runtime.party import PartyEngine
from coterie.types import Ints

ACCEPTED = "accepted-{}.npz"


class Nodes(Protocol):
    """Those who joined, and a way to reach them."""

    def joined(self) -> list[int]:
        """Who is there now."""

    def send(self, kind: str, out: Mapping[int, bytes]) -> Mapping[int, bytes]:
        """What came back from whom before the deadline; errors are no answers."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Nodes with a count of what travels, and a quorum: too few answers are an error, never a round of nobody."""

    nodes: Nodes
    quorum: float
    bytes_up: list[int] = field(default_factory=list)
    bytes_down: list[int] = field(default_factory=list)

    def ask(self, out: Mapping[int, bytes]) -> Mapping[int, bytes]:
        return self.send("ask", out)

    def send(self, kind: str, out: Mapping[int, bytes]) -> Mapping[int, bytes]:
        back = self.nodes.send(kind, out)
        self.bytes_down.append(sum(map(len, out.values())))
        self.bytes_up.append(sum(map(len, back.values())))
        if len(back) < self.quorum * len(out):
            raise NoQuorum(
                f"{len(back)} of {len(out)} nodes answered ({kind}) before the deadline; expected at least {self.quorum:.0%} of them. "
                "Start those that are missing and serve again: the federation goes on after the last round that was written down."
            )
        return back


def serve(folder: Path, terms: Terms, nodes: Nodes, quorum: float = 0.5, watch: Watch = SILENT) -> Point:
    """Train to the end, or go on from where the folder says that training stands."""
    counted, chosen = Counted(nodes, quorum), algorithm(terms.experiment.choice.algorithm)
    homes, world = enrol(terms, counted)
    engine = PartyEngine.over(homes, counted.ask)
    federation = cast(Federation, chosen.train)
    work = trainer_on(federation, world, engine, Context(world.seed, watch))
    point = going_on(folder, chosen, terms, engine) or training.begin(work, world.n_users)
    total = chosen.steps(terms.experiment.settings)
    tell(folder, point, counted, total, "training")
    with watch.task(
        f"Training {terms.experiment.choice.algorithm} with {len(set(homes.tolist()))} nodes", total
    ) as advance:
        advance(point.journey.round)
        while point.journey.round < total:
            point = training.step(work, point)
            commit(folder, point, terms, engine)
            tell(folder, point, counted, total, "training")
            advance()
    tell(folder, point, counted, total, "finished")
    return point


def enrol(terms: Terms, counted: Counted) -> tuple[Ints, World]:
    """Everybody who is there, numbered, and told so."""
    said = terms.to_json().encode()
    rolls = counted.send("enrol", dict.fromkeys(counted.nodes.joined(), said))
    told, homes = take_up({node: Roll.from_json(text.decode()) for node, text in rolls.items()})
    counted.send("begin", {node: json.dumps([terms.to_json(), each.to_json()]).encode() for node, each in told.items()})
    return homes, world_of(terms, next(iter(told.values())))


def commit(folder: Path, point: Point, terms: Terms, engine: PartyEngine) -> None:
    """Write down that a round counts, and whose updates it was made of."""
    mine = folder / ACCEPTED.format(point.journey.round)
    disk.write_arrays(mine, {"accepted": engine.accepted})
    checkpoint.write(folder, point, terms.run, terms.config)
    for old in folder.glob(ACCEPTED.format("*")):
        if old != mine:
            old.unlink(missing_ok=True)


def going_on(folder: Path, chosen: Algorithm, terms: Terms, engine: PartyEngine) -> Point | None:
    """Where a server that was started before stands."""
    point = checkpoint.read(folder, chosen.state, terms.run, terms.config, with_devices=False)
    if point is not None:
        name = ACCEPTED.format(point.journey.round)
        engine.accepted[:] = disk.read_arrays(folder, name)["accepted"]
    return point


def tell(folder: Path, point: Point, counted: Counted, total: int, state: str) -> None:
    """What `coterie status` shows."""
    journey = point.journey
    about: dict[str, Any] = {
        "state": state, "round": journey.round, "rounds": total, "nodes": len(counted.nodes.joined()),
        "updates": journey.updates, "dropped": journey.dropped, "refused": dict(journey.refused),
        "bytes_up": int(np.sum(counted.bytes_up)), "bytes_down": int(np.sum(counted.bytes_down)),
    }  # fmt: skip
    disk.write_text(folder, "status.json", json.dumps(about, allow_nan=False) + "\n")
