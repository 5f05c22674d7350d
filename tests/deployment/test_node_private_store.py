"""A node's store: owner-only access, two generations of private state, and complete erasure."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.deployment import node_private_store_file as file
from coterie.deployment.fleet.join import NodeUsers
from coterie.deployment.node_private_store import NEVER, NodeStore
from coterie.errors import RunError, UnknownName

USERS = ["ann", "bob", "cem"]


@pytest.fixture
def store(tmp_path: Path) -> NodeStore:
    made = NodeStore.create(tmp_path / "node.db")
    made.put_interactions(
        Interactions.from_columns(
            ["ann", "ann", "bob", "cem"],
            ["x", "y", "y", "secret-item"],
            [5, 3, 4, 1],
            [10, 20, 30, 40],
        )
    )
    return made


def rows(*values: float) -> dict[str, np.ndarray]:
    return {"user_rows": np.array([[value, -value] for value in values], np.float32)}


def first(store: NodeStore) -> list[float]:
    return store.private_state(USERS)["user_rows"][:, 0].tolist()


def test_only_the_owner_can_read_it(store: NodeStore):
    assert store.path.stat().st_mode & 0o777 == 0o600
    store.path.chmod(0o640)
    with pytest.raises(RunError, match="can be read by others \\(mode 640\\); expected 600"):
        NodeStore.open(store.path)


def test_it_persists(store: NodeStore):
    store.put_initial_state(USERS, rows(1, 2, 3))
    store.put_numbers({"cem": 7, "ann": 2})
    store.close()
    again = NodeStore.open(store.path)
    assert again.users() == USERS
    assert again.numbers() == {2: "ann", 7: "cem"}
    assert first(again) == [1, 2, 3]
    data = again.interactions()
    columns = (data.user_ids[data.users], data.item_ids[data.items], data.ratings, data.times)
    assert sorted(zip(*columns, strict=True)) == [
        ("ann", "x", 5, 10),
        ("ann", "y", 3, 20),
        ("bob", "y", 4, 30),
        ("cem", "secret-item", 1, 40),
    ]


def test_pending_state_is_committed_once_it_is_accepted(store: NodeStore):
    store.put_initial_state(USERS, rows(1, 2, 3))
    store.put_pending(USERS, rows(10, 20, 30), tag=5)
    assert first(store) == [1, 2, 3]
    assert store.commit(USERS, np.array([5, NEVER, 5])).all()
    assert first(store) == [10, 2, 30]


def test_an_exchange_can_be_repeated(store: NodeStore):
    """The server crashed before it committed the round, and repeats it."""
    store.put_initial_state(USERS, rows(1, 2, 3))
    store.put_pending(USERS, rows(10, 20, 30), tag=5)
    assert store.commit(USERS, np.full(3, NEVER)).all()
    assert first(store) == [1, 2, 3]
    store.put_pending(USERS, rows(11, 21, 31), tag=5)
    assert store.commit(USERS, np.full(3, 5)).all()
    assert first(store) == [11, 21, 31]
    assert store.commit(USERS, np.full(3, 5)).all()
    assert first(store) == [11, 21, 31]


def test_outdated_state_is_detected(store: NodeStore):
    store.put_initial_state(USERS, rows(1, 2, 3))
    assert store.commit(USERS, np.array([NEVER, 9, NEVER])).tolist() == [True, False, True]


def test_initial_state_is_not_overwritten(store: NodeStore):
    store.put_initial_state(USERS, rows(1, 2, 3))
    store.put_initial_state(USERS, rows(7, 7, 7))
    assert first(store) == [1, 2, 3]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=8))
def test_any_sequence_of_accepted_lost_and_repeated_exchanges(tmp_path_factory, course):
    """A model with one user. `accepted`: the server accepted the exchange; `repeated`: it was sent
    twice."""
    store = NodeStore.create(tmp_path_factory.mktemp("store") / "node.db")
    store.put_interactions(Interactions.from_columns(["ann"], ["x"]))
    store.put_initial_state(["ann"], rows(0))
    expected = 0.0
    last = NEVER
    for tag, (accepted, repeated) in enumerate(course):
        for _ in range(1 + repeated):
            assert store.commit(["ann"], np.array([last])).all()
            now = float(store.private_state(["ann"])["user_rows"][0, 0])
            assert now == expected
            store.put_pending(["ann"], rows(now + tag + 1), tag)
        if accepted:
            expected = expected + tag + 1
            last = tag
    store.commit(["ann"], np.array([last]))
    assert float(store.private_state(["ann"])["user_rows"][0, 0]) == expected


def test_export_holds_everything_about_a_user(store: NodeStore):
    store.put_initial_state(USERS, rows(1, 2, 3))
    assert store.export("ann") == {
        "user_id": "ann",
        "interactions": [
            {"item_id": "x", "rating": 5.0, "timestamp": 10},
            {"item_id": "y", "rating": 3.0, "timestamp": 20},
        ],
        "private_state": {"user_rows": [1.0, -1.0]},
        "private_state_after_rounds": {},
        "from_server": {},
        "privacy_spent": [],
        "evaluation_groups": {},
    }


def test_an_erased_user_is_not_in_the_file(store: NodeStore):
    store.put_initial_state(USERS, rows(1, 2, 3))
    store.put_pending(USERS, rows(4, 5, 6), tag=1)
    assert b"secret-item" in store.path.read_bytes()
    store.forget("cem")
    store.close()
    left = b"".join(path.read_bytes() for path in store.path.parent.iterdir())
    assert b"secret-item" not in left
    assert b"cem" not in left
    assert NodeStore.open(store.path).users() == ["ann", "bob"]


def test_unknown_users_are_refused(store: NodeStore):
    for command in (store.export, store.forget):
        with pytest.raises(UnknownName, match="dave"):
            command("dave")


def test_a_file_replaces_the_interactions_of_its_users(store: NodeStore):
    store.put_interactions(Interactions.from_columns(["bob"], ["z"], [1], [50]))
    assert [line["item_id"] for line in store.export("bob")["interactions"]] == ["z"]
    assert len(store.export("ann")["interactions"]) == 2


def test_other_files_are_refused(tmp_path: Path):
    with pytest.raises(RunError, match="does not exist"):
        NodeStore.open(tmp_path / "nowhere.db")
    other = tmp_path / "other.db"
    other.write_bytes(b"this is not a database " * 100)
    other.chmod(0o600)
    with pytest.raises(RunError, match="is not a node's store"):
        NodeStore.open(other)
    with pytest.raises(RunError, match="exists already"):
        NodeStore.create(other)


CACHED = """
import sys
from pathlib import Path
from coterie.core.heap import return_free_memory
from coterie.deployment.node_private_store import NodeStore

def kilobytes():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if "VmRSS" in line)

store = NodeStore.create(Path(sys.argv[1]))
with store.transaction():
    for n in range(30_000):
        row = "run", f"exchange 0 of round {n}", bytes(32), 1
        store.connection.execute("insert into answered values (?, ?, ?, ?)", row)
before = kilobytes()
store.empty_cache()
return_free_memory()
print(before - kilobytes())
"""
"""Prints by how many kilobytes a process shrinks whose store has 3 MB."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_of_the_file_leave_memory(tmp_path: Path):
    command = [sys.executable, "-c", CACHED, str(tmp_path / "node.db")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert int(done.stdout) > 1_500


def test_a_late_process_does_not_restore_an_erased_user(store: NodeStore):
    """A user was erased while a message was being answered."""
    store.put_initial_state(USERS, rows(1, 2, 3))
    store.forget("bob")
    store.put_pending(USERS, rows(4, 5, 6), tag=1)
    store.put_model(USERS, rows(7, 8, 9), b"model")
    assert store.commit(["ann", "cem"], np.array([1, 1])).all()
    assert store.private_state(["ann", "cem"])["user_rows"][:, 0].tolist() == [4, 6]
    assert store.model_rows("bob") == {}
    assert store.model_rows("cem")["user_rows"].tolist() == [9, -9]
    for table in ("kept", "given", "did"):
        assert not store.connection.execute(
            f"select 1 from {table} where person = 'bob'"
        ).fetchall()


def test_a_text_file_is_refused(tmp_path: Path):
    table = tmp_path / "mine.csv"
    table.write_text("user_id,item_id")
    with pytest.raises(RunError, match="is not a node's store"):
        NodeStore.open(table)


def test_a_node_reads_its_file_with_the_options_of_every_other_command(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes("José;b7;4\nAda;b7;5\nAda;b9;1\n".encode("latin-1"))
    columns = {"user_id": "1", "item_id": "2", "rating": "3"}
    options = ReadOptions(columns, encoding="latin-1", delimiter=";", header=False)
    with closing(NodeStore.create(tmp_path / "node.db")) as store:
        users = NodeUsers(path, options)
        users.put(store, users.read())
        assert sorted(store.users()) == ["Ada", "José"]
        assert len(store.interactions()) == 3


def with_version(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma user_version = {version}")


def version_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("pragma user_version").fetchone()[0])


def migrate_to(monkeypatch: pytest.MonkeyPatch, *migrations: file.Migration) -> None:
    """As in a later version of Coterie, which changed the tables."""
    monkeypatch.setattr(file, "MIGRATIONS", (*TODAY, *migrations))
    monkeypatch.setattr(file, "VERSION", 1 + len(file.MIGRATIONS))


TODAY = file.MIGRATIONS


def add_column(connection: sqlite3.Connection) -> None:
    connection.execute("alter table person add column since integer")


def fill_column(connection: sqlite3.Connection) -> None:
    connection.execute("update person set since = 7")


def test_a_store_of_an_earlier_version_is_migrated(store: NodeStore, monkeypatch):
    """All migrations, in their order; the users and their state stay."""
    store.put_initial_state(USERS, rows(1, 2, 3))
    store.close()
    migrate_to(monkeypatch, add_column, fill_column)
    with closing(NodeStore.open(store.path)) as migrated:
        assert migrated.users() == USERS
        assert first(migrated) == [1, 2, 3]
        assert migrated.connection.execute("select distinct since from person").fetchall() == [(7,)]
    assert version_of(store.path) == 3 + len(TODAY)
    NodeStore.open(store.path).close()  # not migrated again: the column exists


def test_a_store_of_the_first_version_gets_signing_keys(store: NodeStore):
    pytest.importorskip("cryptography")
    for table in ("spent", "asked", "answered", "evaluated", "snapshot"):
        store.connection.execute(f"drop table {table}")
    store.connection.execute("alter table person drop column signing_key")
    store.connection.execute("pragma user_version = 1")
    store.close()
    with closing(NodeStore.open(store.path)) as migrated:
        keys = [identity.public for identity in migrated.identities(USERS)]
        assert len(set(keys)) == len(USERS)
        assert [identity.public for identity in migrated.identities(USERS)] == keys
    assert version_of(store.path) == file.VERSION


def test_only_the_missing_migrations_are_applied(store: NodeStore, monkeypatch):
    store.close()
    migrate_to(monkeypatch, add_column)
    NodeStore.open(store.path).close()
    migrate_to(monkeypatch, add_column, fill_column)
    with closing(NodeStore.open(store.path)) as migrated:
        assert migrated.connection.execute("select distinct since from person").fetchall() == [(7,)]


def test_a_migration_that_fails_changes_nothing(store: NodeStore, monkeypatch):
    def fail(connection: sqlite3.Connection) -> None:
        raise KeyboardInterrupt

    store.close()
    before = store.path.read_bytes()
    migrate_to(monkeypatch, add_column, fail)
    with pytest.raises(KeyboardInterrupt):
        NodeStore.open(store.path)
    assert store.path.read_bytes() == before


def test_the_version_belongs_to_the_tables(store: NodeStore):
    """A new store has the newest version, so that no migration is applied to it."""
    assert version_of(store.path) == file.VERSION == 1 + len(file.MIGRATIONS)


def test_a_store_of_a_later_version_is_refused(store: NodeStore):
    store.close()
    with_version(store.path, file.VERSION + 1)
    expected = (
        f"has version {file.VERSION + 1}, of a later Coterie; expected at most {file.VERSION}. "
        "Update coterie"
    )
    with pytest.raises(RunError, match=expected):
        NodeStore.open(store.path)


def test_a_database_that_is_no_store_is_refused(tmp_path: Path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table other (a)")
    path.chmod(0o600)
    with pytest.raises(RunError, match=r"has version 0; expected 1 to .* Name another file"):
        NodeStore.open(path)
