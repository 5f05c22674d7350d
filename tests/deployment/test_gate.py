"""The gate: what is refused before a body is read, and what of it passes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import pytest

pytest.importorskip("flwr")
from hypothesis import given
from hypothesis import strategies as st

from coterie.deployment.fleet import gate as gates
from coterie.deployment.fleet.gate import SMALL, Gate
from coterie.deployment.fleet.keys import NodeKey, fingerprint_of_public
from coterie.deployment.fleet.link import Link
from coterie.deployment.fleet.messages import (
    CALLS,
    PREFIX,
    PULL_MESSAGES,
    PUSH_OBJECT,
    REGISTER,
    make,
)

KEY = NodeKey.new()
OTHER = NodeKey.new()
LINK = Link()


class OpenGate(Gate):
    """A gate that remembers the bodies that it lets pass, and answers nothing."""

    def __init__(self) -> None:
        super().__init__(LINK, lambda public: public == KEY.public, keyed=True)
        self.bodies: list[bytes] = []

    async def _answer(self, call, body: bytes) -> bytes:
        self.bodies.append(body)
        return b"ok"


def call(
    path: str,
    parts: Iterable[bytes | None] = (b"",),
    method: str = "POST",
    key: NodeKey = KEY,
    pause: float = 0.0,
    **changes: str,
) -> tuple[int, list[bytes], Gate, int]:
    """The status, what passed, the gate, and how many parts of the body were read."""
    gate = OpenGate()
    headers = key.headers(0.0) | {name.replace("_", "-"): text for name, text in changes.items()}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), text.encode()) for name, text in headers.items()],
    }
    waiting = list(parts)
    read = 0
    sent: list[dict] = []

    async def receive() -> dict:
        nonlocal read
        if pause:
            await asyncio.sleep(pause)
        read += 1
        part = waiting.pop(0)
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": bool(waiting)}

    async def send(event: dict) -> None:
        sent.append(event)

    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], gate.bodies, gate, read


@pytest.mark.parametrize("name", CALLS)
def test_calls_of_nodes_pass(name: str):
    status, bodies, gate, _ = call(PREFIX + name, [b"one ", b"two"])
    assert (status, bodies) == (200, [b"one two"])
    assert not gate.refused


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/", "POST"),
        ("/v1/control/start-run", "POST"),
        ("/v1/runtime/pull-task-input", "POST"),
        ("/v1/fleet/get-fab", "POST"),
        ("/v1/fleet/get-run", "POST"),
        ("/v1/fleet/unregister-node", "POST"),
        ("/v1/fleet/../control/start-run", "POST"),
        ("/v1/fleet/pull-messages/", "POST"),
        ("pull-messages", "POST"),
        (PREFIX + PULL_MESSAGES, "GET"),
        ("/docs", "GET"),
        ("/openapi.json", "GET"),
    ],
)
def test_other_calls_are_not_read(path: str, method: str):
    status, bodies, gate, read = call(path, [b"x"], method)
    assert (status, bodies, read) == (404, [], 0)
    assert gate.refused == {"not a node's call": 1}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"flwr_public_key": "not base64!"}, 401),
        ({"flwr_public_key": ""}, 401),
        ({"flwr_public_key": base64.b64encode(OTHER.public).decode()}, 401),
        ({"content_length": str(SMALL + 1)}, 413),
        ({"content_length": "-1"}, 413),
        ({"content_length": "9" * 5000}, 413),
        ({"content_length": "many"}, 413),
        ({"flwr_signature": base64.b64encode(b"wrong").decode()}, 401),
        ({"flwr_timestamp": "2026-01-01T00:00:00+00:00"}, 401),
        ({"flwr_timestamp": "2026-01-01T00:00:00"}, 401),
        ({"flwr_timestamp": "now"}, 401),
    ],
)
def test_what_the_headers_tell_is_refused_before_the_body_is_read(
    changes: dict[str, str], status: int
):
    found, bodies, gate, read = call(PREFIX + PUSH_OBJECT, [b"x"], **changes)
    assert (found, bodies, read) == (status, [], 0)
    assert sum(gate.refused.values()) == 1


def test_who_was_refused_last():
    _, _, gate, _ = call(PREFIX + PULL_MESSAGES, [b"x"], key=OTHER)
    fingerprint = fingerprint_of_public(OTHER.public)
    assert f"with key {fingerprint}, 20" in gate.last_refused["unknown key"]
    _, _, gate, _ = call(PREFIX + PULL_MESSAGES, [b"x"], flwr_public_key="garbage!")
    assert "an unknown address without a key" in gate.last_refused["malformed authentication"]


def test_a_body_that_grows_is_refused_when_it_is_too_large():
    status, bodies, _, read = call(PREFIX + PULL_MESSAGES, [b"x" * SMALL, b"x", b"x"])
    assert (status, bodies, read) == (413, [], 2)


@pytest.mark.parametrize(("kind", "most"), [("enrol", 1 << 26), ("train", 1 << 28)])
def test_a_reply_is_as_large_as_what_is_due(kind: str, most: int):
    """Nothing large is read of a node that has nothing to answer."""
    link = Link()
    node_id = link.register(KEY.public)
    link.received_activation(KEY.public)
    link.state.activate_node(node_id, 30)
    assert link.due(KEY.public) == 0
    assert link.post(node_id, kind, b"x", 30)
    assert link.due(KEY.public) == most
    assert link.due(OTHER.public) == 0
    link.withdraw(node_id)
    assert link.due(KEY.public) == 0


def test_a_node_pushes_no_more_than_its_users_updates_take():
    """A reply of 200 MB where kilobytes are due is refused by its announced length."""
    link = Link()
    node_id = link.register(KEY.public)
    link.received_activation(KEY.public)
    link.state.activate_node(node_id, 30)
    link.post(node_id, "train", b"x", 30)
    link.most_bytes[node_id, "train"] = 70_000
    gate = Gate(link, lambda public: True, keyed=True)
    large = {"content-length": "200000000"}
    assert ask(gate, PUSH_OBJECT, b"", more=large) == 413
    assert ask(gate, PUSH_OBJECT, b"x" * 70_001) == 413
    assert gate.refused == {"a body that is too large": 2}
    said = gate.last_refused["a body that is too large"]
    assert fingerprint_of_public(KEY.public) in said
    assert "it sends more bytes; expected at most 70,000, " in said
    link.unregister(node_id)
    assert not link.most_bytes


def test_a_body_that_is_slow_is_refused(monkeypatch):
    monkeypatch.setattr(gates, "BODY_SECONDS", 0.05)
    status, bodies, gate, _ = call(PREFIX + PULL_MESSAGES, [b"x"] * 9, pause=0.02)
    assert (status, bodies) == (408, [])
    assert gate.refused == {"a body that arrived too slowly": 1}


def test_a_connection_that_breaks():
    status, bodies, _, _ = call(PREFIX + PULL_MESSAGES, [b"x", None, b"x"])
    assert (status, bodies) == (400, [])


def real_gate(knows: bool = True) -> Gate:
    return Gate(Link(), lambda public: knows, keyed=False)


def ask(
    gate: Gate,
    name: str,
    body: bytes,
    key: NodeKey = KEY,
    more: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """The status of a call to Flower's own functions."""
    sent: list[dict] = []
    scope = {
        "type": "http",
        "method": "POST",
        "path": PREFIX + name,
        "headers": [(k.encode(), v.encode()) for k, v in (key.headers(0.0) | dict(more)).items()],
    }

    async def receive() -> dict:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: dict) -> None:
        sent.append(event)

    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"]


def registration(key: NodeKey) -> bytes:
    return make("RegisterNodeFleetRequest", public_key=key.public).SerializeToString()


def test_a_node_registers_itself_and_not_another():
    gate = real_gate()
    assert ask(gate, REGISTER, registration(KEY)) == 200
    assert ask(gate, REGISTER, registration(OTHER)) == 401
    assert gate.refused == {"a call for another node": 1}


@given(st.sampled_from(CALLS), st.binary(max_size=300))
def test_no_body_is_an_error_of_the_server(name: str, body: bytes):
    """Bodies of nodes with a valid key may be anything."""
    gate = real_gate()
    ask(gate, REGISTER, registration(KEY))
    assert ask(gate, name, body) in (200, 400, 401, 409)
