"""The SQLite file of a node's store: its tables, how it is made and opened, and rows of arrays.

Only the owner can read the file. Deleted content is overwritten with zeros. A file of an earlier
version is migrated when it is opened, and a file of a later version is refused.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from coterie.core.file_limits import most_bytes, refuse_large
from coterie.core.printable import one_line
from coterie.deployment.node_private_store_faults import connect, damaged
from coterie.errors import RunError

TABLES = """
create table about (key text primary key, value text not null);
create table person (id text primary key, number integer, signing_key blob);
create table did (person text not null, item text not null, rating real, time integer,
                  primary key (person, item)) without rowid;
create table given (person text not null, name text not null, value blob not null,
                    primary key (person, name)) without rowid;
create table held (name text primary key, value blob not null) without rowid;
create table kept (person text not null, name text not null, pending integer not null,
                   tag integer not null, value blob not null,
                   primary key (person, name, pending)) without rowid;
create table spent (run text not null, person text not null, releases integer not null,
                    multiplier text not null, round integer not null, exchange integer not null,
                    digest blob not null, primary key (run, person)) without rowid;
create table asked (hour integer primary key, questions integer not null,
                    replays integer not null);
create table answered (run text not null, place text not null, digest blob not null,
                       hour integer not null, primary key (run, place)) without rowid;
create table evaluated (person text not null, part text not null, number integer not null,
                        primary key (person, part)) without rowid;
create table snapshot (round integer not null, person text not null, name text not null,
                       pending integer not null, tag integer not null, value blob not null,
                       primary key (round, person, name, pending)) without rowid;
"""
"""about: metadata. person: users, their indices, and their keys for secure aggregation. did:
interactions. given: users' rows of the last model. held: blobs of no single user. kept: private
state, committed and pending. spent: what users' data spent of their privacy, by run. asked: how
many messages a server sent, by hour. answered: which messages. evaluated: users whose metrics were
reported together. snapshot: private state as it was after some rounds."""
COLUMNS = {
    "about": ("key", "value"),
    "person": ("id", "number", "signing_key"),
    "did": ("person", "item", "rating", "time"),
    "given": ("person", "name", "value"),
    "held": ("name", "value"),
    "kept": ("person", "name", "pending", "tag", "value"),
    "spent": ("run", "person", "releases", "multiplier", "round", "exchange", "digest"),
    "asked": ("hour", "questions", "replays"),
    "answered": ("run", "place", "digest", "hour"),
    "evaluated": ("person", "part", "number"),
    "snapshot": ("round", "person", "name", "pending", "tag", "value"),
}
"""The columns of TABLES."""
OBJECTS = {("table", name) for name in COLUMNS}
"""All that a file holds, but the indices that SQLite makes for primary keys."""
Migration = Callable[[sqlite3.Connection], None]
"""Changes a file of one version into one of the next, in the open transaction: with `execute`, not
with `executescript`, which would commit it."""


def _add_signing_keys(connection: sqlite3.Connection) -> None:
    connection.execute("alter table person add column signing_key blob")


def _add_ledger(connection: sqlite3.Connection) -> None:
    connection.execute(
        "create table spent (run text not null, person text not null, releases integer not null, "
        "multiplier text not null, round integer not null, exchange integer not null, "
        "digest blob not null, primary key (run, person)) without rowid"
    )


def _add_policy(connection: sqlite3.Connection) -> None:
    connection.execute(
        "create table asked (hour integer primary key, questions integer not null, "
        "replays integer not null)"
    )
    connection.execute(
        "create table answered (run text not null, place text not null, digest blob not null, "
        "hour integer not null, primary key (run, place)) without rowid"
    )
    connection.execute(
        "create table evaluated (person text not null, part text not null, "
        "number integer not null, primary key (person, part)) without rowid"
    )
    _move_limits_to_policy(connection)


def _add_snapshots(connection: sqlite3.Connection) -> None:
    connection.execute(
        "create table snapshot (round integer not null, person text not null, name text not null, "
        "pending integer not null, tag integer not null, value blob not null, "
        "primary key (round, person, name, pending)) without rowid"
    )


def _move_limits_to_policy(connection: sqlite3.Connection) -> None:
    """What used to be single options of `coterie join` are rules of the policy."""
    before = dict(
        connection.execute(
            "select key, value from about where key in ('epsilon_limit', 'least_group')"
        )
    )
    policy: dict[str, float] = {}
    if before.get("epsilon_limit"):
        policy["epsilon_limit"] = float(before["epsilon_limit"])
    if before.get("least_group"):
        policy["smallest_evaluation_group"] = int(before["least_group"])
    connection.execute("delete from about where key in ('epsilon_limit', 'least_group')")
    if policy:
        connection.execute("insert into about values ('policy', ?)", (json.dumps(policy),))


MIGRATIONS: tuple[Migration, ...] = (_add_signing_keys, _add_ledger, _add_policy, _add_snapshots)
"""The first one makes version 2 of version 1, and so on. A change of TABLES adds one."""
VERSION = 1 + len(MIGRATIONS)
DTYPE = re.compile(r"[<|][biuf][1248]")
"""How NumPy writes the types of numbers."""
READABLE_BY_OTHERS = 0o077
SQLITE_HEADER = b"SQLite format 3"

ArrayLayout = tuple[str, list[int]]
"""The dtype of an array and the shape of one of its rows."""


def create(path: Path) -> sqlite3.Connection:
    """Make a new, empty file."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        raise RunError(
            f"{path} exists already; expected a name for a new store. Choose another."
        ) from None
    except OSError as error:
        raise RunError(
            f"{path} cannot be created ({error.strerror}); expected a writable folder. "
            "Check the folder."
        ) from None
    try:
        connection = _connect(path)
        with connection:
            connection.execute("begin immediate")
            for statement in filter(str.strip, TABLES.split(";")):
                connection.execute(statement)
            connection.execute(f"pragma user_version = {VERSION}")
    except BaseException:
        # An empty file is no store: it would be refused the next time.
        path.unlink()
        raise
    return connection


def open_existing(path: Path) -> sqlite3.Connection:
    """Open a store; refuse other files and files that others can read."""
    if not path.is_file():
        raise RunError(
            f"{path} does not exist; expected the store of a node. Create one with `coterie join`."
        )
    try:
        with path.open("rb") as file:
            header = file.read(len(SQLITE_HEADER))
    except OSError as error:
        raise RunError(
            f"{path} cannot be read ({error.strerror}); expected the store of a node. "
            "Check its permissions."
        ) from None
    if header != SQLITE_HEADER:
        raise RunError(f"{path} is not a node's store. Name another file.")
    mode = path.stat().st_mode
    if mode & READABLE_BY_OTHERS:
        raise RunError(
            f"{path} can be read by others (mode {mode & 0o777:o}); expected 600. "
            f"Run: chmod 600 {path}"
        )
    refuse_large(path, path.stat().st_size, most_bytes())
    connection = _connect(path)
    try:
        (version,) = connection.execute("pragma user_version").fetchone()
        _refuse_version(path, version)
        _refuse_other_objects(path, connection)
        if version < VERSION:
            _migrate(connection)
        _refuse_other_columns(path, connection)
    except sqlite3.Error as error:
        connection.close()
        raise damaged(path, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _refuse_other_objects(path: Path, connection: sqlite3.Connection) -> None:
    """A view or a trigger of somebody else would run whenever the store is used."""
    found = connection.execute("select type, name from sqlite_master where sql is not null")
    others = [f"{kind} {name}" for kind, name in found if (kind, name) not in OBJECTS]
    if others:
        raise damaged(path, f"it has the {others[0]}")


def _refuse_other_columns(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse missing columns, and generated ones: their values are computed when they are read."""
    for table, columns in COLUMNS.items():
        rows = connection.execute("select name, hidden from pragma_table_xinfo(?)", (table,))
        found = dict(rows.fetchall())
        if not found.keys() >= set(columns) or any(found.values()):
            raise damaged(path, f"table {table} has the columns {', '.join(map(str, found))}")


def _refuse_version(path: Path, version: int) -> None:
    if version > VERSION:
        raise RunError(
            f"{path} has version {version}, of a later Coterie; expected at most {VERSION}. "
            "Update coterie on this machine."
        )
    if version < 1:
        raise RunError(
            f"{path} has version {version}; expected 1 to {VERSION}, as in the store of a node. "
            "Name another file, or make a new store with coterie join."
        )


def _migrate(connection: sqlite3.Connection) -> None:
    """Bring a file to the current version: all migrations that it lacks, or none."""
    with connection:
        connection.execute("begin immediate")
        # Read again, since another process may have migrated the file meanwhile.
        (version,) = connection.execute("pragma user_version").fetchone()
        for migration in MIGRATIONS[version - 1 :]:
            migration(connection)
        connection.execute(f"pragma user_version = {VERSION}")


def refuse_damaged(path: Path, connection: sqlite3.Connection) -> None:
    """Read the whole file, so that damage is found now and not in the middle of a federation."""
    (found,) = connection.execute("pragma quick_check(1)").fetchone()
    if found != "ok":
        # The first of two lines only names the database within the file.
        raise damaged(path, str(found).splitlines()[-1])


def _connect(path: Path) -> sqlite3.Connection:
    connection = connect(path)
    # Without this, SQLite leaves deleted content in free pages of the file.
    connection.execute("pragma secure_delete = on")
    # The schema of a file from elsewhere must not call functions with side effects.
    connection.execute("pragma trusted_schema = off")
    return connection


def layout_of(rows: np.ndarray) -> ArrayLayout:
    """How one row of an array is stored."""
    return rows.dtype.str, list(rows.shape[1:])


def row_bytes(rows: np.ndarray) -> Iterator[bytes]:
    """The bytes of each row."""
    return (np.ascontiguousarray(row).tobytes() for row in rows)


def read_layouts(text: str) -> dict[str, ArrayLayout]:
    """The layouts in metadata; ValueError unless all are of numbers."""
    try:
        found = {name: (dtype, shape) for name, (dtype, shape) in json.loads(text).items()}
        plain = all(DTYPE.fullmatch(dtype) for dtype, _ in found.values())
        sizes = [size for _, shape in found.values() for size in shape]
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"a layout cannot be read: {one_line(error)}") from None
    if not plain or not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError("a layout is not one of numbers")
    return found


def stack_rows(values: Sequence[bytes], layout: ArrayLayout) -> np.ndarray:
    """Rows as one array."""
    dtype, shape = layout
    return np.frombuffer(b"".join(values), np.dtype(dtype)).reshape(len(values), *shape)


def read_row(value: bytes, layout: ArrayLayout) -> np.ndarray:
    """One row."""
    dtype, shape = layout
    return np.frombuffer(value, np.dtype(dtype)).reshape(shape)
