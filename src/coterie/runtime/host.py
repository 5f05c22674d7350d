"""A node as a service over its store. Every call finds all it needs there: each may be another process, also after a crash."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import cast

from coterie.federation import Federation
from coterie.registry import algorithm
from coterie.runtime.enrolment import Numbers, Terms, histories, roll, simulated_seed, world_of
from coterie.runtime.party import Party
from coterie.runtime.store import Store
from coterie.runtime.wire import Malformed

SIMULATED = "simulated"
"""In place of a seed: devices draw what those of a simulation draw, which a server can repeat."""


@dataclass(frozen=True, slots=True)
class Host:
    store: Store

    def draw_from(self, seed: str = "") -> None:
        """What devices draw from; a seed that nobody else has, unless a simulation is to be repeated."""
        if seed or self.store.about("seed") is None:
            self.store.put_about(seed=seed or str(secrets.randbits(63)))

    def enrol(self, terms: str) -> str:
        """What the server asks, and whom it will find here."""
        return roll(Terms.from_json(terms), self.store).to_json()

    def begin(self, terms: str, numbers: str) -> str:
        """A federation begins, or goes on: of another one, nothing that devices kept is left."""
        known, run = Numbers.from_json(numbers), Terms.from_json(terms).run
        if self.store.about("run") != run:
            self.store.start_over()
        self.store.put_numbers(known.numbers)
        self.store.put_about(run=run, terms=terms, numbers=numbers)
        self.party().begin()
        return run

    def ask(self, data: bytes) -> bytes:
        return self.party().receive(data)

    def party(self) -> Party:
        said, given, seed = (self.store.about(key) for key in ("terms", "numbers", "seed"))
        if said is None or given is None or seed is None:
            raise Malformed("this node has not been told that a federation begins")
        terms, numbers = Terms.from_json(said), Numbers.from_json(given)
        drawn_from = simulated_seed(terms) if seed == SIMULATED else int(seed)
        federation = cast(Federation, algorithm(terms.experiment.choice.algorithm).train)
        return Party(
            federation, world_of(terms, numbers), histories(terms, numbers, self.store, drawn_from), self.store
        )
