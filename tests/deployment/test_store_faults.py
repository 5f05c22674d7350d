"""A node's store that is damaged, full or cannot be written: errors with a remedy, and no loop."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.test_server import InProcessNodes, new_federation, served
from deployment.test_signing_keys import Log

from coterie.cli.main import main
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.deployment import node_private_store_faults, node_private_store_file
from coterie.deployment.fleet.join import NodeUsers, _put
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import NodeService
from coterie.errors import RunError, StoreError
from coterie.serving.sources import StoreFile

PAGE = 4096


@pytest.fixture
def path(people: Interactions, tmp_path: Path) -> Path:
    """The store of a node that has a model."""
    terms, paths = new_federation("pfpl+", people, tmp_path, 1)
    served(tmp_path, terms, InProcessNodes(paths))
    return paths[0]


def damage(path: Path) -> None:
    """Overwrite all but the first page, as a failing disk may."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(os.urandom(size - PAGE))


USES: dict[str, Callable[[Path], Any]] = {
    "list": lambda path: NodeStore.open(path).users(),
    "export": lambda path: NodeStore.open(path).export("u1"),
    "forget": lambda path: NodeStore.open(path).forget("u1"),
    "interactions": lambda path: NodeStore.open(path).interactions(),
    "recommend": lambda path: NodeService(NodeStore.open(path)).recommend("u1"),
    "answer": lambda path: NodeService(NodeStore.open(path)).load(),
    "api": lambda path: StoreFile(path).load(),
    "check": lambda path: NodeStore.open(path).refuse_damaged(),
}


@pytest.mark.parametrize("use", USES)
def test_a_damaged_store_is_named_with_a_remedy(use: str, path: Path):
    damage(path)
    with pytest.raises(
        StoreError, match=r"0\.db is damaged \(.*\); expected .* from a backup"
    ) as e:
        USES[use](path)
    assert "\n" not in str(e.value)


def test_damage_of_any_page_is_found_before_a_node_joins(path: Path, tmp_path: Path):
    """Also of pages that are used late or never, such as those of private state."""
    data = tmp_path / "mine.csv"
    data.write_text("user_id,item_id\nann,x\n")
    whole = path.read_bytes()
    found = 0
    for place in range(PAGE, len(whole), 8 * PAGE):
        path.write_bytes(whole[:place] + b"\xff" * 64 + whole[place + 64 :])
        with contextlib.suppress(StoreError):
            _put(NodeUsers(data, ReadOptions()), path)
            continue
        found += 1
    assert found > 0.9 * len(range(PAGE, len(whole), 8 * PAGE))


def test_stored_terms_that_cannot_be_read_are_damage(path: Path):
    with closing(NodeStore.open(path)) as store:
        store.put_meta(terms="{", layout="{")
        with pytest.raises(StoreError, match="is damaged"):
            NodeService(store).load()
        with pytest.raises(StoreError, match="is damaged"):
            store.export(store.users()[0])


def test_a_text_that_is_no_text_is_damage(path: Path):
    with closing(NodeStore.open(path)) as store:
        store.connection.execute("insert into person (id) values (cast(x'ff' as text))")
        with pytest.raises(StoreError, match="Could not decode"):
            store.users()


def test_a_full_disk_is_named_and_nothing_is_lost(path: Path):
    store = NodeStore.open(path)
    users = store.users()
    (pages,) = store.connection.execute("pragma page_count").fetchone()
    store.connection.execute(f"pragma max_page_count = {pages}")
    many = [f"item {k}" for k in range(10_000)]
    with pytest.raises(StoreError, match=r"disk is full.*Free some space, and start the command"):
        store.put_interactions(Interactions.from_columns(["ann"] * len(many), many))
    store.close()
    with closing(NodeStore.open(path)) as again:
        assert again.users() == users
        again.refuse_damaged()


def test_a_store_that_cannot_be_written(path: Path):
    with closing(NodeStore.open(path)) as store:
        store.connection.execute("pragma query_only = on")
        with pytest.raises(StoreError, match=r"readonly.*Make the file and its folder writable"):
            store.put_meta(a="b")


def test_a_store_that_is_in_use_is_no_fault(path: Path, monkeypatch):
    """The node goes on: the other process will end."""
    monkeypatch.setattr(node_private_store_faults, "BUSY_SECONDS", 0.05)
    with closing(NodeStore.open(path)) as one, closing(NodeStore.open(path)) as two:
        with one.transaction(), pytest.raises(RunError, match="in use by another process") as busy:
            two.put_meta(a="b")
        assert not isinstance(busy.value, StoreError)
        two.put_meta(a="b")


def test_a_bug_is_not_hidden(path: Path):
    with (
        closing(NodeStore.open(path)) as store,
        pytest.raises(sqlite3.OperationalError, match="no such table"),
    ):
        store.connection.execute("select * from unknown")


def test_a_store_that_could_not_be_made_leaves_no_file(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(node_private_store_file, "TABLES", "create table broken")
    with pytest.raises(sqlite3.OperationalError):
        NodeStore.create(tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()


@pytest.mark.parametrize(
    "command", [["node", "list"], ["node", "export"], ["node", "forget"], ["recommend", "--node"]]
)
def test_commands_end_with_one_line(command, path: Path, capsys, monkeypatch):
    damage(path)
    user = {"list": [], "--node": ["--user", "u1"]}.get(command[1], ["u1"])
    monkeypatch.setattr(sys, "argv", ["coterie", *command, str(path), *user])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {path} is damaged")


@pytest.mark.slow
def test_a_node_whose_store_fails_stops_and_tells_the_server():
    pytest.importorskip("flwr")
    from deployment.test_fleet import served as serving

    from coterie.deployment.fleet.node_loop import NodeLoop

    def answer(kind: str, body: bytes) -> bytes:
        raise StoreError("mine.db is damaged")

    raised: list[Exception] = []
    log = Log()

    def run(loop: NodeLoop) -> None:
        try:
            loop.run()
        except StoreError as error:
            raised.append(error)

    with serving(deadline=30) as server:
        loop = NodeLoop(server.client(), answer, log)
        thread = threading.Thread(target=run, args=[loop], daemon=True)
        thread.start()
        (name,) = server.wait_for(1)
        began = time.monotonic()
        assert server.nodes.send("train", {name: b"x"}) == {}
        assert time.monotonic() < began + 10  # long before the deadline
        thread.join(10)
        assert not thread.is_alive()
    assert [str(error) for error in raised] == ["mine.db is damaged"]
    assert log.lines == [f"connected to {server.address}; answers when the server asks"]


def test_private_state_survives_the_faults_of_others(path: Path):
    """The wrapped connection reads what was written: rows, tags and order."""
    with closing(NodeStore.open(path)) as store:
        users = store.users()
        state = store.private_state(users)
        assert state
        assert all(len(rows) == len(users) for rows in state.values())
        assert np.isfinite(next(iter(state.values()))).all()
