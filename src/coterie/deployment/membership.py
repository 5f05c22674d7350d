"""The users of a federation and the nodes that host them.

Nodes may leave and return. Users are fixed when the federation begins; in an open federation new
ones join between rounds. A user stays with the node that enrolled it. If nodes authenticate with
keys, no other node can host that user, unless it moves. If they do not, a restarted node has a new
name, and the last node that lists a user hosts it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.core.counted import counted
from coterie.deployment.enrolment import EnrolledUsers, FederationTerms, Roster
from coterie.deployment.hosting import FOREIGN_USER, Hosting, describe_claim
from coterie.deployment.node_limits import NodeLimits
from coterie.deployment.node_service import ENROL, TRAIN, make_preamble
from coterie.deployment.node_snapshots import can_return_to
from coterie.deployment.rollback_log import RollbackLog
from coterie.deployment.server_config import ServerConfig
from coterie.deployment.server_folder import read_message
from coterie.deployment.snapshot_plan import SnapshotPlan
from coterie.deployment.traffic import STATUS, NodeTraffic, read_status
from coterie.errors import NoQuorum
from coterie.experiments import run_folder
from coterie.types import Bools, Ints

MEMBERS = "members.json"
PAUSE = 0.05
PATIENCE = 2.0
"""Seconds until a round without a quorum is tried again, at the latest."""
ENROL_SECONDS = 10.0
"""Time for the roster of a node that joins a running federation: others wait for it."""
NO_SNAPSHOT = "no snapshot of the round that the run returned to"
NOT_FOLLOWED = "a roll-back that the node's policy does not follow"
OTHER_SIGNING_KEY = "user with another signing key"
"""Why users of a roster do not take part, in the counts of refusals."""
NOTHING: Mapping[str, str] = {}
LONGEST_SILENCE = 64
"""Rounds after which a node that does not answer is tried again, at the latest."""


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
    is_open: bool
    """Whether new users may join."""
    members: EnrolledUsers
    hosting: Hosting
    hosts: Ints  # (users,) node index; -1 while the user's node has not joined since the start
    limits: NodeLimits
    """What nodes may claim."""
    plan: SnapshotPlan
    """After which rounds nodes take snapshots, too."""
    log: RollbackLog
    names: list[str] = field(default_factory=list)
    """Node index -> node name."""
    enrolled: dict[str, int] = field(default_factory=dict)
    """The nodes whose rosters are registered, with the number of their connection."""
    preambles: dict[str, bytes] = field(default_factory=dict)
    """Node name -> what has to precede the next message to it."""
    informed: set[str] = field(default_factory=set)
    """The enrolled nodes that have the terms."""
    silent: dict[str, Silence] = field(default_factory=dict)
    """The nodes that are set aside until they answer."""
    indexed: tuple[EnrolledUsers | None, Mapping[str, int]] = (None, {})
    """The users for which `index` was computed, and the index."""

    @classmethod
    def establish(
        cls,
        folder: Path,
        terms: FederationTerms,
        traffic: NodeTraffic,
        service: ServerConfig,
        warn: Callable[[str], None] = lambda text: None,
    ) -> Membership:
        """Wait for enough nodes. A resumed federation keeps the users that it began with.

        `warn` shows what is refused of nodes meanwhile.
        """
        if (folder / MEMBERS).exists():
            members = read_message(folder, MEMBERS, EnrolledUsers)
            resumed = cls._of(folder, terms, traffic, service, members)
            resumed._wait_for_return(service, warn)
            return resumed
        rosters: dict[str, Roster] = {}
        tried: dict[str, float] = {}

        def collect() -> int:
            joined = traffic.nodes.joined()
            for left in rosters.keys() - joined.keys():
                del rosters[left]
            if len(joined) < service.least_nodes:
                return len(joined)
            now = time.monotonic()
            new = [
                name
                for name in joined
                if name not in rosters and now > tried.get(name, -PATIENCE) + PATIENCE
            ]
            tried.update(dict.fromkeys(new, now))
            for name, roster in request_rosters(terms, traffic, new, service.limits).items():
                admit(rosters, name, roster, traffic)
            return sum(bool(roster.users) for roster in rosters.values())

        _wait(folder, service, traffic, collect, warn)
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
        return cls(
            folder,
            terms,
            traffic,
            service.quorum,
            service.open,
            members,
            Hosting.read(folder, traffic, terms.run),
            np.full(len(members.users), -1, np.int32),
            service.limits,
            service.snapshot_plan(terms),
            RollbackLog.read(folder),
        )

    def _wait_for_return(self, service: ServerConfig, warn: Callable[[str], None]) -> None:
        """Wait for the least number of nodes, then up to a round's time for the earlier ones."""
        _wait(self.folder, service, self.traffic, lambda: len(self.enrol_new_nodes()), warn)
        until = time.monotonic() + service.round_seconds
        n_before = len(set(self.hosting.nodes.values()) - self.log.quarantined)
        while len(self.enrol_new_nodes()) < n_before and time.monotonic() < until:
            time.sleep(PAUSE)

    def enrol_new_nodes(self, final: bool = False) -> Collection[str]:
        """Request rosters from nodes that joined since the last call; returns all enrolled ones.

        Silent nodes are tried less and less often. After the `final` round all are tried, and
        nobody joins any more.
        """
        joined = self.traffic.nodes.joined()
        # A node that connects anew may have been restarted, so it enrols again.
        self.enrolled = {
            name: number for name, number in self.enrolled.items() if joined.get(name) == number
        }
        self.silent = {name: one for name, one in self.silent.items() if name in joined}
        resting = set()
        for name, silence in self.silent.items():
            if silence.rounds_left and not final:
                silence.rounds_left -= 1
                resting.add(name)
        if new := sorted(joined.keys() - self.enrolled.keys() - resting - self.log.quarantined):
            rosters = request_rosters(self.terms, self.traffic, new, self.limits, ENROL_SECONDS)
            self.register(rosters, admit=self.is_open and not final)
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
            self.informed.discard(name)
            self.silent.setdefault(name, Silence()).miss()

    def register(self, rosters: Mapping[str, Roster], admit: bool = False) -> None:
        """Record which node hosts which users, and prepare the preambles of the nodes.

        Users who are not enrolled join if they are to be admitted.
        """
        rosters = {
            name: roster
            for name, roster in rosters.items()
            if not self.hosting.refuse_quarantined(name, roster) and self._can_follow(name, roster)
        }
        if not rosters:
            return
        joined = self.traffic.nodes.joined()
        before = self.members
        forgotten: dict[str, Sequence[int]] = {}
        for name, roster in rosters.items():
            forgotten[name] = self._update_users(name, roster, admit)
            self.enrolled[name] = joined.get(name, 0)
            self.informed.discard(name)
        self.hosting.write()
        if self.members is not before:
            # The hosts are on disk before the users, as when a federation begins.
            run_folder.write_text(self.folder, MEMBERS, self.members.to_json())
        self._prepare_preambles(rosters if self.members is before else self.enrolled, forgotten)

    def _can_follow(self, name: str, roster: Roster) -> bool:
        """Whether a node follows the roll-backs of the run, and has the private state to do so.

        Another state would change the model, so a node without it stays out.
        """
        n = len(self.log.rounds)
        if roster.most_rollbacks is not None and roster.rollbacks < n > roster.most_rollbacks:
            self.traffic.refuse(
                NOT_FOLLOWED,
                name,
                detail=f"its policy follows {counted(roster.most_rollbacks, 'roll-back')} of a "
                f"run, and this one has {n:,}; expected no more. Its users take no part. Ask its "
                "owner to raise `rollbacks` in its policy, or begin a new run",
            )
            return False
        to = min(self.log.rounds[roster.rollbacks :], default=None)
        stored = algorithm(self.terms.experiment.choice.algorithm).state.private
        if to is None or not stored:
            return True
        if can_return_to(to, roster.snapshots, roster.unchanged_since):
            return True
        listed = ", ".join(f"{n:,}" for n in sorted(roster.snapshots)) or "none"
        self.traffic.refuse(
            NO_SNAPSHOT,
            name,
            detail=f"it has no snapshot of round {to:,}, to which the run returned, and those of "
            f"rounds {listed}; expected the private state of that time. Its users take no part. "
            "Restore its store from a backup of that time, or begin a new run",
        )
        return False

    def _update_users(self, name: str, roster: Roster, admit: bool) -> list[int]:
        """Erase, move, admit and host the users of a roster; returns the indices of erased ones."""
        before = self.members
        hosting = self.hosting
        forgotten = hosting.erase(name, roster, before)
        if forgotten:
            self.hosts[forgotten] = -1
            self.members = self.members.without(forgotten)
        hosting.move_by_permits(name, roster)
        own = set(hosting.own_users(name, roster.users)) - self._with_other_keys(name, roster)
        if admit:
            self.members = self.members.and_new(roster.select(own.__contains__))
        index = self.index
        hosted = [user for user in roster.users if user in own and user in index]
        hosting.nodes |= dict.fromkeys(hosted, name)
        if self.members is not before:
            nodes = set(hosting.nodes.values())
            self.members = self.members.with_positives(name, roster.positives, nodes)
            new = len(self.members.users) - len(self.hosts)
            self.hosts = np.append(self.hosts, np.full(new, -1, np.int32))
        self.hosts[[index[user] for user in hosted]] = self._place_of(name)
        return forgotten

    def _with_other_keys(self, name: str, roster: Roster) -> set[str]:
        """Users whose signing key is not the one with which they enrolled.

        Others pinned that key, so that a user who lost it cannot take part before the next
        federation.
        """
        known = self.members.signing_keys
        if not known or not roster.signing_keys:
            return set()
        other = {
            user
            for user, key in zip(roster.users, roster.signing_keys, strict=True)
            if user in self.index and known[self.index[user]] != key
        }
        self.traffic.refuse(OTHER_SIGNING_KEY, name, len(other))
        return other

    @property
    def index(self) -> Mapping[str, int]:
        """User id -> index."""
        if self.indexed[0] is not self.members:
            self.indexed = (self.members, self.members.index())
        return self.indexed[1]

    def _place_of(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def _prepare_preambles(
        self, names: Iterable[str], forgotten: Mapping[str, Sequence[int]]
    ) -> None:
        """What precedes the next message: the terms, unless a node has them, and the users."""
        terms = self.terms.to_json()
        users_of: dict[str, list[str]] = {name: [] for name in names}
        for user, name in self.hosting.nodes.items():
            if name in users_of:
                users_of[name].append(user)
        for name, users in users_of.items():
            indices = self.members.indices_for(users, self.index, forgotten.get(name, ()))
            indices = replace(
                indices,
                node=name if self.traffic.nodes.keyed else "",
                snapshot_every=self.plan.every,
                snapshots=self.plan.kept,
                rollbacks=self.log.rounds,
            )
            self.preambles[name] = make_preamble("" if name in self.informed else terms, indices)

    def move_approved(self, moves: Mapping[str, str]) -> None:
        """Move users, by id, to other nodes, as the owner of the server approved."""
        self.hosts[[self.index[user] for user in moves]] = -1
        self.hosting.move_approved(moves)
        # Their new nodes enrol again, and so learn which users they host.
        for name in set(moves.values()):
            self.enrolled.pop(name, None)

    def users_per_node(self) -> dict[str, int]:
        return {name: int((self.hosts == node).sum()) for node, name in enumerate(self.names)}

    def reachable_users(self) -> Bools | None:
        """(users,) whose node is enrolled. None if too few nodes are for a quorum: a round then
        waits for the others.
        """
        enrolled = np.array([name in self.enrolled for name in self.names], bool)
        hosting = np.unique(self.hosts[self.hosts >= 0])
        if enrolled[hosting].sum() < self.quorum * len(hosting):
            return None
        reachable: Bools = np.isin(self.hosts, np.flatnonzero(enrolled))
        return reachable

    def send(self, kind: str, out: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Send to enrolled nodes; a preamble is repeated until the node has replied once."""
        present = {name: data for name, data in out.items() if name in self.enrolled}
        self.traffic.counts["unanswered"] += len(out) - len(present)
        replies = self.traffic.send(kind, present, self.preambles)
        for name in replies:
            self.preambles.pop(name, None)
            self.informed.add(name)
            self.silent.pop(name, None)
        self._set_aside(present.keys() - replies.keys())
        return replies

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

    With keys, the first node that lists a user hosts it, and others are without it. Without keys, a
    node with exactly the same users is the same node after a restart.
    """
    if traffic.nodes.keyed:
        taken = {user: other for other, known in rosters.items() for user in known.users}
        foreign = [user for user in roster.users if user in taken]
        if foreign:
            detail = describe_claim(foreign[0], taken[foreign[0]], name, traffic)
            traffic.refuse(FOREIGN_USER, name, len(foreign), detail)
        rosters[name] = roster.select(lambda user: user not in taken)
        return
    rivals = [
        other for other, known in rosters.items() if not set(known.users).isdisjoint(roster.users)
    ]
    for other in rivals:
        if set(rosters[other].users) == set(roster.users):
            del rosters[other]
    rosters[name] = roster


def request_rosters(
    terms: FederationTerms,
    traffic: NodeTraffic,
    names: Iterable[str],
    limits: NodeLimits,
    seconds: float | None = None,
) -> dict[str, Roster]:
    """The rosters of these nodes; nodes without a valid reply are left out."""
    out = dict.fromkeys(names, terms.to_json().encode())
    traffic.nodes.limit_replies(ENROL, {name: limits.roster_bytes(name) for name in out})
    replies = traffic.send(ENROL, out, seconds=seconds)

    def parse(name: str, data: bytes) -> Roster:
        return limits.check(name, Roster.parse(data), len(terms.items))

    return traffic.parse("roster", replies, parse)


def describe_refused(refused: Mapping[str, int], last: Mapping[str, str] = NOTHING) -> str:
    """What was refused of nodes, as sentences; empty if nothing was. `last`: by reason, of whom."""
    if not refused:
        return ""
    counts = ", ".join(f"{reason}: {count:,}" for reason, count in sorted(refused.items()))
    remedy = ""
    if FOREIGN_USER in refused:
        remedy = (
            " Every user id must be on one node only: give nodes ids with prefixes of their own."
        )
    details = "".join(
        f" Last, {last[reason]}." for reason in sorted(refused) if ": " in last.get(reason, "")
    )
    return f"Refused: {counts}.{remedy}{details} "


def _wait(
    folder: Path,
    service: ServerConfig,
    traffic: NodeTraffic,
    count_nodes: Callable[[], int],
    warn: Callable[[str], None],
) -> None:
    """Wait until enough nodes have joined, and keep the status up to date."""
    until = time.monotonic() + service.wait_seconds
    reasons: set[str] = set()
    while True:
        n_nodes = count_nodes()
        # Each reason is shown once: a node that was refused tries again and again.
        if set(traffic.refused) - reasons:
            reasons |= set(traffic.refused)
            warn(describe_refused(traffic.refused, traffic.last_refused).strip())
        if n_nodes >= service.least_nodes:
            return
        status = read_status(folder) | {
            "state": "waiting",
            "nodes": n_nodes,
            "least_nodes": service.least_nodes,
        }
        refused = +traffic.refused
        if refused:
            status |= {"refused": dict(refused), "last_refused": traffic.last_refused}
        run_folder.write_text(folder, STATUS, json.dumps(status) + "\n")
        if time.monotonic() > until:
            raise NoQuorum(
                f"{n_nodes} of {service.least_nodes} nodes joined within "
                f"{service.wait_seconds:g} seconds; expected all of them. "
                f"{describe_refused(refused, traffic.last_refused)}"
                "Start the others (coterie join), or lower least_nodes, and serve again."
            )
        time.sleep(PAUSE)
