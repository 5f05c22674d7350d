"""The messages of enrolment: terms, rosters of nodes, and the user indices that a server assigns.

The server learns user ids (nodes may use pseudonyms), which users have training data, and how many
interactions all users of a node have together. Histories stay in the node's store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Self, cast

import numpy as np
from pydantic import TypeAdapter

from coterie.algorithms.registry import algorithm
from coterie.data.ids import number
from coterie.data.interactions import objects
from coterie.deployment.snapshot_plan import MOST_SNAPSHOTS, SnapshotPlan
from coterie.errors import ConfigError, DataError
from coterie.experiments.config import Experiment
from coterie.federated.federation import (
    AnyFederation,
)
from coterie.federated.wire import Malformed
from coterie.types import Ids, JsonObject, Longs

LOCAL_SPLITS = ("leave-one-out", "temporal", "random")
"""Splits that a node can compute from its own users' interactions."""
MAX_POSITIVES = 1 << 40
"""Upper limit for the interactions of one node."""
MAX_USERS = 1 << 22
"""Upper limit for the users of one node."""
MAX_FEDERATION = 1 << 26
"""Upper limit for the users of a federation, as a node believes it."""
MAX_ID_LENGTH = 256
SIGNING_KEY = re.compile(r"[0-9a-f]{64}")


class JsonMessage:
    """A record of plain values that travels as JSON."""

    def to_json(self) -> str:
        """The fields are plain values, which are not copied: a federation has long lists."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return json.dumps(values, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse and validate; any fault is Malformed."""
        try:
            return cast(Self, _adapter(cls).validate_json(text, strict=True))  # type: ignore[arg-type]
        except ValueError as error:
            raise Malformed(f"not a valid {cls.__name__}: {_first_fault(error)}") from None


def _first_fault(error: ValueError) -> str:
    """The field and the rule of the first fault, of Pydantic's lines about all."""
    lines = [line.strip() for line in str(error).splitlines()[1:3]]
    text = " ".join(line for line in lines if not line.startswith("For further information"))
    return text.partition(" [type=")[0][:200]


@cache
def _adapter(kind: type[object]) -> TypeAdapter[object]:
    return TypeAdapter(kind)


@dataclass(frozen=True, slots=True)
class ItemContent(JsonMessage):
    """What only the server knows about items; titles are public and part of the terms."""

    categories: list[list[str]] | None = None
    bodies: list[str] | None = None


@dataclass(frozen=True, slots=True)
class FederationTerms(JsonMessage):
    """A server's first message: the experiment and the item catalogue."""

    config: JsonObject
    items: list[str]
    run: str = ""
    """Identifies the federation. A node resets its private state when this changes."""
    titles: list[str] | None = None

    @property
    def experiment(self) -> Experiment:
        return Experiment.of(self.config)

    @property
    def federation(self) -> AnyFederation:
        return cast(AnyFederation, algorithm(self.experiment.choice.algorithm).train)

    @property
    def texts(self) -> Ids | None:
        return None if self.titles is None else objects(self.titles)

    def refuse_split(self) -> None:
        """Reject splits that a node cannot compute alone."""
        rule = self.experiment.protocol.split
        if rule not in LOCAL_SPLITS:
            raise ConfigError(
                f"setting 'split' is {rule!r}, which needs the interactions of all users in one "
                f"place; expected one of {', '.join(LOCAL_SPLITS)}. Change it."
            )


@dataclass(frozen=True, slots=True)
class Roster(JsonMessage):
    """A node's users, which of them have training data, and their total of interactions."""

    users: list[str]
    learning: list[bool]
    positives: int
    forgotten: list[int] = field(default_factory=list)
    """Indices of users who were erased from the node's store since its last roster."""
    permits: list[str] = field(default_factory=list)
    """Transfers of users to this node, signed by the nodes that they come from."""
    signing_keys: list[str] = field(default_factory=list)
    """The users' public keys, by which others know them in secure aggregation (`secagg`)."""
    rollbacks: int = 0
    """How many roll-backs of the run the node knows."""
    most_rollbacks: int | None = None
    """How many of them its policy follows; None if the node does not say."""
    snapshots: list[int] = field(default_factory=list)
    """The rounds of which the node has the private state of its users."""
    unchanged_since: int = 0
    """The round since which that state has not changed."""

    @classmethod
    def parse(cls, data: bytes) -> Roster:
        """Read a roster from an untrusted node."""
        roster = cls.from_json(data)
        users = set(roster.users)
        if "" in users or not (users or roster.forgotten):
            raise Malformed("the roster has no users, or an empty user id")
        if len(users) < len(roster.users) or len(roster.learning) != len(roster.users):
            raise Malformed("the roster repeats a user, or its columns differ in length")
        if len(users) > MAX_USERS or max(map(len, users), default=0) > MAX_ID_LENGTH:
            raise Malformed("the roster has too many users, or too long ids")
        if max(len(roster.forgotten), len(roster.permits)) > MAX_USERS:
            raise Malformed("the roster has too many erased or transferred users")
        if len(roster.signing_keys) not in (0, len(roster.users)):
            raise Malformed("the roster does not have one signing key for each user")
        if not all(SIGNING_KEY.fullmatch(key) for key in roster.signing_keys):
            raise Malformed("a signing key of the roster is not 32 bytes in hexadecimal digits")
        if len(roster.snapshots) > MOST_SNAPSHOTS:
            raise Malformed(f"the roster lists more than {MOST_SNAPSHOTS} snapshots")
        if not sum(roster.learning) <= roster.positives < MAX_POSITIVES:
            raise Malformed("the roster's number of interactions is out of range")
        return roster

    def select(self, wanted: Callable[[str], bool]) -> Roster:
        """Only the wanted users. The number of interactions is that of all."""
        kept = [k for k, user in enumerate(self.users) if wanted(user)]
        return replace(
            self,
            users=[self.users[k] for k in kept],
            learning=[self.learning[k] for k in kept],
            signing_keys=[self.signing_keys[k] for k in kept] if self.signing_keys else [],
        )


@dataclass(frozen=True, slots=True)
class UserIndices(JsonMessage):
    """The server's reply to a roster: the indices of the node's users, and public totals."""

    numbers: dict[str, int]
    """User id -> user index."""
    n_users: int
    members: list[int]
    """Indices of all users with training data."""
    n_positives: int
    forgotten: list[int] = field(default_factory=list)
    """Indices of the node's erased users that the server has erased, too."""
    node: str = ""
    """The name of the node's key; empty where nodes have none."""
    signing_keys: list[str] = field(default_factory=list)
    """The public signing keys of all users by index; empty where a user has none."""
    snapshot_every: int = 0
    """Rounds between two snapshots of private state; 0 for none."""
    snapshots: int = 0
    """The newest snapshots, which stay."""
    rollbacks: list[int] = field(default_factory=list)
    """The rounds that the run returned to, the oldest roll-back first."""

    @property
    def plan(self) -> SnapshotPlan:
        return SnapshotPlan(self.snapshot_every, self.snapshots)

    def refuse_impossible(self, n_items: int) -> None:
        """Reject totals that no federation has: a node would reserve memory for them."""
        if not 0 <= self.n_users <= MAX_FEDERATION:
            raise Malformed(f"the server counts {self.n_users} users; at most {MAX_FEDERATION:,}")
        if self.snapshot_every < 0 or not 0 <= self.snapshots <= MOST_SNAPSHOTS:
            raise Malformed(
                f"the server asks for {self.snapshots} snapshots, one every {self.snapshot_every} "
                f"rounds; at most {MOST_SNAPSHOTS}"
            )
        indices = [*self.numbers.values(), *self.members]
        if indices and not 0 <= min(indices) <= max(indices) < self.n_users:
            raise Malformed("the server gives indices to users beyond the number of users")
        most = len(set(self.members)) * n_items
        if not 0 <= self.n_positives <= most:
            raise Malformed(
                f"the server counts {self.n_positives:,} interactions; {len(self.members):,} users "
                f"and {n_items:,} items make {most:,} at most"
            )


GONE = ""
"""In place of the id of a user who was erased. The index is never given to somebody else."""


@dataclass(frozen=True, slots=True)
class EnrolledUsers(JsonMessage):
    """All users of a federation: a user's index is its place in `users`.

    Users who join later come last, so that an index never changes.
    """

    users: list[str]
    learning: list[int]
    n_positives: int
    positives: dict[str, int] = field(default_factory=dict)
    """Node -> the interactions of its users."""
    signing_keys: list[str] = field(default_factory=list)
    """The public signing keys of users, in secure aggregation with `secagg`. They never change: a
    server that could change them could take part as anybody."""

    @classmethod
    def of(cls, rosters: Mapping[str, Roster]) -> EnrolledUsers:
        listed = [user for roster in rosters.values() for user in roster.users]
        users, places, _ = number(objects(listed), "user_id")
        if len(users) < len(listed):
            repeated = users[np.flatnonzero(np.bincount(places) > 1)[0]]
            raise DataError(
                f"user {repeated} is on {listed.count(repeated)} nodes; expected every user on one "
                "node. Remove it from the files of the other nodes, and serve again."
            )
        learning = [learns for roster in rosters.values() for learns in roster.learning]
        positives = {name: roster.positives for name, roster in rosters.items()}
        keys = [key for roster in rosters.values() for key in roster.signing_keys]
        by_index = np.full(len(users), "", object)
        if len(keys) == len(places):
            by_index[places] = keys
        return cls(
            [str(user) for user in users],
            np.sort(places[np.flatnonzero(learning)]).tolist(),
            sum(positives.values()),
            positives,
            by_index.tolist() if keys else [],
        )

    def and_new(self, roster: Roster) -> EnrolledUsers:
        """With the users of a roster who are not enrolled yet."""
        known = set(self.users)
        new = roster.select(lambda user: user not in known)
        if not new.users:
            return self
        joined = EnrolledUsers.of({"": new})
        first = len(self.users)
        return replace(
            self,
            users=self.users + joined.users,
            learning=self.learning + [first + place for place in joined.learning],
            signing_keys=self.signing_keys + joined.signing_keys,
        )

    def without(self, indices: Collection[int]) -> EnrolledUsers:
        """Without the ids of these users, who take part no more."""
        gone = set(indices)
        if all(self.users[k] == GONE for k in gone):
            return self
        return replace(
            self,
            users=[GONE if k in gone else user for k, user in enumerate(self.users)],
            learning=[k for k in self.learning if k not in gone],
            signing_keys=["" if k in gone else key for k, key in enumerate(self.signing_keys)],
        )

    def with_positives(self, name: str, count: int, nodes: Container[str]) -> EnrolledUsers:
        """With the interactions of a node's users. Other `nodes` keep theirs."""
        if not self.positives:
            return self  # begun by an earlier version, which knew the total only
        positives = {node: n for node, n in self.positives.items() if node in nodes}
        positives[name] = count
        return replace(self, n_positives=sum(positives.values()), positives=positives)

    @property
    def n_users(self) -> int:
        """Users who were not erased."""
        return len(self.users) - len(self.gone)

    @property
    def gone(self) -> Longs:
        """Indices of users who were erased."""
        return np.flatnonzero([user == GONE for user in self.users])

    def index(self) -> dict[str, int]:
        """User id -> index."""
        return {user: k for k, user in enumerate(self.users) if user != GONE}

    def indices_for(
        self,
        users: Iterable[str],
        index: Mapping[str, int] | None = None,
        forgotten: Sequence[int] = (),
    ) -> UserIndices:
        """The reply to a node that hosts these users; users who are not enrolled get no index."""
        index = self.index() if index is None else index
        known = {user: index[user] for user in users if user in index}
        n_users = len(self.users)
        return UserIndices(
            known,
            n_users,
            self.learning,
            self.n_positives,
            list(forgotten),
            signing_keys=self.signing_keys,
        )
