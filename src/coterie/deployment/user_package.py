"""Users who move between two nodes: everything that the old node stores about them, as one file.

The file holds histories. Only its owner can read it, and it is needed once.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.core.plain_files import MOST_JSON_BYTES, read_text
from coterie.core.printable import one_line
from coterie.deployment.enrolment import JsonMessage
from coterie.deployment.node_ledger import is_positive
from coterie.deployment.node_private_store import JOINED_WITH, PERMITS, SNAPSHOTS, NodeStore
from coterie.deployment.node_private_store_file import READABLE_BY_OTHERS, read_layouts
from coterie.deployment.transfer import Permit, SignedPermit, users_of_permit
from coterie.errors import DataError, RunError
from coterie.federated.wire import Malformed

VERSION = 1
LAYOUTS = "layout", "given"
"""Metadata that describes the arrays of users."""
MOST_INTEGER = 2**63 - 1
"""The largest that SQLite holds."""


@dataclass(frozen=True, slots=True)
class UserPackage(JsonMessage):
    """The rows of some users in a node's store; bytes are base64."""

    version: int
    permit: str
    """The signed permit, as JSON."""
    layouts: dict[str, str]
    person: list[tuple[str, int | None]]
    did: list[tuple[str, str, float | None, int | None]]
    kept: list[tuple[str, str, int, int, str]]
    given: list[tuple[str, str, str]]
    signing_keys: list[tuple[str, str]] = field(default_factory=list)
    """The users' keys for secure aggregation, by which others know them."""
    spent: list[tuple[str, str, int, str, int, int, str]] = field(default_factory=list)
    """What the users' data spent of their privacy, by run."""
    snapshots: list[tuple[str, int, str, int, int, str]] = field(default_factory=list)
    """Their private state as it was after some rounds."""

    def read_permit(self) -> Permit:
        return SignedPermit.from_json(self.permit).read()


def pack(store: NodeStore, users: Sequence[str], permit: SignedPermit) -> UserPackage:
    """Everything that the store holds about these users."""
    for user in users:
        store.refuse_unknown(user)

    def rows(query: str) -> list[Any]:
        found = []
        for user in users:
            found += store.connection.execute(query, (user,)).fetchall()
        return [tuple(_as_text(value) for value in row) for row in found]

    return UserPackage(
        VERSION,
        permit.to_json(),
        {key: store.meta(key) or "{}" for key in LAYOUTS},
        rows("select id, number from person where id = ?"),
        rows("select person, item, rating, time from did where person = ?"),
        rows("select person, name, pending, tag, value from kept where person = ?"),
        rows("select person, name, value from given where person = ?"),
        rows(
            "select id, signing_key from person where id = ? and signing_key is not null",
        ),
        rows(
            "select run, person, releases, multiplier, round, exchange, digest from spent "
            "where person = ?"
        ),
        rows(
            "select person, round, name, pending, tag, value from snapshot where person = ?",
        ),
    )


def unpack(package: UserPackage, store: NodeStore) -> list[str]:
    """Put the users of a package into a store; returns their ids."""
    run = package.read_permit().run
    if run and store.meta("run") != run:
        # What is of another federation would be deleted when the node joins this one.
        store.reset()
        rounds = sorted({row[1] for row in package.snapshots})
        store.put_meta(run=run, **package.layouts, **{SNAPSHOTS: json.dumps(rounds)})
    users = [user for user, _ in package.person]
    with store.transaction():
        for table in ("did", "kept", "given", "snapshot"):
            store.connection.executemany(
                f"delete from {table} where person = ?", [(user,) for user in users]
            )
        store.connection.executemany(
            "insert or replace into person (id, number) values (?, ?)", package.person
        )
        store.connection.executemany(
            "update person set signing_key = ? where id = ?",
            [(base64.b64decode(key), user) for user, key in package.signing_keys],
        )
        store.connection.executemany("insert into did values (?, ?, ?, ?)", package.did)
        store.connection.executemany(
            "insert into kept values (?, ?, ?, ?, ?)", map(_with_bytes, package.kept)
        )
        store.connection.executemany(
            "insert into given values (?, ?, ?)", map(_with_bytes, package.given)
        )
        # A snapshot that only these users had would be none of the others.
        of_node = set(store.snapshot_rounds())
        store.connection.executemany(
            "insert into snapshot (person, round, name, pending, tag, value) "
            "values (?, ?, ?, ?, ?, ?)",
            [_with_bytes(row) for row in package.snapshots if row[1] in of_node],
        )
        store.connection.executemany(
            "insert into spent values (?, ?, ?, ?, ?, ?, ?) on conflict do update set "
            "releases = max(releases, excluded.releases)",
            [_with_bytes(row) for row in package.spent if row[1] in users],
        )
        store.put_list(PERMITS, [*store.held_list(PERMITS), package.permit])
    return users


def _as_text(value: object) -> object:
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _with_bytes(row: Sequence[object]) -> tuple[object, ...]:
    """A row whose last value is bytes."""
    return (*row[:-1], base64.b64decode(str(row[-1])))


def write(package: UserPackage, path: Path) -> None:
    """Write a package to a new file, completely and durably."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise RunError(
            f"{path} cannot be created ({error.strerror}); expected the name of a new file. "
            "Choose another with --out."
        ) from None
    with os.fdopen(descriptor, "w") as file:
        file.write(package.to_json())
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> UserPackage:
    """Read a package that a person brings from another node."""
    remedy = "Create it with coterie node transfer, on the node that the users come from."
    if not path.is_file():
        raise RunError(f"{path} does not exist; expected a package of users. {remedy}")
    if path.stat().st_mode & READABLE_BY_OTHERS:
        raise RunError(f"{path} can be read by others; expected mode 600. Run: chmod 600 {path}")
    try:
        package = UserPackage.from_json(read_text(path, MOST_JSON_BYTES))
        listed = {user for user, _ in package.person}
        _refuse_other_rows(package, listed)
        if not all(row[2] > 0 and is_positive(row[3]) for row in package.spent):
            raise Malformed("its ledger has no valid number of releases or noise multiplier")
        if package.version != VERSION or listed != users_of_permit(package.permit):
            raise Malformed("its version is another, or its permit is for other users")
    except (Malformed, DataError) as error:
        why = one_line(error)
        raise RunError(f"{path} is not a package of users ({why}). {remedy}") from None
    return package


def _refuse_other_rows(package: UserPackage, listed: set[str]) -> None:
    """Refuse rows of users who are not listed, and values that a store cannot hold."""
    rows: list[tuple[object, ...]] = [
        *package.person,
        *package.did,
        *package.kept,
        *package.given,
        *package.signing_keys,
        *package.snapshots,
    ]
    users = {row[0] for row in rows} | {row[1] for row in package.spent}
    if not users <= listed:
        raise Malformed("it has rows of users who are not listed in it")
    if not package.layouts.keys() <= set(LAYOUTS):
        raise Malformed("it has metadata other than layouts")
    whole = [value for row in [*rows, *package.spent] for value in row if isinstance(value, int)]
    if not all(-MOST_INTEGER <= value <= MOST_INTEGER for value in whole):
        raise Malformed("a number has more than 64 bits")
    try:
        for row in (
            *package.kept,
            *package.given,
            *package.signing_keys,
            *package.spent,
            *package.snapshots,
        ):
            base64.b64decode(str(row[-1]), validate=True)
        for text in package.layouts.values():
            read_layouts(text)
    except ValueError as error:
        raise Malformed(str(error)) from None


def permit_for(store: NodeStore, users: Sequence[str], to: str) -> Permit:
    """A permit, still unsigned, for the federation of a store."""
    origin = store.meta("node") or ""
    if origin and to == origin:
        raise RunError(
            f"--to is {to}, where the users are; expected another node. Name another one."
        )
    return Permit.new(store.meta("run") or "", users, origin, to)


def refuse_other_node(package: UserPackage, path: Path, store: NodeStore) -> None:
    """Refuse a store of a node that the package is neither for, nor from."""
    permit = package.read_permit()
    node = store.meta("node")
    if node and node not in (permit.to, permit.origin):
        raise RunError(
            f"{path} is for node {permit.to}, and {store.path} belongs to {node}; expected the "
            f"store of {permit.to}. Bring the package there."
        )


def refuse_other_key(store: NodeStore, path: Path, public: bytes) -> None:
    """Refuse a key with which the node did not join: the server would not accept the permit."""
    joined_with = store.meta(JOINED_WITH)
    if joined_with and joined_with != public.decode():
        raise RunError(
            f"{path} is not the key with which {store.path} joined; expected that key, since it "
            "signs the transfer. Name it with --key, or join with the new one first."
        )


def refuse_unsigned(store: NodeStore, path: Path, key: Path | None) -> None:
    """Refuse a transfer without a key out of a federation with keys."""
    if key is None and store.meta("node"):
        raise RunError(
            f"{path} belongs to a federation with keys; expected the key of node "
            f"{store.meta('node')}, which signs the transfer. Add --key {store.meta('node')}.key."
        )
