"""A node's own store: its people, what they did, and what their devices keep. One SQLite file that its owner alone can read.

Nothing in it is sent to anybody but what an algorithm's messages say. What a device keeps has two generations: what counts, and what
the last exchange made of it. The new one counts once a server says that it accepted that exchange; until then the exchange can be played
again, after a crash on either side, as if it had never been.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.interactions import Interactions
from coterie.errors import RunError, UnknownName
from coterie.federated.federation import PrivateState
from coterie.types import Bools, Longs

TABLES = """
create table about (key text primary key, value text not null);
create table person (id text primary key, number integer);
create table did (person text not null, item text not null, rating real, time integer, primary key (person, item)) without rowid;
create table given (person text not null, name text not null, value blob not null, primary key (person, name)) without rowid;
create table held (name text primary key, value blob not null) without rowid;
create table kept (person text not null, name text not null, pending integer not null, tag integer not null, value blob not null,
                   primary key (person, name, pending)) without rowid;
"""
VERSION = 1
RING = "ring"
"""What members of the last ring keep to themselves."""
NEVER = -1
"""The tag of what a device began with."""
OF_OTHERS = 0o077
SQLITE = b"SQLite format 3"


class NodeStore:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    @classmethod
    def create(cls, path: Path) -> NodeStore:
        """A new and empty store."""
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            raise RunError(
                f"{path} exists already; expected a name for a new store. Choose another."
            ) from None
        except OSError as error:
            raise RunError(f"{path} cannot be made ({error.strerror}). Check the folder.") from None
        store = cls(path, _connected(path))
        with store.all_or_nothing():
            for statement in filter(str.strip, TABLES.split(";")):
                store.connection.execute(statement)
            store.connection.execute(f"pragma user_version = {VERSION}")
        return store

    @classmethod
    def open(cls, path: Path) -> NodeStore:
        if not path.is_file():
            raise RunError(
                f"{path} does not exist; expected the store of a node. `coterie join` makes one."
            )
        with path.open("rb") as begins:
            if begins.read(len(SQLITE)) != SQLITE:
                raise RunError(f"{path} is no store of a node. Name another file.")
        if path.stat().st_mode & OF_OTHERS:
            raise RunError(
                f"{path} can be read by others (mode {path.stat().st_mode & 0o777:o}); expected 600. Run: chmod 600 {path}"
            )
        connection = _connected(path)
        try:
            (version,) = connection.execute("pragma user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise RunError(f"{path} is no store of a node ({error}). Name another file.") from None
        if version != VERSION:
            raise RunError(
                f"{path} has version {version}; expected {VERSION}. Name the store of a node, or make a new one."
            )
        return cls(path, connection)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        with self.connection:
            self.connection.execute("begin immediate")
            yield

    # People and what they did

    def put_interactions(self, data: Interactions) -> None:
        """What a file says replaces what was known about the people in it."""
        persons = data.user_ids.astype(str)
        items = data.item_ids.astype(str)
        count = len(data)
        ratings = [None] * count if data.ratings is None else data.ratings.tolist()
        times = [None] * count if data.times is None else data.times.tolist()
        rows = zip(
            persons[data.users].tolist(), items[data.items].tolist(), ratings, times, strict=True
        )
        with self.all_or_nothing():
            self.connection.executemany(
                "delete from did where person = ?", [(p,) for p in persons.tolist()]
            )
            self.connection.executemany(
                "insert into person (id) values (?) on conflict do nothing",
                [(p,) for p in persons.tolist()],
            )
            self.connection.executemany("insert into did values (?, ?, ?, ?)", rows)

    def interactions(self) -> Interactions:
        rows = self.connection.execute("select person, item, rating, time from did").fetchall()
        if not rows:
            raise RunError(
                f"{self.path} holds nobody's history; expected some. `coterie join --data FILE` puts it there."
            )
        persons, items, ratings, times = zip(*rows, strict=True)
        return Interactions.from_columns(
            np.array(persons, dtype=object),
            np.array(items, dtype=object),
            None if None in ratings else np.array(ratings),
            None if None in times else np.array(times),
        )

    def people(self) -> list[str]:
        return [
            person for (person,) in self.connection.execute("select id from person order by id")
        ]

    def export(self, person: str) -> dict[str, Any]:
        """All that the store holds about a person."""
        self._refuse_unknown(person)
        did = self.connection.execute(
            "select item, rating, time from did where person = ? order by time, item", (person,)
        ).fetchall()
        private_state = self.connection.execute(
            "select name, tag, value from kept where person = ? and not pending", (person,)
        ).fetchall()
        layout = self.layout
        return {
            "user_id": person,
            "interactions": [
                {"item_id": item, "rating": rating, "timestamp": time} for item, rating, time in did
            ],
            "kept on the device": {
                name: _row(value, layout[name]).tolist() for name, _, value in private_state
            },
            "given by the server": {name: row.tolist() for name, row in self.given(person).items()},
        }

    def forget(self, person: str) -> None:
        """Erase a person: the bytes are written over, not only let go."""
        self._refuse_unknown(person)
        with self.all_or_nothing():
            self.connection.execute("delete from held where name = ?", (RING,))
            self.connection.execute("delete from about where key = 'said'")
            for table, column in (
                ("did", "person"),
                ("kept", "person"),
                ("given", "person"),
                ("person", "id"),
            ):
                self.connection.execute(f"delete from {table} where {column} = ?", (person,))
        self.connection.execute("vacuum")

    def _refuse_unknown(self, person: str) -> None:
        if not self.connection.execute("select 1 from person where id = ?", (person,)).fetchone():
            raise UnknownName("user", person, self.people(), f" in {self.path}")

    # Numbers that the server gave people

    def put_numbers(self, numbers: Mapping[str, int]) -> None:
        with self.all_or_nothing():
            self.connection.executemany(
                "update person set number = ? where id = ?", [(n, p) for p, n in numbers.items()]
            )

    def numbers(self) -> dict[int, str]:
        """Number -> person, of those who have one, ascending."""
        return dict(
            self.connection.execute(
                "select number, id from person where number is not null order by number"
            )
        )

    # What devices keep

    def start_over(self) -> None:
        """Another federation begins: nothing that devices kept for the one before is left."""
        with self.all_or_nothing():
            for statement in (
                "delete from kept",
                "delete from given",
                "delete from held",
                "delete from about where key in ('layout', 'given')",
                "update person set number = null",
            ):
                self.connection.execute(statement)

    @property
    def layout(self) -> dict[str, tuple[str, list[int]]]:
        """Type and shape of what is kept under a name."""
        return dict(json.loads(self.about("layout") or "{}"))

    def begin(self, persons: Sequence[str], private_state: PrivateState) -> None:
        """What devices begin with; nobody's is written over."""
        with self.all_or_nothing():
            self._write(
                persons, private_state, np.full(len(persons), NEVER), pending=False, over=False
            )

    def private_state(self, persons: Sequence[str]) -> PrivateState:
        """What counts, a row for each of some people."""
        return {name: self._read(name, persons, layout) for name, layout in self.layout.items()}

    def made(self, persons: Sequence[str], private_state: PrivateState, tag: int) -> None:
        """What an exchange made of it, which does not count yet. Of those who were forgotten meanwhile nothing is kept."""
        with self.all_or_nothing():
            there = set(self.people())
            which = np.array([person in there for person in persons], bool)
            persons = [p for p in persons if p in there]
            private_state = {name: rows[which] for name, rows in private_state.items()}
            self._write(persons, private_state, np.full(len(persons), tag), pending=True, over=True)

    def settle(self, persons: Sequence[str], accepted: Longs) -> Bools:
        """Let count what the server accepted, which has the given tags, and drop what it did not.

        Returns for whom what counts now is what the server thinks: where it is not, one of the two was put back to an earlier day.
        """
        pairs = list(zip(persons, accepted.tolist(), strict=True))
        with self.all_or_nothing():
            self.connection.executemany(
                "insert or replace into kept select person, name, 0, tag, value from kept where person = ? and pending and tag = ?",
                pairs,
            )
            self.connection.executemany(
                "delete from kept where person = ? and pending", [(p,) for p in persons]
            )
        if not self.layout:
            return np.ones(len(persons), bool)
        tags = dict(
            self.connection.execute(
                "select person, min(tag) from kept where not pending group by person"
            )
        )
        return np.array([tags.get(person, NEVER) == tag for person, tag in pairs], bool)

    def _write(
        self,
        persons: Sequence[str],
        private_state: PrivateState,
        tags: Longs,
        *,
        pending: bool,
        over: bool,
    ) -> None:
        self.put_about(
            layout=json.dumps(
                self.layout
                | {n: (a.dtype.str, list(a.shape[1:])) for n, a in private_state.items()}
            )
        )
        what = "replace" if over else "ignore"
        for name, rows in private_state.items():
            values = (np.ascontiguousarray(row).tobytes() for row in rows)
            self.connection.executemany(
                f"insert or {what} into kept values (?, ?, ?, ?, ?)",
                (
                    (p, name, pending, tag, value)
                    for p, tag, value in zip(persons, tags.tolist(), values, strict=True)
                ),
            )

    # The model, as it came last

    def put_model(self, persons: Sequence[str], own: PrivateState, common: bytes) -> None:
        """What the server gave every one of these people, and all of them together."""
        about = json.dumps(
            {name: (rows.dtype.str, list(rows.shape[1:])) for name, rows in own.items()}
        )
        with self.all_or_nothing():
            there = set(self.people())
            self.connection.execute("delete from given")
            self.put_held("model", common)
            self.put_about(given=about)
            for name, rows in own.items():
                values = (np.ascontiguousarray(row).tobytes() for row in rows)
                self.connection.executemany(
                    "insert into given values (?, ?, ?)",
                    (
                        (person, name, value)
                        for person, value in zip(persons, values, strict=True)
                        if person in there
                    ),
                )

    def given(self, person: str) -> PrivateState:
        """A person's own rows of it."""
        layouts: dict[str, tuple[str, list[int]]] = json.loads(self.about("given") or "{}")
        held = self.connection.execute("select name, value from given where person = ?", (person,))
        return {name: _row(value, layouts[name]) for name, value in held}

    def _read(self, name: str, persons: Sequence[str], layout: tuple[str, list[int]]) -> np.ndarray:
        held = dict(
            self.connection.execute(
                "select person, value from kept where name = ? and not pending", (name,)
            )
        )
        return _stacked([held[person] for person in persons], layout)

    # Bytes of no single person, by name

    def held(self, name: str) -> bytes | None:
        found = self.connection.execute("select value from held where name = ?", (name,)).fetchone()
        return found[0] if found else None

    def put_held(self, name: str, value: bytes) -> None:
        self.connection.execute("insert or replace into held values (?, ?)", (name, value))

    # A few words about the store itself

    def about(self, key: str) -> str | None:
        found = self.connection.execute("select value from about where key = ?", (key,)).fetchone()
        return found[0] if found else None

    def log(self, text: str) -> None:
        """A line for whoever runs the node; the number tells it from the one before."""
        number = int((self.about("said") or "0 ").partition(" ")[0]) + 1
        self.put_about(said=f"{number} {text}")

    def put_about(self, **values: str) -> None:
        self.connection.executemany("insert or replace into about values (?, ?)", values.items())


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=30, isolation_level=None)
    connection.execute("pragma secure_delete = on")  # what is forgotten is written over
    return connection


def _stacked(values: Sequence[bytes], layout: tuple[str, list[int]]) -> np.ndarray:
    dtype, shape = layout
    return np.frombuffer(b"".join(values), np.dtype(dtype)).reshape(len(values), *shape)


def _row(value: bytes, layout: Iterable[Any]) -> np.ndarray:
    dtype, shape = layout
    return np.frombuffer(value, np.dtype(dtype)).reshape(shape)
