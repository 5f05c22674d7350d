"""The commands about a node's users: erase them, and move them to another node."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Done

from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import UserIndices
from coterie.deployment.node_private_store import FORGOTTEN, NodeStore

pytest.importorskip("cryptography")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A node with two users, which belongs to a federation."""
    made = NodeStore.create(tmp_path / "ann.db")
    made.put_interactions(
        Interactions.from_columns(["42", "43", "42"], ["x", "y", "z"], [4.0, 5.0, 1.0], [1, 2, 3])
    )
    made.put_meta(run="a run", node="ann")
    made.put_numbers(UserIndices({"42": 6, "43": 7}, 9, [6, 7], 3).numbers)
    made.close()
    return made.path


def test_users_move_to_another_node(coterie: Callable[..., Done], store: Path, tmp_path: Path):
    coterie("node", "key", "ann")
    before = json.loads(coterie("node", "export", "ann.db", "42").out)
    done = coterie(
        *("node", "transfer", "ann.db", "42", "--to", "bob"),
        *("--key", "ann.key", "--out", "42.package"),
    )
    assert done.code == 0, done.err
    assert "coterie node receive STORE 42.package" in done.out
    assert (tmp_path / "42.package").stat().st_mode & 0o777 == 0o600
    assert coterie("node", "list", "ann.db").out == "43\n"
    assert b"42" not in store.read_bytes()
    signed = ("--key", "ann.key")
    again = coterie("node", "transfer", "ann.db", "43", "--to", "bob", "--out", "42.package")
    assert (again.code, "Add --key ann.key." in again.err) == (2, True)
    call = ("node", "transfer", "ann.db", "43", "--to", "bob", "--out", "42.package", *signed)
    assert "cannot be created (File exists)" in coterie(*call).err
    call = ("node", "transfer", "ann.db", "43", "--to", "ann", "--out", "43.package", *signed)
    assert "--to is ann, where the users are" in coterie(*call).err
    assert coterie("node", "list", "ann.db").out == "43\n"
    cem = NodeStore.create(tmp_path / "cem.db")
    cem.put_meta(node="cem")
    done = coterie("node", "receive", "cem.db", "42.package")
    assert "42.package is for node bob, and cem.db belongs to cem" in done.err
    assert (tmp_path / "42.package").exists()
    done = coterie("node", "receive", "bob.db", "42.package")
    assert "Moved to bob.db: 42." in done.out
    assert not (tmp_path / "42.package").exists()
    assert json.loads(coterie("node", "export", "bob.db", "42").out) == before
    opened = NodeStore.open(tmp_path / "bob.db")
    assert (opened.numbers(), opened.meta("run")) == ({6: "42"}, "a run")


def test_an_erased_user_leaves_an_index(coterie: Callable[..., Done], store: Path):
    done = coterie("node", "forget", "ann.db", "42")
    assert "The server erases the user, too: before its next round" in done.out
    assert NodeStore.open(store).held_list(FORGOTTEN) == [6]
    assert b"42" not in store.read_bytes()


def test_unknown_users_and_files(coterie: Callable[..., Done], store: Path):
    coterie("node", "key", "ann")
    done = coterie(
        *("node", "transfer", "ann.db", "44", "--to", "bob", "--out", "44.package"),
        *("--key", "ann.key"),
    )
    assert (done.code, "unknown user '44'" in done.err) == (2, True)
    done = coterie("node", "receive", "bob.db", "44.package")
    assert (done.code, "44.package does not exist" in done.err) == (2, True)
    done = coterie("federation", "transfer", "runs/none", "--from", "a", "--to", "b")
    assert (done.code, "runs/none has no users" in done.err) == (2, True)
