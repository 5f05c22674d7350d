"""Users who move to another node: permits that the old node signs, and moves an owner approves.

A user belongs to the node that enrolled it. Another node hosts it only with a permit that is signed
with the old node's key, or if the owner of the server approved the move. A permit is for one node
and counts once.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from coterie.core import plain_files
from coterie.deployment.enrolment import JsonMessage
from coterie.deployment.server_folder import read_json
from coterie.errors import DataError, RunError, UnknownName
from coterie.experiments import run_folder
from coterie.federated.wire import Malformed

APPROVED = "approved.json"
"""The file of moves that the owner approved and the server has not carried out yet."""
SIGNED_TEXT = "coterie transfer of users\n"
"""Precedes what is signed, so that a signature means nothing anywhere else."""
VALID_DAYS = 30


@dataclass(frozen=True, slots=True)
class Permit(JsonMessage):
    """The old node lets another node host these users of a federation."""

    run: str
    users: list[str]
    origin: str
    """Name of the old node; empty if it does not know it."""
    to: str
    """Name of the new node."""
    number: str
    """Identifies the permit."""
    expires: str

    @classmethod
    def new(cls, run: str, users: Sequence[str], origin: str, to: str) -> Permit:
        expires = datetime.now(UTC) + timedelta(days=VALID_DAYS)
        return cls(run, list(users), origin, to, secrets.token_hex(16), expires.isoformat())

    @property
    def is_expired(self) -> bool:
        try:
            return datetime.fromisoformat(self.expires) < datetime.now(UTC)
        except (ValueError, TypeError):
            return True


@dataclass(frozen=True, slots=True)
class SignedPermit(JsonMessage):
    permit: str
    """The permit as JSON: exactly what was signed."""
    signature: str
    """Base64; empty where nodes have no keys."""

    @property
    def signed_text(self) -> str:
        return SIGNED_TEXT + self.permit

    def read(self) -> Permit:
        return Permit.from_json(self.permit)


def users_of_permit(text: str) -> set[str]:
    """The users of a signed permit."""
    return set(SignedPermit.from_json(text).read().users)


@dataclass(frozen=True, slots=True)
class ApprovedMove(JsonMessage):
    """A move that the owner of the server approved."""

    origin: str
    to: str
    users: list[str]


def approve(folder: Path, origin: str, to: str, users: Sequence[str], homes: dict[str, str]) -> int:
    """Approve that users of a node move to another one; returns how many.

    Without `users`, all users of the node move. `homes`: user id -> node.
    """
    if not homes:
        raise RunError(
            f"{folder} has no users; expected the run folder of a federation that began. "
            "Check the path."
        )
    if read_json(folder, "status.json").get("state") == "finished":
        raise RunError(
            f"{folder} is finished; expected a federation that goes on. Users move when they join "
            "the next one."
        )
    if origin not in homes.values():
        raise UnknownName("node", origin, sorted(set(homes.values())), f" in {folder}")
    if origin == to:
        raise RunError(f"--from and --to are both {origin}; expected two nodes. Name another.")
    hosted = [user for user, node in homes.items() if node == origin]
    for user in users:
        if user not in hosted:
            raise UnknownName("user", user, hosted, f" of node {origin}")
    move = ApprovedMove(origin, to, list(users) or hosted)
    waiting = [*read_approved(folder), move]
    run_folder.write_text(folder, APPROVED, json.dumps([one.to_json() for one in waiting]))
    return len(move.users)


def read_approved(folder: Path) -> list[ApprovedMove]:
    """The moves that wait for the server."""
    path = folder / APPROVED
    if not path.exists():
        return []
    try:
        texts = cast(list[str], plain_files.read_json(path))
        return [ApprovedMove.from_json(text) for text in texts]
    except (Malformed, DataError, TypeError):
        raise RunError(
            f"{path} cannot be read; expected moves written by coterie federation transfer. "
            "Delete the file, and approve again."
        ) from None
