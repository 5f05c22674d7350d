"""A node as a service over its store. Every call finds all it needs there: each may be another process, also after a crash."""

from __future__ import annotations

import json
import secrets
import struct
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.interactions import objects
from coterie.deployment.enrolment import (
    Numbers,
    Terms,
    histories,
    parts,
    roll,
    simulated_seed,
    world_of,
)
from coterie.deployment.node import NEWEST, Node
from coterie.deployment.node_store import NodeStore
from coterie.errors import RunError, UnknownName
from coterie.experiments.folder import Catalogue
from coterie.federated.wire import Malformed

KINDS = "enrol", "ask", "measure", "show"
"""Messages that there are."""
BEGIN = struct.Struct("<4sI")
MARK = b"COTB"
if TYPE_CHECKING:
    from coterie.experiments.run import Recommendation

SIMULATED = "simulated"
"""In place of a seed: devices draw what those of a simulation draw, which a server can repeat."""


@dataclass(frozen=True, slots=True)
class NodeService:
    store: NodeStore

    def draw_from(self, seed: str = "") -> None:
        """What devices draw from; a seed that nobody else has, unless a simulation is to be repeated."""
        if seed or self.store.about("seed") is None:
            self.store.put_about(seed=seed or str(secrets.randbits(63)))

    def answer(self, kind: str, data: bytes) -> bytes:
        """To a message of one of the kinds that there are. The first of a federation says how it begins."""
        if kind == "enrol":
            return roll(Terms.from_json(data), self.store).to_json().encode()
        beginning, data = opened(data)
        if beginning is not None:
            self.begin(*beginning)
        if kind == "ask":
            return self.party().receive(data)
        if kind in ("measure", "show"):
            return self.measure(data, final=kind == "show").encode()
        raise Malformed(f"there is nothing to answer to {kind!r}")

    def begin(self, terms: Terms, numbers: Numbers) -> None:
        """A federation begins, or goes on: of another one, nothing that devices kept is left."""
        if self.store.about("run") != terms.run:
            self.store.start_over()
        self.store.put_numbers(numbers.numbers)
        # people's ids are in one place: who is forgotten there is forgotten
        about = {
            "run": terms.run,
            "terms": terms.to_json(),
            "numbers": replace(numbers, numbers={}).to_json(),
        }
        self.store.put_about(
            **about, **{NEWEST: "-1"}
        )  # a server that was started again may play a round again
        if not numbers.numbers:
            self.store.log(
                "nobody of this node belongs to the federation that is trained now; they wait for the next one"
            )
        self.party().begin()

    def measure(self, data: bytes, final: bool) -> str:
        from coterie.deployment import node_evaluation as judging

        party = self.party()
        terms, numbers = self._known()
        users, model = judging.take(party, data)
        if final:
            self.store.log(
                f"the federation is over, and its model is here: coterie recommend --node {self.store.path} --user ID"
            )
        if len(users) < len(
            party.node.users
        ):  # sums over some people and over some more would tell of single ones
            return judging.NodeMetrics(0, "", {}).to_json()
        return judging.worth(terms, numbers, self.store, users, model, final).to_json()

    def recommend(
        self, person: str, n: int = 10, exclude_seen: bool = True
    ) -> list[Recommendation]:
        """The n best items for one of this node's people, by the last model that came; nobody is asked."""
        from coterie.deployment import node_evaluation as judging
        from coterie.experiments.run import Run

        if person not in self.store.people():
            raise UnknownName("user", person, self.store.people(), f" in {self.store.path}")
        if self.store.about("terms") is None or self.store.held("model") is None:
            raise RunError(
                f"{self.store.path} has had no model yet; expected one, which comes when a federation measures or ends. Join one and wait."
            )
        model = judging.of_person(self.party(), person)
        (terms, numbers) = self._known()
        if model is None:
            raise RunError(
                f"user {person} of {self.store.path} has no part in the model that came last; expected somebody who was there when it was "
                "trained. Join the next federation."
            )
        _, split = parts(terms, numbers, self.store)
        seen = split.everything().of_users(np.array([numbers.numbers[person]]))
        catalogue = Catalogue(objects([person]), objects(terms.items), terms.texts, seen)
        return Run({}, model, catalogue).recommend(person, n, exclude_seen)

    def party(self) -> Node:
        terms, numbers = self._known()
        seed = self.store.about("seed")
        if seed is None:
            raise Malformed("this node has no seed")
        drawn_from = simulated_seed(terms) if seed == SIMULATED else int(seed)
        mine = histories(terms, numbers, self.store, drawn_from)
        return Node(terms.federation, world_of(terms, numbers), mine, self.store)

    def _known(self) -> tuple[Terms, Numbers]:
        said = self.store.about("terms")
        given = self.store.about("numbers")
        if said is None or given is None:
            raise Malformed("this node has not been told that a federation begins")
        people = {person: number for number, person in self.store.numbers().items()}
        return Terms.from_json(said), replace(Numbers.from_json(given), numbers=people)


def beginning(terms: Terms, numbers: Numbers) -> bytes:
    """What stands before the first message that a node gets, so that it need not be asked twice."""
    text = json.dumps([terms.to_json(), numbers.to_json()]).encode()
    return BEGIN.pack(MARK, len(text)) + text


def opened(data: bytes) -> tuple[tuple[Terms, Numbers] | None, bytes]:
    """The beginning, if there is one, and the message."""
    if data[: len(MARK)] != MARK or len(data) < BEGIN.size:
        return None, data
    end = BEGIN.size + BEGIN.unpack_from(data)[1]
    try:
        terms, numbers = json.loads(data[BEGIN.size : end])
    except (ValueError, TypeError, RecursionError):
        raise Malformed("the message does not say how the federation begins") from None
    return (Terms.from_json(str(terms)), Numbers.from_json(str(numbers))), data[end:]
