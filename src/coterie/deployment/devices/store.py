"""The devices of a run, their one-time codes and their last updates: gateway.db in the run folder.

The server and `coterie device` use the file at the same time. It has no histories and no private
rows: devices do not send them. What must survive a crash is written before a reply leaves.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from coterie.core.atomic_files import OWNER_ONLY
from coterie.core.printable import one_line
from coterie.deployment.devices.codes import CODE_SECONDS, digest_of, new_code
from coterie.deployment.devices.refusals import DeviceRefused
from coterie.errors import RunError, StoreError, UnknownName

FILE = "gateway.db"
GATEWAY = "devices"
"""The name of the gateway among the nodes of a federation."""
VERSION = 1
TABLES = (
    "create table about (key text primary key, value text not null)",
    "create table code (digest blob primary key, expires real not null, device text not null)",
    "create table device (id text primary key, name text not null, key blob not null unique, "
    "number integer, enrolled real not null, revoked real)",
    "create table message (device text primary key, round integer not null, "
    "exchange integer not null, attempt integer not null, digest blob not null, reply blob)",
    "create table held (name text primary key, round integer not null, value blob not null)",
)
"""about: metadata. code: digests of one-time codes, and the device that used each. device: public
keys, and users' indices. message: the last message to each device, by digest, and the update that
it sent. held: the last model."""
BUSY_SECONDS = 30.0
"""How long a statement waits for another process that writes."""
DEVICE_BYTES = 8
"""Random bytes of a device's id."""
MODEL = "model"
URL = "url"
"""Metadata key of the address that browsers open."""


@dataclass(frozen=True, slots=True)
class Device:
    id: str
    name: str
    """What its owner calls it. The server of the federation does not learn it."""
    key: bytes
    number: int | None
    """The index of its user; None before the server has given one."""
    enrolled: float
    revoked: float | None

    @property
    def user(self) -> str:
        """The id of its user in the federation, a pseudonym."""
        return f"{GATEWAY}-{self.id}"


class DeviceMessage(NamedTuple):
    """The last message to a device, and its reply."""

    round: int
    exchange: int
    attempt: int
    """How often the server has sent this round, beginning with 1."""
    digest: bytes
    """SHA-256 of what the message says."""
    reply: bytes | None


class DeviceCounts(NamedTuple):
    active: int
    changes: int
    """A number that grows when a device is enrolled or revoked."""
    forgotten: tuple[int, ...]
    """Indices of users whose devices were revoked, until the server has erased them."""


@dataclass(frozen=True, slots=True)
class DeviceStore:
    path: Path

    @classmethod
    def make(cls, folder: Path) -> DeviceStore:
        """The store of a run folder, a new one if there is none."""
        store = cls(folder / FILE)
        if not store.path.exists():
            store._create()
        store._refuse_other_version()
        return store

    @classmethod
    def open(cls, folder: Path) -> DeviceStore:
        """The store of a run that is or was served with --devices."""
        store = cls(folder / FILE)
        if not store.path.is_file():
            raise RunError(
                f"{folder} has no {FILE}; expected the run folder of a federation with devices. "
                "Serve it with: coterie serve --config FILE --devices"
            )
        store._refuse_other_version()
        return store

    def _create(self) -> None:
        """Make the file at once: a killed process leaves none, or a whole one."""
        scratch = self.path.with_name(f".{FILE}.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_RDWR, OWNER_ONLY))
        with DeviceStore(scratch)._transaction() as connection:
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"pragma user_version = {VERSION}")
        scratch.replace(self.path)

    def _refuse_other_version(self) -> None:
        with self._reading() as connection:
            (version,) = connection.execute("pragma user_version").fetchone()
        if version != VERSION:
            raise RunError(
                f"{self.path} has version {version}; expected {VERSION}. Update coterie, or begin "
                "a new run."
            )

    @contextmanager
    def _transaction(self, begin: str = "begin immediate") -> Iterator[sqlite3.Connection]:
        """Commit everything inside, or nothing. Every call has a connection of its own: threads of
        the server and other processes use the store at the same time."""
        try:
            with closing(
                sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("pragma secure_delete = on")
                connection.execute("pragma trusted_schema = off")
                with connection:
                    connection.execute(begin)
                    yield connection
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path} cannot be used ({one_line(error)}); expected the file that coterie "
                "serve --devices made, and space to write it. Restore it from a backup of the run "
                "folder, or begin a new run."
            ) from None

    def _reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A transaction that does not wait for those who write."""
        return self._transaction("begin")

    # Metadata

    def put_url(self, url: str) -> None:
        """Remember where browsers reach the gateway."""
        with self._transaction() as connection:
            connection.execute("insert or replace into about values (?, ?)", (URL, url))

    def url(self) -> str:
        with self._reading() as connection:
            row = connection.execute("select value from about where key = ?", (URL,)).fetchone()
        return "" if row is None else str(row[0])

    # Codes and devices

    def add_code(self, now: float | None = None) -> str:
        """A new one-time code."""
        code = new_code()
        expires = (time.time() if now is None else now) + CODE_SECONDS
        with self._transaction() as connection:
            connection.execute("insert into code values (?, ?, '')", (digest_of(code), expires))
        return code

    def enrol(self, code: str, key: bytes, name: str, most: int) -> Device:
        """Enrol a device with an unused code; at most so many devices."""
        now = time.time()
        digest = digest_of(code)
        made = Device(secrets.token_hex(DEVICE_BYTES), name, key, None, now, None)
        with self._transaction() as connection:
            query = "select expires, device from code where digest = ?"
            row = connection.execute(query, (digest,)).fetchone()
            _refuse_code(row, now)
            query = "select count(*) from device where revoked is null"
            (n_active,) = connection.execute(query).fetchone()
            if n_active >= most:
                raise DeviceRefused(
                    403,
                    "too many devices",
                    f"{n_active:,} devices are enrolled; expected at most {most:,} "
                    "(most_users_a_node). Ask the federation's owner to raise it.",
                )
            query = "select id from device where key = ?"
            if connection.execute(query, (key,)).fetchone():
                raise DeviceRefused(
                    409,
                    "a key that is known",
                    "the public key is enrolled already; expected a new one for each device. Make "
                    "a new key pair.",
                )
            connection.execute(
                "insert into device values (?, ?, ?, null, ?, null)", (made.id, name, key, now)
            )
            connection.execute("update code set device = ? where digest = ?", (made.id, digest))
        return made

    def device(self, id_: str) -> Device | None:
        with self._reading() as connection:
            row = connection.execute("select * from device where id = ?", (id_,)).fetchone()
        return None if row is None else Device(*row)

    def devices(self) -> list[Device]:
        """All devices, revoked ones too, in the order in which they enrolled."""
        with self._reading() as connection:
            rows = connection.execute("select * from device order by enrolled, id").fetchall()
        return [Device(*row) for row in rows]

    def active(self) -> list[Device]:
        return [device for device in self.devices() if device.revoked is None]

    def counts(self) -> DeviceCounts:
        numbers = "select number from device where revoked is not null and number is not null"
        with self._reading() as connection:
            query = "select count(*), count(revoked) from device"
            (n_devices, n_revoked) = connection.execute(query).fetchone()
            forgotten = connection.execute(numbers).fetchall()
        return DeviceCounts(
            n_devices - n_revoked,
            n_devices + n_revoked,
            tuple(number for (number,) in forgotten),
        )

    def revoke(self, id_: str) -> Device:
        """Refuse a device from now on, and delete its last update."""
        known = self.devices()
        found = next((device for device in known if device.id == id_), None)
        if found is None:
            raise UnknownName("device", id_, [d.id for d in known], f" in {self.path}")
        if found.revoked is not None:
            raise RunError(f"device {id_} is revoked already; expected one that is not.")
        with self._transaction() as connection:
            connection.execute("update device set revoked = ? where id = ?", (time.time(), id_))
            connection.execute("delete from message where device = ?", (id_,))
        return found

    def put_numbers(self, numbers: Mapping[str, int], erased: Sequence[int]) -> None:
        """Note the indices of users, by user id, and which erased users the server has erased."""
        with self._transaction() as connection:
            connection.executemany(
                "update device set number = ? where id = ? and revoked is null",
                [(number, user.removeprefix(f"{GATEWAY}-")) for user, number in numbers.items()],
            )
            connection.executemany(
                "update device set number = null where number = ? and revoked is not null",
                [(number,) for number in erased],
            )

    # Messages and updates

    def put_messages(
        self, place: tuple[int, int], digests: Mapping[str, bytes]
    ) -> dict[str, DeviceMessage]:
        """Note the messages of a round and exchange, by device.

        The update that a device sent for the same message stays, so that the device need not send
        it again.
        """
        made = {}
        columns = "device, round, exchange, attempt, digest"
        with self._transaction() as connection:
            rows = connection.execute(f"select {columns} from message").fetchall()
            before = {
                device: DeviceMessage(t, exchange, attempt, digest, None)
                for device, t, exchange, attempt, digest in rows
            }
            for device, digest in digests.items():
                made[device] = _next_message(before.get(device), place, digest)
            # Only of the same message the reply stays.
            connection.executemany(
                f"insert into message ({columns}) values (?, ?, ?, ?, ?) "
                "on conflict (device) do update set round = excluded.round, "
                "exchange = excluded.exchange, attempt = excluded.attempt, "
                "digest = excluded.digest, reply = case "
                "when (round, exchange, digest) = "
                "(excluded.round, excluded.exchange, excluded.digest) then reply end",
                [(device, *message[:-1]) for device, message in made.items()],
            )
            replies = connection.execute(
                "select device, reply from message where reply is not null"
            ).fetchall()
        for device, reply in replies:
            if device in made:
                made[device] = made[device]._replace(reply=reply)
        return made

    def last_message(self, device: str) -> DeviceMessage | None:
        query = "select round, exchange, attempt, digest, reply from message where device = ?"
        with self._reading() as connection:
            row = connection.execute(query, (device,)).fetchone()
        return None if row is None else DeviceMessage(*row)

    def put_reply(self, device: str, digest: bytes, reply: bytes) -> bool:
        """Store the update of a device, unless it sent another one for the same message before."""
        with self._transaction() as connection:
            done = connection.execute(
                "update message set reply = ? where device = ? and digest = ? "
                "and (reply is null or reply = ?)",
                (reply, device, digest, reply),
            )
        return done.rowcount == 1

    # The model

    def put_model(self, round_: int, data: bytes) -> None:
        with self._transaction() as connection:
            connection.execute(
                "insert or replace into held values (?, ?, ?)", (MODEL, round_, data)
            )

    def model(self) -> tuple[int, bytes] | None:
        """The round of the last model, and its bytes."""
        query = "select round, value from held where name = ?"
        with self._reading() as connection:
            row = connection.execute(query, (MODEL,)).fetchone()
        return None if row is None else (row[0], row[1])


def _refuse_code(row: tuple[float, str] | None, now: float) -> None:
    """Refuse a code that is unknown, used or too old, by its row in the store."""
    remedy = "Ask the federation's owner for another: coterie device code RUN"
    if row is None:
        raise DeviceRefused(
            403, "an unknown code", f"the code is not known; expected one that was made. {remedy}"
        )
    expires, device = row
    if device:
        raise DeviceRefused(
            403,
            "a used code",
            f"the code was used by device {device}; expected an unused one. {remedy}",
        )
    if expires < now:
        raise DeviceRefused(
            403,
            "an expired code",
            f"the code expired {now - expires:.0f} seconds ago; expected one that is at most "
            f"{CODE_SECONDS / 86400:.0f} days old. {remedy}",
        )


def _next_message(
    before: DeviceMessage | None, place: tuple[int, int], digest: bytes
) -> DeviceMessage:
    """A message of a place; one of the same place is another attempt."""
    is_repeated = before is not None and (before.round, before.exchange) == place
    attempt = before.attempt + 1 if before is not None and is_repeated else 1
    return DeviceMessage(*place, attempt, digest, None)
