"""A store keeps its key and its users: another key is refused, other users are pointed out."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from deployment.test_fleet import free_port
from node_keys import add_node, key_of, make_keys, replace_key

pytest.importorskip("cryptography")
from coterie.core.progress import SILENT
from coterie.data.options import ReadOptions
from coterie.deployment.fleet.join import (
    RESTARTED,
    NodeUsers,
    describe_added,
    join,
    refuse_other_key,
)
from coterie.deployment.fleet.keys import NodeKey
from coterie.deployment.fleet.node_loop import NodeLoop
from coterie.deployment.node_private_store import JOINED_WITH, NodeStore
from coterie.errors import ConfigError, DataError


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["127.0.0.1"], ["ann", "bob"])
    return tmp_path / "keys"


@pytest.fixture
def store(tmp_path: Path, keys: Path) -> Path:
    """A store that joined with ann's key."""
    path = tmp_path / "ann.db"
    with closing(NodeStore.create(path)) as made:
        made.put_meta(**{JOINED_WITH: public_of(key_of(keys, "ann"))})
    return path


def public_of(key: Path) -> str:
    return NodeKey.read(key).public.decode()


def test_the_same_key_is_accepted(store: Path, keys: Path):
    key = key_of(keys, "ann")
    refuse_other_key(store, key, public_of(key))


def test_a_new_store_accepts_any_key(tmp_path: Path, keys: Path):
    key = key_of(keys, "bob")
    refuse_other_key(tmp_path / "new.db", key, public_of(key))


def test_the_key_of_another_node_is_refused(store: Path, keys: Path):
    key = key_of(keys, "bob")
    with pytest.raises(ConfigError, match=r"ann.db joined with the key SHA256:.*--new-key"):
        refuse_other_key(store, key, public_of(key))


def test_a_key_that_the_old_one_signed_is_accepted(store: Path, keys: Path):
    key = replace_key(keys, "ann")
    key.with_suffix(".pub").write_bytes(key_of(keys, "ann-next").with_suffix(".pub").read_bytes())
    refuse_other_key(store, key, public_of(key))


def test_a_key_that_another_one_signed_is_refused(store: Path, keys: Path):
    add_node(keys, "cem")
    replace_key(keys, "bob")
    key = key_of(keys, "cem")
    signed = key_of(keys, "bob-next").with_suffix(".pub")
    key.with_suffix(".pub").write_bytes(signed.read_bytes())
    with pytest.raises(ConfigError, match="--new-key"):
        refuse_other_key(store, key, public_of(key))


def test_users_that_a_file_adds_are_counted():
    assert describe_added(set(), {"a"}) == ()
    assert describe_added({"a", "b"}, {"b", "a"}) == ()
    assert describe_added({"a", "b", "c"}, {"b", "d"}) == (
        "1 user added; 2 that the file lacks stay",
    )
    (line,) = describe_added({"a"}, {"b", "c"})
    assert line.startswith("2 users added; 1 that the file lacks stay. None of the file's users")


@pytest.mark.parametrize("restarted", [False, True])
def test_only_a_first_start_needs_the_file_of_users(
    restarted: bool, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A node that restarts itself has its users in the store; their file may be gone by then."""

    class Reached(Exception):
        pass

    def run(loop: NodeLoop) -> None:
        raise Reached

    monkeypatch.setattr(NodeLoop, "run", run)
    if restarted:
        monkeypatch.setenv(RESTARTED, "1")
    users = NodeUsers(tmp_path / "gone.csv", ReadOptions())
    server = f"127.0.0.1:{free_port()}"
    with pytest.raises(Reached if restarted else DataError):
        join(users, store, server, (None, None), True, SILENT)
