"""A store keeps its key and its users: another key is refused, other users are pointed out."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from node_keys import add_node, key_of, make_keys, replace_key

pytest.importorskip("cryptography")
from coterie.deployment.fleet.join import describe_added, refuse_other_key
from coterie.deployment.fleet.keys import NodeKey
from coterie.deployment.node_private_store import JOINED_WITH, NodeStore
from coterie.errors import ConfigError


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
