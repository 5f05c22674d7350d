"""The commands for certificates and keys: what they print, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from calling import Done

from coterie.cli import screen

pytest.importorskip("cryptography")


@pytest.fixture
def folder(coterie: Callable[..., Done], tmp_path: Path) -> Path:
    done = coterie("federation", "init", "keys", "--host", "fed.example")
    assert done.code == 0, done.err
    assert "coterie federation invite keys" in done.out
    for call in (("node", "key", "ann"), ("federation", "add", "keys", "ann", "ann.pub")):
        done = coterie(*call)
        assert done.code == 0, done.err
    return tmp_path / "keys"


def test_keys_from_their_creation_to_their_end(coterie: Callable[..., Done], folder: Path):
    made = coterie("node", "key", "bob")
    done = coterie("federation", "add", "keys", "bob", "bob.pub", "--days", "30")
    before = json.loads(coterie("federation", "list", "keys", "--json").out)["keys"][1]
    # What both sides compare over another channel.
    for shown in (made.out, done.out):
        assert before["fingerprint"] in shown
    assert before["days_left"] == 29
    coterie("node", "key", "bob-2", "--replaces", "bob.key")
    done = coterie("federation", "rotate", "keys", "bob", "bob-2.pub", "--days", "10")
    assert done.code == 0, done.err
    assert before["fingerprint"] not in done.out
    listed = json.loads(coterie("federation", "list", "keys", "--json").out)
    assert [(key["name"], key["days_left"]) for key in listed["keys"]] == [
        ("ann", None),
        ("bob", 9),
    ]
    assert coterie("federation", "revoke", "keys", "bob").out == "Revoked bob.\n"
    listed = json.loads(coterie("federation", "list", "keys", "--json").out)
    assert [key["name"] for key in listed["keys"]] == ["ann"]


@pytest.mark.parametrize("width", ["60", "100"])
def test_the_list_shows_whole_fingerprints(
    width: str, coterie: Callable[..., Done], folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Half a fingerprint is no proof: they are compared between two machines."""
    monkeypatch.setattr(screen.out, "width", int(width))
    shown = coterie("federation", "list", "keys").out
    listed = json.loads(coterie("federation", "list", "keys", "--json").out)
    for entry in (*listed["certificates"], *listed["keys"]):
        assert entry["fingerprint"] in shown
    assert "fed.example, 127.0.0.1" in shown
    assert "824 days" in shown
    assert "never" in shown


def test_a_renewal_adds_hosts(coterie: Callable[..., Done], folder: Path):
    done = coterie("federation", "renew", "keys", "--host", "10.0.0.5", "--host", "fed.example")
    assert done.out == (
        "Renewed keys/server.pem for fed.example, 127.0.0.1, 10.0.0.5: 824 days left. "
        "Restart coterie serve.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("rotate", "keys", "cem", "ann.pub"), "expected an admitted node (ann)"),
        (("add", "keys", "ann", "ann.pub"), "coterie federation rotate keys ann"),
        (("add", "keys", "bob", "bob.pub"), "On the node, run: coterie node key NAME"),
        (("add", "keys", "bob", "ann.pub"), "is the key of ann already"),
        (("invite", "nowhere", "-c", "fed.yaml", "--server", "h:1"), "nowhere holds no ca.pem"),
        (("invite", "keys", "-c", "fed.yaml", "--server", "h:1"), "renew keys --host h"),
        (("renew", "nowhere"), "nowhere holds no ca.key"),
        (("renew", "keys", "--host", "0.0.0.0"), "by which nodes reach the server"),
        (("list", "nowhere"), "nowhere holds no ca.pem"),
        (("doctor", "--server", "nowhere"), "expected HOST:PORT"),
        (("doctor", "--server", "h:1", "--key", "ann.key"), "without --invitation or --ca"),
        (("doctor", "--server", "h:1", "--ca", "keys/ca.key"), "is not a certificate"),
    ],
)
def test_mistakes(coterie: Callable[..., Done], folder: Path, arguments, message: str):
    (folder.parent / "fed.yaml").write_text("algorithm: fcf\nitems: items.csv\n")
    assert message in coterie("federation", *arguments).error


@pytest.mark.parametrize("days", ["0", "-1", "soon"])
def test_days_are_positive(coterie: Callable[..., Done], folder: Path, days: str):
    coterie("node", "key", "bob")
    assert coterie("federation", "add", "keys", "bob", "bob.pub", "--days", days).code == 2
    assert not (folder / "nodes" / "bob.pub").exists()
