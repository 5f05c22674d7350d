"""What a server has on its users after some rounds: clues by user and item, which attackers turn into claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.attacks.eavesdropper import Overheard
from coterie.attacks.features import Reading, read
from coterie.attacks.ledger import Ledger
from coterie.types import Bools, Ints, Longs


@dataclass(frozen=True, slots=True)
class Server:
    """What a server knows before anybody sends anything. Nobody's disclosure rate is among it, nor how long a history is."""

    n_users: int
    n_items: int
    n_factors: int
    reg_positive: float = 0.0
    reg_negative: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """All rounds so far. A key is a user and an item that the user sent at least once; where no attacker counts, with a clue."""

    server: Server
    rounds_heard: Longs  # (users,) in how many rounds each sent something
    draws: Longs  # (users,) how many triples that were together
    keys: Longs  # (n,) user * n_items + item, ascending
    times: Ints  # (n,) in how many rounds the user sent the item
    clues: Sequence[Ints]  # each (n,), sums of what an attacker noted down

    @property
    def users(self) -> Longs:
        return self.keys // self.server.n_items


@dataclass(frozen=True, slots=True)
class Claims:
    """What an attacker believes: a user has liked what scores above zero."""

    keys: Longs  # (n,) ascending
    scores: Longs  # (n,)
    elsewhere: Longs  # (users,) the score of every item without a key

    @property
    def made(self) -> Bools:
        made: Bools = self.scores > 0
        return made


@dataclass(frozen=True, slots=True)
class Attacker:
    """Two pure functions: what it notes down of a round's rows, and what it makes of its notes."""

    name: str
    uses: str
    """In a few words, for the report."""
    claim: Callable[[Evidence], Claims]
    note: Callable[[Server, Reading], Sequence[Ints]] = lambda server, reading: ()
    """Whole numbers for every row, which are summed over rounds: so many of them."""
    n_notes: int = 0
    counts: bool = False
    """Whether it uses which items were sent at all."""


class Dossier:
    """Hears rounds and adds up the clues of some attackers; memory follows the rows that were sent."""

    def __init__(self, server: Server, attackers: Sequence[Attacker]) -> None:
        self._server = server
        self._attackers = tuple(attackers)
        self._rounds = np.zeros(server.n_users, np.int64)
        self._draws = np.zeros(server.n_users, np.int64)
        self._lines = np.zeros((server.n_users, server.n_factors))
        self._ledger = Ledger(1 + sum(a.n_notes for a in self._attackers))

    def hear(self, heard: Overheard) -> None:
        for part in heard.parts():
            self._hear(part)

    def _hear(self, heard: Overheard) -> None:
        reading = read(heard, self._server.n_factors, self._lines[heard.users])
        self._lines[heard.users] = reading.lines
        self._rounds[heard.users] += 1
        self._draws[heard.users] += heard.samples
        keys = heard.users[reading.owners].astype(np.int64) * self._server.n_items + heard.items
        notes = [
            numbers
            for attacker in self._attackers
            for numbers in attacker.note(self._server, reading)
        ]
        columns = [np.ones(len(keys), np.int32), *notes]
        if not any(
            attacker.counts for attacker in self._attackers
        ):  # FCF sends everything: most of it is no clue
            telling = np.flatnonzero(np.logical_or.reduce([numbers != 0 for numbers in notes]))
            keys = keys[telling]
            columns = [numbers[telling] for numbers in columns]
        self._ledger.add(keys, columns)

    def claims(self) -> dict[str, Claims]:
        """What every attacker claims by now."""
        keys, (times, *notes) = self._ledger.settled()
        found = {}
        for attacker in self._attackers:
            mine = notes[: attacker.n_notes]
            notes = notes[attacker.n_notes :]
            evidence = Evidence(
                self._server, self._rounds.copy(), self._draws.copy(), keys, times, mine
            )
            found[attacker.name] = attacker.claim(evidence)
        return found

    @property
    def heard(self) -> Bools:
        """Who sent anything so far."""
        heard: Bools = self._rounds > 0
        return heard
