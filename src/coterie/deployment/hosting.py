"""Which node each user belongs to: the first that enrolled it, until it moves or is erased."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from coterie.core.plain_files import read_json as read_json_file
from coterie.deployment.enrolment import GONE, EnrolledUsers, Roster
from coterie.deployment.rollback_log import RollbackLog
from coterie.deployment.server_folder import read_json, unreadable
from coterie.deployment.traffic import NodeTraffic
from coterie.deployment.transfer import APPROVED, SignedPermit, read_approved
from coterie.errors import DataError
from coterie.experiments import run_folder
from coterie.federated.wire import Malformed

HOSTS = "homes.json"
PERMITS = "permits.json"
"""The numbers of the permits that were used."""
FOREIGN_USER = "user of another node"
"""Why a roster entry is refused when nodes authenticate with keys."""
QUARANTINED_USER = "user of a quarantined node"
INVALID_PERMIT = "invalid transfer"


@dataclass(slots=True)
class Hosting:
    folder: Path
    traffic: NodeTraffic
    run: str
    """Identifies the federation."""
    nodes: dict[str, str] = field(default_factory=dict)
    """User id -> node name."""
    used: set[str] = field(default_factory=set)
    """The numbers of used permits."""
    quarantined: frozenset[str] = frozenset()
    """Nodes whose users take no part, whichever node lists them."""

    @classmethod
    def read(cls, folder: Path, traffic: NodeTraffic, run: str) -> Hosting:
        quarantined = RollbackLog.read(folder).quarantined
        return cls(folder, traffic, run, read_hosts(folder), read_used(folder), quarantined)

    def write(self) -> None:
        # A permit counts as used only after its move is on disk.
        run_folder.write_text(self.folder, HOSTS, json.dumps(self.nodes))
        if self.used:
            run_folder.write_text(self.folder, PERMITS, json.dumps(sorted(self.used)))

    def users_of(self, name: str) -> list[str]:
        return [user for user, node in self.nodes.items() if node == name]

    def own_users(self, name: str, users: Iterable[str]) -> list[str]:
        """The users that this node may host; others are refused and counted."""
        own = []
        for user in users:
            if self._may_host(user, name):
                own.append(user)
            elif self.nodes[user] in self.quarantined:
                self.traffic.refuse(QUARANTINED_USER, name)
            else:
                detail = describe_claim(user, self.nodes[user], name, self.traffic)
                self.traffic.refuse(FOREIGN_USER, name, detail=detail)
        return own

    def _may_host(self, user: str, name: str) -> bool:
        """Without keys a restarted node has a new name, so the last node that lists a user does."""
        if self.nodes.get(user) in self.quarantined:
            return False
        return not self.traffic.nodes.keyed or self.nodes.get(user, name) == name

    def refuse_quarantined(self, name: str, roster: Roster) -> bool:
        """Whether all users of a node are quarantined: without keys it may have a new name."""
        users = [user for user in roster.users if self.nodes.get(user) in self.quarantined]
        is_refused = bool(users) and len(users) == len(roster.users)
        if is_refused:
            self.traffic.refuse(QUARANTINED_USER, name, len(users))
        return is_refused

    def erase(self, name: str, roster: Roster, members: EnrolledUsers) -> list[int]:
        """Erase the users that a node erased; returns the indices of those who are gone."""
        gone = []
        for index in roster.forgotten:
            user = members.users[index] if 0 <= index < len(members.users) else None
            if user is not None and (user == GONE or self._may_host(user, name)):
                self.nodes.pop(user, None)
                gone.append(index)
            else:
                self.traffic.refuse(FOREIGN_USER, name)
        return gone

    def move_by_permits(self, name: str, roster: Roster) -> None:
        """Move the users of a node's valid permits to it."""
        for text in roster.permits:
            try:
                signed = SignedPermit.from_json(text)
                permit = signed.read()
            except Malformed:
                self.traffic.refuse("malformed transfer", name)
                continue
            origins = {self.nodes.get(user, "") for user in permit.users}
            if permit.number in self.used or origins == {name}:
                self.used.add(permit.number)
                continue
            is_valid = permit.run == self.run and permit.to == name and not permit.is_expired
            is_valid = is_valid and self.quarantined.isdisjoint(origins)
            if is_valid and self._all_signed(origins, signed):
                self.nodes |= dict.fromkeys(permit.users, name)
                self.used.add(permit.number)
            else:
                self.traffic.refuse(INVALID_PERMIT, name)

    def _all_signed(self, origins: Collection[str], signed: SignedPermit) -> bool:
        """Whether all users come from one node, which signed the permit."""
        nodes = self.traffic.nodes
        if not nodes.keyed:
            return True
        return len(origins) == 1 and nodes.signed(
            min(origins), signed.signed_text, signed.signature
        )

    def approved_users(self) -> dict[str, str]:
        """User id -> the node that the owner of the server approved, where that is another one."""
        moves = {}
        for move in read_approved(self.folder):
            for user in move.users:
                if self.nodes.get(user) == move.origin:
                    moves[user] = move.to
        return moves

    def move_approved(self, moves: Mapping[str, str]) -> None:
        self.nodes |= moves
        self.write()
        (self.folder / APPROVED).unlink(missing_ok=True)


def read_used(folder: Path) -> set[str]:
    """The numbers of used permits, of a run folder."""
    path = folder / PERMITS
    if not path.exists():
        return set()
    try:
        return set(map(str, cast(list[object], read_json_file(path))))
    except (OSError, DataError, TypeError) as error:
        raise unreadable(path, error) from None


def describe_claim(user: str, host: str, name: str, traffic: NodeTraffic) -> str:
    """Why a user that a node lists is refused, and what the owner of the server can do."""
    return (
        f"it lists user {user}, of {traffic.name_with_key(host)}; expected every user on the node "
        f"that enrolled it first. If {name} is right, run: coterie federation transfer FOLDER "
        f"--from {host} --to {name}; set prefixed_ids, and no node can claim another's users"
    )


def read_hosts(folder: Path) -> dict[str, str]:
    """User id -> node name, of a run folder."""
    return read_json(folder, HOSTS)
