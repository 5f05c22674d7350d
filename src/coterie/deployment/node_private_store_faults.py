"""Connections to a node's store whose failures name the file and the remedy.

SQLite may notice a damaged file, a full disk or a folder that cannot be written anywhere: in a
statement, while rows are read, or at a commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from coterie.core.printable import one_line
from coterie.errors import RunError, StoreError

BUSY_SECONDS = 30.0
"""How long a statement waits for another process that writes."""
RESTORE = (
    "Restore it from a backup. Without one, move it away, and coterie join makes a new store from "
    "the data file."
)
FREE_SPACE = "Free some space, and start the command again."
PERMIT = "Make the file and its folder writable for this user."
REMEDIES = {
    "SQLITE_CORRUPT": RESTORE,
    "SQLITE_NOTADB": RESTORE,
    "SQLITE_TOOBIG": RESTORE,
    "SQLITE_FULL": FREE_SPACE,
    "SQLITE_IOERR": "Check the disk and its free space, and start the command again.",
    "SQLITE_READONLY": PERMIT,
    "SQLITE_CANTOPEN": PERMIT,
    "SQLITE_PERM": PERMIT,
}
"""The kind of an error of SQLite -> what to do. Other kinds are bugs."""
IN_USE = ("SQLITE_BUSY", "SQLITE_LOCKED")


class StoreCursor(sqlite3.Cursor):
    connection: StoreConnection

    def execute(self, *statement: Any) -> Self:
        with faults(self.connection.path):
            return super().execute(*statement)

    def executemany(self, *statement: Any) -> Self:
        with faults(self.connection.path):
            return super().executemany(*statement)

    def fetchone(self) -> Any:
        with faults(self.connection.path):
            return super().fetchone()

    def fetchall(self) -> list[Any]:
        with faults(self.connection.path):
            return super().fetchall()

    def __next__(self) -> Any:
        # Without `with`, which would take longer than to read the row.
        try:
            return super().__next__()
        except sqlite3.Error as error:
            raise fault_of(self.connection.path, error) or error from None


class StoreConnection(sqlite3.Connection):
    path: Path

    def execute(self, *statement: Any) -> StoreCursor:
        return self.cursor(StoreCursor).execute(*statement)

    def executemany(self, *statement: Any) -> StoreCursor:
        return self.cursor(StoreCursor).executemany(*statement)

    def __exit__(self, *error: Any) -> Any:
        with faults(self.path):
            return super().__exit__(*error)


def connect(path: Path, in_memory: bool = False) -> StoreConnection:
    """A connection to the store at `path`, or one for a copy of it in memory."""
    with faults(path):
        connection = sqlite3.connect(
            ":memory:" if in_memory else path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            factory=StoreConnection,
        )
    connection.path = path
    return connection


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Raise errors of SQLite that are not bugs as errors of the store at `path`."""
    try:
        yield
    except sqlite3.Error as error:
        fault = fault_of(path, error)
        if fault is None:
            raise
        raise fault from None
    except UnicodeDecodeError as error:
        # SQLite's own message quotes bytes of the file.
        raise damaged(path, error) from None


def fault_of(path: Path, error: sqlite3.Error) -> RunError | None:
    """What the operator of a node should know about an error; None if it is a bug."""
    # For example SQLITE_CORRUPT_INDEX. Errors of Python's own module have no name.
    name = getattr(error, "sqlite_errorname", None)
    if name is None:
        is_text = "Could not decode to UTF-8" in str(error)
        return damaged(path, error) if is_text else None
    kind = "_".join(name.split("_")[:2])
    if kind in IN_USE:
        return RunError(
            f"{path} was in use by another process for {BUSY_SECONDS:g} seconds; expected it to be "
            "free. Try again."
        )
    if kind not in REMEDIES:
        return None
    if REMEDIES[kind] == RESTORE:
        return damaged(path, error)
    return StoreError(
        f"{path} cannot be used ({error}); expected a store that can be read and written. "
        f"{REMEDIES[kind]}"
    )


def damaged(path: Path, why: object) -> StoreError:
    first_line = one_line(str(why).partition("\n")[0])
    return StoreError(f"{path} is damaged ({first_line}); expected the store of a node. {RESTORE}")
