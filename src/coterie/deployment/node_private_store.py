"""A node's store: its users, their interactions and their private state, in one SQLite file.

Nothing in it leaves the node except through an algorithm's messages. Private state has two
generations: the committed one, and the pending one that the last exchange produced. The pending one
is committed when the server reports that it accepted that exchange. Until then the exchange can be
repeated after a crash on either side, with the same result.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from coterie.data.coded import coded_texts
from coterie.data.interactions import Interactions
from coterie.deployment import node_private_store_file
from coterie.deployment.node_private_store_faults import damaged
from coterie.deployment.node_private_store_file import (
    ArrayLayout,
    layout_of,
    read_layouts,
    read_row,
    row_bytes,
    stack_rows,
)
from coterie.errors import RunError, UnknownName
from coterie.federated.federation import PrivateState
from coterie.federated.secagg.identity import Identity
from coterie.types import Bools, JsonObject, Longs

RING = "ring"
"""The blob with the secrets of the running secure aggregation."""
FORGOTTEN = "forgotten"
"""The blob with the indices of erased users, until the server has erased them, too."""
PERMITS = "permits"
"""The blob with the permits of users who came from other nodes, until the server has seen them."""
PINNED_KEYS = "pinned keys"
"""The blob with the public signing keys of all users, as they were when the node learnt them."""
MODEL = "model"
"""The blob with the shared part of the last model."""
SNAPSHOTS = "snapshots"
"""Metadata key of the rounds that have a snapshot."""
JOINED_WITH = "key"
"""Metadata key of the public key with which the node joined last; empty without TLS."""
NEVER = -1
"""The tag of initial private state."""


class NodeStore:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection

    @classmethod
    def create(cls, path: Path) -> NodeStore:
        """Make a new, empty store."""
        return cls(path, node_private_store_file.create(path))

    @classmethod
    def open(cls, path: Path) -> NodeStore:
        return cls(path, node_private_store_file.open_existing(path))

    def refuse_damaged(self) -> None:
        """Read the whole file; StoreError if it is damaged."""
        node_private_store_file.refuse_damaged(self.path, self.connection)

    def close(self) -> None:
        self.connection.close()

    def version(self) -> int:
        """A number that changes when another connection changes the store."""
        (number,) = self.connection.execute("pragma data_version").fetchone()
        return int(number)

    def empty_cache(self) -> None:
        """Free the pages that SQLite has in memory, up to 2 MB of every file."""
        self.connection.execute("pragma shrink_memory")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside, or nothing."""
        with self.connection:
            self.connection.execute("begin immediate")
            yield

    @contextmanager
    def _naming_damage(self) -> Iterator[None]:
        """Values that the store itself never writes come from a damaged or foreign file."""
        try:
            yield
        except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
            raise damaged(self.path, error) from None

    # Users and their interactions

    def put_interactions(self, data: Interactions) -> None:
        """Replace the interactions of the users in `data`; other users stay as they are."""
        users = data.user_ids.astype(str)
        items = data.item_ids.astype(str)
        count = len(data)
        ratings = [None] * count if data.ratings is None else data.ratings.tolist()
        times = [None] * count if data.times is None else data.times.tolist()
        rows = zip(
            users[data.users].tolist(), items[data.items].tolist(), ratings, times, strict=True
        )
        keys = [(user,) for user in users.tolist()]
        with self.transaction():
            self.connection.executemany("delete from did where person = ?", keys)
            self.connection.executemany(
                "insert into person (id) values (?) on conflict do nothing", keys
            )
            self.connection.executemany("insert into did values (?, ?, ?, ?)", rows)

    def interactions(self) -> Interactions:
        rows = self.connection.execute("select person, item, rating, time from did").fetchall()
        if not rows:
            raise RunError(
                f"{self.path} holds no interactions; expected some. "
                "Add them with `coterie join --data FILE`."
            )
        users, items, ratings, times = zip(*rows, strict=True)
        with self._naming_damage():
            return Interactions.from_columns(
                coded_texts(_texts(users)),
                coded_texts(_texts(items)),
                None if None in ratings else np.array(ratings, np.float64),
                None if None in times else np.array(times, np.int64),
            )

    def users(self) -> list[str]:
        rows = self.connection.execute("select id from person order by id").fetchall()
        with self._naming_damage():
            return _texts([user for (user,) in rows])

    def items(self) -> list[str]:
        """The items of all interactions."""
        found = self.connection.execute("select distinct item from did order by item")
        return [item for (item,) in found]

    def export(self, user: str) -> JsonObject:
        """Everything the store holds about a user."""
        self.refuse_unknown(user)
        interactions = self.connection.execute(
            "select item, rating, time from did where person = ? order by time, item", (user,)
        ).fetchall()
        private_state = self.connection.execute(
            "select name, value from kept where person = ? and not pending", (user,)
        ).fetchall()
        spent = self.connection.execute(
            "select run, releases, multiplier from spent where person = ? order by run", (user,)
        ).fetchall()
        evaluated = self.connection.execute(
            "select part, number from evaluated where person = ? order by part", (user,)
        ).fetchall()
        earlier = self.connection.execute(
            "select round, name, value from snapshot where person = ? and not pending "
            "order by round",
            (user,),
        ).fetchall()
        layout = self.layout
        snapshots: dict[str, JsonObject] = {}
        with self._naming_damage():
            for n, name, value in earlier:
                of_round = snapshots.setdefault(str(n), {})
                of_round[name] = read_row(value, layout[name]).tolist()
            rows = {name: read_row(value, layout[name]).tolist() for name, value in private_state}
        return {
            "user_id": user,
            "interactions": [
                {"item_id": item, "rating": rating, "timestamp": time}
                for item, rating, time in interactions
            ],
            "private_state": rows,
            "private_state_after_rounds": snapshots,
            "from_server": {name: row.tolist() for name, row in self.model_rows(user).items()},
            "privacy_spent": [
                {"run": run, "releases": releases, "noise_multiplier": multiplier}
                for run, releases, multiplier in spent
            ],
            "evaluation_groups": dict(evaluated),
        }

    def forget(self, user: str) -> None:
        """Erase a user. The bytes in the file are overwritten.

        Only the user's index stays, until the server of its federation has erased the user, too.
        """
        self.refuse_unknown(user)
        indices = [index for index, name in self.numbers().items() if name == user]
        self._erase([user], indices)

    def release(self, users: Sequence[str]) -> None:
        """Erase users who move to another node. The server keeps them."""
        self._erase(users, [])

    def _erase(self, users: Sequence[str], forgotten: Sequence[int]) -> None:
        tables = (
            ("did", "person"),
            ("kept", "person"),
            ("given", "person"),
            ("spent", "person"),
            ("evaluated", "person"),
            ("snapshot", "person"),
            ("person", "id"),
        )
        keys = [(user,) for user in users]
        with self.transaction():
            if forgotten:
                self.put_list(FORGOTTEN, [*self.held_list(FORGOTTEN), *forgotten])
            # Secrets of a secure aggregation may be about the users, too.
            self.connection.execute("delete from held where name = ?", (RING,))
            for table, column in tables:
                self.connection.executemany(f"delete from {table} where {column} = ?", keys)
        self.connection.execute("vacuum")

    def refuse_unknown(self, user: str) -> None:
        if not self.connection.execute("select 1 from person where id = ?", (user,)).fetchone():
            raise UnknownName("user", user, self.users(), f" in {self.path}")

    # User indices, assigned by the server

    def put_numbers(self, indices: Mapping[str, int]) -> None:
        """Set the index of each user given."""
        with self.transaction():
            self.connection.executemany(
                "update person set number = ? where id = ?",
                [(index, user) for user, index in indices.items()],
            )

    def numbers(self) -> dict[int, str]:
        """User index -> user id, ascending; users without an index are left out."""
        return dict(
            self.connection.execute(
                "select number, id from person where number is not null order by number"
            )
        )

    # Signing keys, by which clients know each other in secure aggregation

    def identities(self, users: Sequence[str]) -> list[Identity]:
        """The signing key of each user; one that has none gets a new one."""
        found = dict(
            self.connection.execute(
                "select id, signing_key from person where signing_key is not null"
            )
        )
        new = {user: Identity.generate().secret for user in users if user not in found}
        if new:
            with self.transaction():
                self.connection.executemany(
                    "update person set signing_key = ? where id = ?",
                    [(secret, user) for user, secret in new.items()],
                )
        return [Identity.from_secret(found.get(user) or new[user]) for user in users]

    def pinned_keys(self) -> list[str]:
        """The public keys of all users by index; empty for a user who had none."""
        return [str(key) for key in self.held_list(PINNED_KEYS)]

    def pin_keys(self, public: Sequence[str]) -> int:
        """Remember public keys by user index; returns how many differ from what was pinned.

        A key that was pinned before does not change, whatever the server says later.
        """
        pinned = self.pinned_keys()
        pinned += [""] * (len(public) - len(pinned))
        n_changed = 0
        for index, key in enumerate(public):
            n_changed += bool(key and pinned[index] and key != pinned[index])
            pinned[index] = pinned[index] or key
        self.put_list(PINNED_KEYS, pinned)
        return n_changed

    # Private state

    def reset(self) -> None:
        """Delete everything that belongs to the previous federation.

        What users' data spent of their privacy stays: it is spent for ever.
        """
        with self.transaction():
            for statement in (
                "delete from kept",
                "delete from given",
                "delete from held",
                "delete from snapshot",
                "delete from about where key in ('layout', 'given', 'snapshots', 'reached', "
                "'rollbacks')",
                "update person set number = null",
            ):
                self.connection.execute(statement)

    @property
    def layout(self) -> dict[str, ArrayLayout]:
        """The layout of each array of the private state."""
        return self._layouts("layout")

    def _layouts(self, key: str) -> dict[str, ArrayLayout]:
        with self._naming_damage():
            return read_layouts(self.meta(key) or "{}")

    def put_initial_state(self, users: Sequence[str], private_state: PrivateState) -> None:
        """Write the initial private state of users who have none."""
        with self.transaction():
            self._write(users, private_state, NEVER, pending=False, overwrite=False)

    def users_with_updates(self) -> set[str]:
        """Users whose committed private state is not the initial one."""
        found = self.connection.execute(
            "select distinct person from kept where not pending and tag != ?", (NEVER,)
        )
        return {user for (user,) in found}

    def delete_private_state(self, users: Sequence[str]) -> None:
        with self.transaction():
            self.connection.executemany(
                "delete from kept where person = ?", [(user,) for user in users]
            )

    def private_state(self, users: Sequence[str]) -> PrivateState:
        """The committed private state, one row for each of the users."""
        return {name: self._read(name, users, layout) for name, layout in self.layout.items()}

    def put_pending(self, users: Sequence[str], private_state: PrivateState, tag: int) -> None:
        """Write what an exchange produced. Users erased meanwhile are left out."""
        with self.transaction():
            known = set(self.users())
            which = np.array([user in known for user in users], bool)
            present = [user for user in users if user in known]
            private_state = {name: rows[which] for name, rows in private_state.items()}
            self._write(present, private_state, tag, pending=True, overwrite=True)

    def commit(self, users: Sequence[str], accepted: Longs) -> Bools:
        """Commit pending state whose tag the server accepted, and drop the rest.

        Returns for each user whether the committed state is the one the server expects. It is not
        where the store or the server was restored from an older copy.
        """
        pairs = list(zip(users, accepted.tolist(), strict=True))
        with self.transaction():
            self.connection.executemany(
                "insert or replace into kept select person, name, 0, tag, value from kept "
                "where person = ? and pending and tag = ?",
                pairs,
            )
            self.connection.executemany(
                "delete from kept where person = ? and pending", [(user,) for user in users]
            )
        if not self.layout:
            return np.ones(len(users), bool)
        tags = dict(
            self.connection.execute(
                "select person, min(tag) from kept where not pending group by person"
            )
        )
        return np.array([tags.get(user, NEVER) == tag for user, tag in pairs], bool)

    # Snapshots of private state, with both generations: the server knows which one counts

    def snapshot_rounds(self) -> list[int]:
        """The rounds after which there is a snapshot, in order."""
        return self.meta_integers(SNAPSHOTS)

    def put_snapshot(self, n: int) -> None:
        """Copy the private state, within a transaction; after n rounds it was as it is now."""
        self.connection.execute(
            "insert or replace into snapshot select ?, person, name, pending, tag, value from kept",
            (n,),
        )
        self._put_snapshot_rounds({*self.snapshot_rounds(), n})

    def drop_snapshots(self, rounds: Sequence[int]) -> None:
        """Delete snapshots, within a transaction."""
        self.connection.executemany("delete from snapshot where round = ?", [(n,) for n in rounds])
        self._put_snapshot_rounds({*self.snapshot_rounds()} - set(rounds))

    def restore_snapshot(self, n: int) -> None:
        """Replace the private state by a snapshot, within a transaction.

        Users who had none then have none now, and begin with the initial one.
        """
        self.connection.execute("delete from kept")
        self.connection.execute(
            "insert into kept select person, name, pending, tag, value from snapshot "
            "where round = ? and person in (select id from person)",
            (n,),
        )

    def _put_snapshot_rounds(self, rounds: set[int]) -> None:
        self.put_meta(**{SNAPSHOTS: json.dumps(sorted(rounds))})

    def _write(
        self,
        users: Sequence[str],
        private_state: PrivateState,
        tag: int,
        *,
        pending: bool,
        overwrite: bool,
    ) -> None:
        layout = self.layout | {name: layout_of(rows) for name, rows in private_state.items()}
        self.put_meta(layout=json.dumps(layout))
        conflict = "replace" if overwrite else "ignore"
        for name, rows in private_state.items():
            self.connection.executemany(
                f"insert or {conflict} into kept values (?, ?, ?, ?, ?)",
                (
                    (user, name, pending, tag, value)
                    for user, value in zip(users, row_bytes(rows), strict=True)
                ),
            )

    def _read(self, name: str, users: Sequence[str], layout: ArrayLayout) -> np.ndarray:
        values = dict(
            self.connection.execute(
                "select person, value from kept where name = ? and not pending", (name,)
            )
        )
        with self._naming_damage():
            return stack_rows([values[user] for user in users], layout)

    # The last model

    def put_model(self, users: Sequence[str], own: PrivateState, common: bytes) -> None:
        """Replace the model: `own` has a row for each of the users, `common` is shared."""
        layouts = {name: layout_of(rows) for name, rows in own.items()}
        with self.transaction():
            known = set(self.users())
            self.connection.execute("delete from given")
            self.put_held(MODEL, common)
            self.put_meta(given=json.dumps(layouts))
            for name, rows in own.items():
                self.connection.executemany(
                    "insert into given values (?, ?, ?)",
                    (
                        (user, name, value)
                        for user, value in zip(users, row_bytes(rows), strict=True)
                        if user in known
                    ),
                )

    def delete_model(self) -> None:
        """Delete the model, within a transaction."""
        self.connection.execute("delete from given")
        self.connection.execute("delete from held where name = ?", (MODEL,))

    def model_rows(self, user: str) -> PrivateState:
        """A user's own rows of the last model."""
        layouts = self._layouts("given")
        values = self.connection.execute("select name, value from given where person = ?", (user,))
        with self._naming_damage():
            return {name: read_row(value, layouts[name]) for name, value in values}

    # Blobs that belong to no single user

    def held(self, name: str) -> bytes | None:
        row = self.connection.execute("select value from held where name = ?", (name,)).fetchone()
        return row[0] if row else None

    def put_held(self, name: str, value: bytes) -> None:
        self.connection.execute("insert or replace into held values (?, ?)", (name, value))

    def held_list(self, name: str) -> list[Any]:
        """A list in a blob; empty if there is none."""
        with self._naming_damage():
            values: object = json.loads(self.held(name) or b"[]")
        if not isinstance(values, list):
            raise damaged(self.path, f"{name} is not a list")
        return values

    def put_list(self, name: str, values: Sequence[object]) -> None:
        self.put_held(name, json.dumps(values).encode())

    # Metadata

    def meta(self, key: str) -> str | None:
        row = self.connection.execute("select value from about where key = ?", (key,)).fetchone()
        return row[0] if row else None

    def meta_integer(self, key: str, default: int) -> int:
        with self._naming_damage():
            return int(self.meta(key) or default)

    def meta_integers(self, key: str) -> list[int]:
        """A list of integers in metadata; empty if there is none."""
        with self._naming_damage():
            return [int(value) for value in json.loads(self.meta(key) or "[]")]

    def put_meta(self, **values: str) -> None:
        self.connection.executemany("insert or replace into about values (?, ?)", values.items())


def _texts(values: Sequence[object]) -> list[str]:
    """Ids as they are in the file; SQLite would return any type."""
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < len(values):
        raise TypeError("an id is not a text")
    return texts
