"""A node as a service over its store. Every call finds all it needs there: each may be another process, also after a crash."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, replace

import numpy as np

from coterie.data.interactions import objects
from coterie.errors import RunError, UnknownName
from coterie.finished import Recommendation, Run
from coterie.runtime import judging
from coterie.runtime.enrolment import Numbers, Terms, histories, parts, roll, simulated_seed, world_of
from coterie.runtime.folder import Catalogue
from coterie.runtime.party import Party
from coterie.runtime.store import Store
from coterie.runtime.wire import Malformed

KINDS = "enrol", "begin", "ask", "measure", "show"
"""Messages that there are."""
SIMULATED = "simulated"
"""In place of a seed: devices draw what those of a simulation draw, which a server can repeat."""


@dataclass(frozen=True, slots=True)
class Host:
    store: Store

    def draw_from(self, seed: str = "") -> None:
        """What devices draw from; a seed that nobody else has, unless a simulation is to be repeated."""
        if seed or self.store.about("seed") is None:
            self.store.put_about(seed=seed or str(secrets.randbits(63)))

    def answer(self, kind: str, data: bytes) -> bytes:
        """To a message of one of the kinds that there are."""
        if kind == "ask":
            return self.party().receive(data)
        if kind == "enrol":
            return roll(Terms.from_json(data), self.store).to_json().encode()
        if kind == "begin":
            return self.begin(*_two(data)).encode()
        if kind in ("measure", "show"):
            return self.measure(data, final=kind == "show").encode()
        raise Malformed(f"there is nothing to answer to {kind!r}")

    def begin(self, terms: str, numbers: str) -> str:
        """A federation begins, or goes on: of another one, nothing that devices kept is left."""
        known, run = Numbers.from_json(numbers), Terms.from_json(terms).run
        if self.store.about("run") != run:
            self.store.start_over()
        self.store.put_numbers(known.numbers)
        # people's ids are in one place: who is forgotten there is forgotten
        self.store.put_about(run=run, terms=terms, numbers=replace(known, numbers={}).to_json())
        self.party().begin()
        return run

    def measure(self, data: bytes, final: bool) -> str:
        party = self.party()
        terms, numbers = self._known()
        return judging.worth(terms, numbers, self.store, *judging.take(party, data), final).to_json()

    def recommend(self, person: str, n: int = 10, exclude_seen: bool = True) -> list[Recommendation]:
        """The n best items for one of this node's people, by the last model that came; nobody is asked."""
        if person not in self.store.people():
            raise UnknownName("user", person, self.store.people(), f" in {self.store.path}")
        if self.store.about("terms") is None or self.store.model() is None:
            raise RunError(
                f"{self.store.path} has had no model yet; expected one, which comes when a federation measures or ends. Join one and wait."
            )
        model, (terms, numbers) = judging.of_person(self.party(), person), self._known()
        if model is None:
            raise RunError(
                f"user {person} of {self.store.path} has no part in the model that came last; expected somebody who was there when it was "
                "trained. Join the next federation."
            )
        _, split = parts(terms, numbers, self.store)
        seen = split.everything().of_users(np.array([numbers.numbers[person]]))
        catalogue = Catalogue(objects([person]), objects(terms.items), terms.texts, seen)
        return Run({}, model, catalogue).recommend(person, n, exclude_seen)

    def party(self) -> Party:
        terms, numbers = self._known()
        seed = self.store.about("seed")
        if seed is None:
            raise Malformed("this node has no seed")
        drawn_from = simulated_seed(terms) if seed == SIMULATED else int(seed)
        mine = histories(terms, numbers, self.store, drawn_from)
        return Party(terms.federation, world_of(terms, numbers), mine, self.store)

    def _known(self) -> tuple[Terms, Numbers]:
        said, given = self.store.about("terms"), self.store.about("numbers")
        if said is None or given is None:
            raise Malformed("this node has not been told that a federation begins")
        people = {person: number for number, person in self.store.numbers().items()}
        return Terms.from_json(said), replace(Numbers.from_json(given), numbers=people)


def _two(data: bytes) -> tuple[str, str]:
    try:
        first, second = json.loads(data)
    except (ValueError, TypeError, RecursionError):
        raise Malformed("the message is no pair") from None
    return str(first), str(second)
