"""Who belongs to a federation, and which node hosts them. The first is settled at its beginning; nodes come and go.

A person stays with the node that brought them. Where nodes show keys, nobody else can speak for that person; where they do not, a node
that was started again has another name, and the last who says to host a person is believed.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from coterie.deployment.enrolment import Members, Roster, Terms
from coterie.deployment.node_service import beginning
from coterie.deployment.server_config import ServerConfig
from coterie.errors import NoQuorum
from coterie.experiments import folder as disk
from coterie.federated.wire import Malformed
from coterie.types import Ints

MEMBERS = "members.json"
HOMES = "homes.json"
STATUS = "status.json"
BYTES = "bytes_up", "bytes_down", "bytes_beside", "unanswered"
PAUSE = 0.05
AGAIN = 5
NOTHING: Mapping[str, bytes] = {}
T = TypeVar("T")


class Nodes(Protocol):
    """Those who joined, and a way to reach them."""

    @property
    def keyed(self) -> bool:
        """Whether a node's name is its own for good, since it shows a key."""

    def joined(self) -> Sequence[str]:
        """The names of those who are there now."""

    def send(self, kind: str, out: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """What came back from whom before the deadline; errors are no answers."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Nodes with a count of what travels."""

    nodes: Nodes
    counts: Counter[str] = field(default_factory=Counter)
    """Bytes of training, up and down; those beside it; answers that never came."""
    refused: Counter[str] = field(default_factory=Counter)
    """What nodes said about themselves and was nonsense."""

    @classmethod
    def since(cls, nodes: Nodes, folder: Path) -> Counted:
        """With what was counted before the server was started again."""
        before = status(folder)
        return cls(nodes, Counter({key: before.get(key, 0) for key in BYTES}))

    def send(
        self, kind: str, out: Mapping[str, bytes], before: Mapping[str, bytes] = NOTHING
    ) -> Mapping[str, bytes]:
        """To those who are there; what stands before a message is none of it."""
        there = set(self.nodes.joined())
        sent = {name: before.get(name, b"") + data for name, data in out.items() if name in there}
        back = self.nodes.send(kind, sent) if sent else {}
        up, down = ("bytes_up", "bytes_down") if kind == "ask" else ("bytes_beside", "bytes_beside")
        self.counts[down] += sum(len(out[name]) for name in sent)
        self.counts["bytes_beside"] += sum(len(before.get(name, b"")) for name in sent)
        self.counts[up] += sum(map(len, back.values()))
        self.counts["unanswered"] += len(out) - len(back)
        return back

    def heard(
        self, kind: str, back: Mapping[str, bytes], read: Callable[[str, bytes], T]
    ) -> dict[str, T]:
        """What answers say; nonsense is refused and counted."""
        found = {}
        for name, data in back.items():
            try:
                found[name] = read(name, data)
            except Malformed:
                self.refused[f"malformed {kind}"] += 1
        return found


@dataclass(slots=True)
class Membership:
    folder: Path
    terms: Terms
    counted: Counted
    quorum: float
    members: Members
    names: list[str]
    """Of nodes, by number."""
    homes: Ints  # (people,) the number of a node; -1 of a person whose node has not come since the server was started
    greeted: set[str] = field(default_factory=set)
    before: dict[str, bytes] = field(default_factory=dict)
    """What nodes have to be told with the next message."""
    silent: dict[str, int] = field(default_factory=dict)
    """Those who did not answer when they were greeted, and for how many rounds they are left alone: each takes a deadline."""

    @classmethod
    def taken(
        cls, folder: Path, terms: Terms, counted: Counted, service: ServerConfig
    ) -> Membership:
        """As many nodes as are needed to begin; of a federation that goes on, with the people it had."""
        if (folder / MEMBERS).exists():
            begun = cls.of(
                folder, terms, counted, service, Members.from_json((folder / MEMBERS).read_text())
            )
            _wait(folder, service, lambda: len(begun.greet()))
            until = time.monotonic() + service.round_seconds
            before = len(set(begun.brought().values()))
            while (
                len(begun.greet()) < before and time.monotonic() < until
            ):  # as many as before may be on their way
                time.sleep(PAUSE)
            return begun
        rolls: dict[str, Roster] = {}

        def come() -> int:
            there = counted.nodes.joined()
            for gone in rolls.keys() - set(there):
                del rolls[gone]
            if len(there) < service.least_nodes:
                return len(there)
            for name, said in enrolled(
                terms, counted, [name for name in there if name not in rolls]
            ).items():
                admit(rolls, name, said, counted)
            return len(rolls)

        _wait(folder, service, come)
        begun = cls.of(folder, terms, counted, service, Members.of(rolls))
        begun.settle(rolls)
        disk.write_text(
            folder, MEMBERS, begun.members.to_json()
        )  # when it is known who brought whom
        return begun

    @classmethod
    def of(
        cls, folder: Path, terms: Terms, counted: Counted, service: ServerConfig, members: Members
    ) -> Membership:
        return cls(
            folder,
            terms,
            counted,
            service.quorum,
            members,
            [],
            np.full(len(members.people), -1, np.int32),
        )

    def greet(self) -> set[str]:
        """Nodes that came since the last time are asked whom they host; returns all that are there."""
        there = set(self.counted.nodes.joined())
        self.greeted &= there  # who left and comes back may have been started anew
        self.silent = {
            name: left - 1 for name, left in self.silent.items() if name in there and left
        }
        if new := sorted(there - self.greeted - self.silent.keys()):
            self.settle(enrolled(self.terms, self.counted, new))
            self.silent |= dict.fromkeys(set(new) - self.greeted, AGAIN)
        return self.greeted

    def settle(self, rolls: Mapping[str, Roster]) -> None:
        """Give people their numbers, and nodes their people."""
        for name, said in rolls.items():
            told = self.members.told(self._own(name, said.people))
            if name not in self.names:
                self.names.append(name)
            self.homes[list(told.numbers.values())] = self.names.index(name)
            self.before[name] = beginning(self.terms, told)
            self.greeted.add(name)
            self._write()

    def hosted(self) -> dict[str, int]:
        """How many people every node hosts."""
        return {name: int((self.homes == number).sum()) for number, name in enumerate(self.names)}

    def send(self, kind: str, out: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """What nodes answer, who hear how it begins until they did."""
        back = self.counted.send(kind, out, self.before)
        for name in back:
            self.before.pop(name, None)
        return back

    def _own(self, name: str, people: Iterable[str]) -> list[str]:
        """Those whom this node may speak for."""
        if not self.counted.nodes.keyed:
            return list(people)
        brought = self.brought()
        own = []
        for person in people:
            if brought.get(person, name) == name:
                own.append(person)
            else:
                self.counted.refused["another node's person"] += 1
        return own

    def brought(self) -> dict[str, str]:
        """Who brought whom, since the federation began."""
        place = self.folder / HOMES
        known: dict[str, str] = json.loads(place.read_text()) if place.exists() else {}
        return known

    def _write(self) -> None:
        known = self.brought()
        known |= {
            p: self.names[n]
            for p, n in zip(self.members.people, self.homes.tolist(), strict=True)
            if n >= 0
        }
        disk.write_text(self.folder, HOMES, json.dumps(known))

    def ask(self, out: Mapping[int, bytes]) -> dict[int, bytes]:
        """Nodes by their numbers; too few answers are an error, never a round of nobody."""
        if not (self.homes >= 0).any():
            raise NoQuorum(
                "nobody who belongs to the federation is on a node that is there. Start their nodes, and serve again."
            )
        back = self.send("ask", {self.names[number]: data for number, data in out.items()})
        if len(back) < self.quorum * len(out):
            raise NoQuorum(
                f"{len(back)} of {len(out)} nodes answered before the deadline; expected at least {self.quorum:.0%} of them. "
                "Start those that are missing and serve again: the federation goes on after the last round that was written down."
            )
        return {self.names.index(name): data for name, data in back.items()}


def admit(rolls: dict[str, Roster], name: str, said: Roster, counted: Counted) -> None:
    """Everybody is on one node. With keys, who came first hosts a person; without, a node with just the same people was started again."""
    rivals = [
        other for other, known in rolls.items() if not set(known.people).isdisjoint(said.people)
    ]
    if rivals and counted.nodes.keyed:
        counted.refused["another node's person"] += 1
        return
    for other in rivals:
        if set(rolls[other].people) == set(said.people):
            del rolls[other]
    rolls[name] = said


def enrolled(terms: Terms, counted: Counted, names: Iterable[str]) -> dict[str, Roster]:
    """Whom these nodes host, of those that say so."""
    back = counted.send("enrol", dict.fromkeys(names, terms.to_json().encode()))
    return counted.heard("roll", back, lambda name, data: Roster.heard(data))


def status(folder: Path) -> dict[str, Any]:
    """What was told last; nothing where nothing was."""
    place = folder / STATUS
    found: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {}
    return found


def _wait(folder: Path, service: ServerConfig, come: Callable[[], int]) -> None:
    until = time.monotonic() + service.wait_seconds
    while (found := come()) < service.least_nodes:
        about = status(folder) | {
            "state": "waiting",
            "nodes": found,
            "least_nodes": service.least_nodes,
        }
        disk.write_text(folder, STATUS, json.dumps(about) + "\n")
        if time.monotonic() > until:
            raise NoQuorum(
                f"{found} of {service.least_nodes} nodes joined within {service.wait_seconds:g} seconds; expected all of them. "
                "Start the others (coterie join), or lower least_nodes, and serve again."
            )
        time.sleep(PAUSE)
