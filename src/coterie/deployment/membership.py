"""The users of a federation and the nodes that host them.

Users are fixed when the federation begins; nodes may leave and return. A user stays with the node
that enrolled it. If nodes authenticate with keys, no other node can host that user. If they do not,
a restarted node has a new name, and the last node that lists a user hosts it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from coterie.deployment.enrolment import EnrolledUsers, FederationTerms, Roster
from coterie.deployment.node_service import ENROL, TRAIN, make_preamble
from coterie.deployment.server_config import ServerConfig
from coterie.deployment.traffic import STATUS, NodeTraffic, read_status
from coterie.errors import NoQuorum
from coterie.experiments import run_folder
from coterie.types import Ints

MEMBERS = "members.json"
HOSTS = "homes.json"
PAUSE = 0.05
PATIENCE = 2.0
"""Seconds until a round without a quorum is tried again, at the latest."""
ENROL_SECONDS = 10.0
"""Time for the roster of a node that joins a running federation: others wait for it."""
LONGEST_SILENCE = 64
"""Rounds after which a node that does not answer is tried again, at the latest."""
FOREIGN_USER = "user of another node"
"""Why a roster entry is refused when nodes authenticate with keys."""


@dataclass(slots=True)
class Silence:
    """A node that did not answer. Each try may cost a whole deadline, so pauses grow."""

    misses: int = 0
    rounds_left: int = 0
    """Rounds in which it is not tried."""

    def miss(self) -> None:
        self.misses += 1
        self.rounds_left = min(2 ** (self.misses - 1), LONGEST_SILENCE) - 1


@dataclass(slots=True)
class Membership:
    folder: Path
    terms: FederationTerms
    traffic: NodeTraffic
    quorum: float
    members: EnrolledUsers
    names: list[str]
    """Node index -> node name."""
    hosts: Ints  # (users,) node index; -1 while the user's node has not joined since the start
    enrolled: dict[str, int] = field(default_factory=dict)
    """The nodes whose rosters are registered, with the number of their connection."""
    preambles: dict[str, bytes] = field(default_factory=dict)
    """Node name -> what has to precede the next message to it."""
    silent: dict[str, Silence] = field(default_factory=dict)
    """The nodes that are set aside until they answer."""

    @classmethod
    def establish(
        cls, folder: Path, terms: FederationTerms, traffic: NodeTraffic, service: ServerConfig
    ) -> Membership:
        """Wait for enough nodes. A resumed federation keeps the users that it began with."""
        if (folder / MEMBERS).exists():
            members = EnrolledUsers.from_json((folder / MEMBERS).read_text())
            resumed = cls._of(folder, terms, traffic, service, members)
            resumed._wait_for_return(service)
            return resumed
        rosters: dict[str, Roster] = {}

        def collect() -> int:
            joined = traffic.nodes.joined()
            for left in rosters.keys() - joined.keys():
                del rosters[left]
            if len(joined) < service.least_nodes:
                return len(joined)
            new = [name for name in joined if name not in rosters]
            for name, roster in request_rosters(terms, traffic, new).items():
                admit(rosters, name, roster, traffic)
            return len(rosters)

        _wait(folder, service, collect)
        begun = cls._of(folder, terms, traffic, service, EnrolledUsers.of(rosters))
        begun.register(rosters)
        # The file marks the federation as begun, so the hosts must be on disk before it.
        run_folder.write_text(folder, MEMBERS, begun.members.to_json())
        return begun

    @classmethod
    def _of(
        cls,
        folder: Path,
        terms: FederationTerms,
        traffic: NodeTraffic,
        service: ServerConfig,
        members: EnrolledUsers,
    ) -> Membership:
        hosts = np.full(len(members.users), -1, np.int32)
        return cls(folder, terms, traffic, service.quorum, members, names=[], hosts=hosts)

    def _wait_for_return(self, service: ServerConfig) -> None:
        """Wait for the least number of nodes, then up to a round's time for the earlier ones."""
        _wait(self.folder, service, lambda: len(self.enrol_new_nodes()))
        until = time.monotonic() + service.round_seconds
        n_before = len(set(self.enrolling_nodes().values()))
        while len(self.enrol_new_nodes()) < n_before and time.monotonic() < until:
            time.sleep(PAUSE)

    def enrol_new_nodes(self, everybody: bool = False) -> Collection[str]:
        """Request rosters from nodes that joined since the last call; returns all enrolled ones.

        Silent nodes are tried less and less often, unless `everybody` is to be tried.
        """
        joined = self.traffic.nodes.joined()
        # A node that connects anew may have been restarted, so it enrols again.
        self.enrolled = {
            name: number for name, number in self.enrolled.items() if joined.get(name) == number
        }
        self.silent = {name: one for name, one in self.silent.items() if name in joined}
        resting = set()
        for name, silence in self.silent.items():
            if silence.rounds_left and not everybody:
                silence.rounds_left -= 1
                resting.add(name)
        if new := sorted(joined.keys() - self.enrolled.keys() - resting):
            self.register(request_rosters(self.terms, self.traffic, new, ENROL_SECONDS))
            self._set_aside(set(new) - self.enrolled.keys())
        return self.enrolled

    def wait_for_change(self, until: float) -> None:
        """Wait until a node connects, or a little while: silent nodes may answer again."""
        joined = self.traffic.nodes.joined()
        soon = min(until, time.monotonic() + PATIENCE)
        while time.monotonic() < soon and self.traffic.nodes.joined() == joined:
            time.sleep(PAUSE)

    def _set_aside(self, names: Iterable[str]) -> None:
        """Nodes that did not answer enrol again before they take part."""
        for name in names:
            self.enrolled.pop(name, None)
            self.silent.setdefault(name, Silence()).miss()

    def register(self, rosters: Mapping[str, Roster]) -> None:
        """Record which node hosts which users, and prepare the preambles of the nodes."""
        if not rosters:
            return
        joined = self.traffic.nodes.joined()
        enrolled_by = self.enrolling_nodes()
        terms = self.terms.to_json()
        index = self.members.index()
        place = {name: node for node, name in enumerate(self.names)}
        for name, roster in rosters.items():
            own = self._own_users(name, roster.users, enrolled_by)
            indices = self.members.indices_for(own, index)
            if name not in place:
                place[name] = len(self.names)
                self.names.append(name)
            self.hosts[list(indices.numbers.values())] = place[name]
            enrolled_by |= dict.fromkeys(indices.numbers, name)
            self.preambles[name] = make_preamble(terms, indices)
            self.enrolled[name] = joined.get(name, 0)
        run_folder.write_text(self.folder, HOSTS, json.dumps(enrolled_by))

    def users_per_node(self) -> dict[str, int]:
        return {name: int((self.hosts == node).sum()) for node, name in enumerate(self.names)}

    def send(self, kind: str, out: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Send to enrolled nodes; a preamble is repeated until the node has replied once."""
        present = {name: data for name, data in out.items() if name in self.enrolled}
        self.traffic.counts["unanswered"] += len(out) - len(present)
        replies = self.traffic.send(kind, present, self.preambles)
        for name in replies:
            self.preambles.pop(name, None)
            self.silent.pop(name, None)
        self._set_aside(present.keys() - replies.keys())
        return replies

    def _own_users(
        self, name: str, users: Iterable[str], enrolled_by: Mapping[str, str]
    ) -> list[str]:
        """The users that this node may host."""
        if not self.traffic.nodes.keyed:
            return list(users)
        own = []
        for user in users:
            if enrolled_by.get(user, name) == name:
                own.append(user)
            else:
                self.traffic.refused[FOREIGN_USER] += 1
        return own

    def enrolling_nodes(self) -> dict[str, str]:
        """User id -> the node that enrolled the user, since the federation began."""
        path = self.folder / HOSTS
        known: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return known

    def train(self, out: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send an exchange to nodes, by node index. Too few replies are an error."""
        if not (self.hosts >= 0).any():
            raise NoQuorum(
                "no connected node hosts a user of the federation; expected at least one. "
                "Start the users' nodes, and serve again."
            )
        replies = self.send(TRAIN, {self.names[node]: data for node, data in out.items()})
        if len(replies) < self.quorum * len(out):
            raise NoQuorum(
                f"{len(replies)} of {len(out)} nodes answered before the deadline; expected at "
                f"least {self.quorum:.0%} of them. Start the missing nodes, and serve again: the "
                "federation resumes after its last committed round."
            )
        place = {name: node for node, name in enumerate(self.names)}
        return {place[name]: data for name, data in replies.items()}


def admit(rosters: dict[str, Roster], name: str, roster: Roster, traffic: NodeTraffic) -> None:
    """Add a roster, so that each user is on one node.

    With keys, the first node that lists a user hosts it. Without keys, a node with exactly the same
    users is the same node after a restart.
    """
    rivals = [
        other for other, known in rosters.items() if not set(known.users).isdisjoint(roster.users)
    ]
    if rivals and traffic.nodes.keyed:
        traffic.refused[FOREIGN_USER] += 1
        return
    for other in rivals:
        if set(rosters[other].users) == set(roster.users):
            del rosters[other]
    rosters[name] = roster


def request_rosters(
    terms: FederationTerms,
    traffic: NodeTraffic,
    names: Iterable[str],
    seconds: float | None = None,
) -> dict[str, Roster]:
    """The rosters of these nodes; nodes without a valid reply are left out."""
    out = dict.fromkeys(names, terms.to_json().encode())
    replies = traffic.send(ENROL, out, seconds=seconds)
    return traffic.parse("roster", replies, lambda name, data: Roster.parse(data))


def _wait(folder: Path, service: ServerConfig, count_nodes: Callable[[], int]) -> None:
    """Wait until enough nodes have joined, and keep the status up to date."""
    until = time.monotonic() + service.wait_seconds
    while (n_nodes := count_nodes()) < service.least_nodes:
        status = read_status(folder) | {
            "state": "waiting",
            "nodes": n_nodes,
            "least_nodes": service.least_nodes,
        }
        run_folder.write_text(folder, STATUS, json.dumps(status) + "\n")
        if time.monotonic() > until:
            raise NoQuorum(
                f"{n_nodes} of {service.least_nodes} nodes joined within "
                f"{service.wait_seconds:g} seconds; expected all of them. "
                "Start the others (coterie join), or lower least_nodes, and serve again."
            )
        time.sleep(PAUSE)
