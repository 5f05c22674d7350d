"""What a server has collected about users after some rounds, and what attackers claim from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from coterie.attacks.eavesdropper import Observation
from coterie.attacks.features import RoundFeatures, extract_features
from coterie.attacks.ledger import Ledger
from coterie.types import Bools, Ints, Longs


@dataclass(frozen=True, slots=True)
class ServerKnowledge:
    """What a server knows in advance. Disclosure rates and lengths of histories are not in it."""

    n_users: int
    n_items: int
    n_factors: int
    reg_positive: float = 0.0
    reg_negative: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """All rounds so far, by key: a user and an item that the user sent at least once.

    Where no attacker counts items, keys without a clue are left out.
    """

    server: ServerKnowledge
    rounds_observed: Longs  # (users,) the number of rounds in which each user sent rows
    draws: Longs  # (users,) the number of triples in those rounds
    keys: Longs  # (n,) user * n_items + item, ascending
    times: Ints  # (n,) the number of rounds in which the user sent the item
    clues: Sequence[Ints]  # each (n,), sums of an attacker's notes

    @property
    def users(self) -> Longs:
        return self.keys // self.server.n_items


@dataclass(frozen=True, slots=True)
class Claims:
    """An attacker's scores. A score above zero claims that the user liked the item."""

    keys: Longs  # (n,) ascending
    scores: Longs  # (n,)
    elsewhere: Longs  # (users,) the score of every item without a key

    @property
    def made(self) -> Bools:
        made: Bools = self.scores > 0
        return made


@dataclass(frozen=True, slots=True)
class Attacker:
    """Two pure functions: notes on a round's rows, and claims from the sums of notes."""

    name: str
    uses: str
    """A short description for the report."""
    claim: Callable[[Evidence], Claims]
    note: Callable[[ServerKnowledge, RoundFeatures], Sequence[Ints]] = lambda server, features: ()
    """`n_notes` integers for every row; they are summed over rounds."""
    n_notes: int = 0
    counts: bool = False
    """Whether it uses which items were sent at all."""


class Collector(Protocol):
    """Receives what a server observes, round by round, and claims something about some users."""

    @property
    def uses(self) -> Mapping[str, str]:
        """What each of its attackers uses."""
        ...

    def add(self, observation: Observation) -> None: ...

    def claims(self) -> dict[str, Claims]:
        """The claims of every attacker after the rounds so far."""
        ...

    @property
    def observed(self) -> Bools:
        """(users,) whom the claims are about."""
        ...


class EvidenceCollector:
    """Adds up the notes of some attackers over rounds; memory grows with the rows sent."""

    def __init__(self, server: ServerKnowledge, attackers: Sequence[Attacker]) -> None:
        self._server = server
        self._attackers = tuple(attackers)
        self._rounds = np.zeros(server.n_users, np.int64)
        self._draws = np.zeros(server.n_users, np.int64)
        self._lines = np.zeros((server.n_users, server.n_factors))
        self._ledger = Ledger(1 + sum(a.n_notes for a in self._attackers))

    @property
    def uses(self) -> Mapping[str, str]:
        return {attacker.name: attacker.uses for attacker in self._attackers}

    def add(self, observation: Observation) -> None:
        for part in observation.parts():
            self._add(part)

    def _add(self, part: Observation) -> None:
        server = self._server
        self._rounds[part.users] += 1
        self._draws[part.users] += part.samples
        keys = part.users[part.owners].astype(np.int64) * server.n_items + part.items
        notes = self._notes(part)
        columns = [np.ones(len(keys), np.int32), *notes]
        if not any(attacker.counts for attacker in self._attackers):
            # FCF sends the rows of all items; storing those without a clue would waste memory.
            has_clue = np.flatnonzero(np.logical_or.reduce([column != 0 for column in notes]))
            keys = keys[has_clue]
            columns = [column[has_clue] for column in columns]
        self._ledger.add(keys, columns)

    def _notes(self, part: Observation) -> list[Ints]:
        if not any(attacker.n_notes for attacker in self._attackers):
            return []  # Item ids need no rows.
        server = self._server
        features = extract_features(part, server.n_factors, self._lines[part.users])
        self._lines[part.users] = features.lines
        return [
            column for attacker in self._attackers for column in attacker.note(server, features)
        ]

    def claims(self) -> dict[str, Claims]:
        keys, (times, *notes) = self._ledger.totals()
        claims = {}
        for attacker in self._attackers:
            own = notes[: attacker.n_notes]
            notes = notes[attacker.n_notes :]
            evidence = Evidence(
                self._server, self._rounds.copy(), self._draws.copy(), keys, times, own
            )
            claims[attacker.name] = attacker.claim(evidence)
        return claims

    @property
    def observed(self) -> Bools:
        """(users,) who sent rows so far."""
        observed: Bools = self._rounds > 0
        return observed
