"""Peers without a key: they take no memory, and others are served meanwhile."""

from __future__ import annotations

import resource
import socket
import time
from contextlib import ExitStack, suppress

import pytest

pytest.importorskip("flwr")
from deployment.test_fleet import Served, served

from coterie.deployment.fleet import listener
from coterie.deployment.fleet.keys import NodeKey
from coterie.deployment.fleet.messages import PREFIX, PUSH_OBJECT

pytestmark = pytest.mark.slow
MEGABYTE = 1 << 20
HALF = f"POST {PREFIX}{PUSH_OBJECT} HTTP/1.1\r\nHost: x\r\n".encode()
REFUSED = b"HTTP/1.1 401"


def connect(server: Served, source: str = "127.0.0.1") -> socket.socket:
    address = (server.address.host, server.address.port)
    return socket.create_connection(address, timeout=5, source_address=(source, 0))


def pour(peer: socket.socket, n: int) -> int:
    """Send up to n megabytes until the server closes the connection; returns how many it took."""
    for sent in range(n):
        try:
            peer.sendall(b"x" * MEGABYTE)
        except OSError:
            return sent
    return n


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("has_key", [False, True], ids=["no key", "an unknown key"])
def test_a_large_body_without_a_registered_key_is_not_buffered(has_key: bool):
    """Six connections announce 256 MB each: they are refused by their headers."""
    headers = NodeKey.new().headers(0.0) if has_key else {}
    lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
    head = HALF + f"{lines}Content-Length: {256 * MEGABYTE}\r\n\r\n".encode()
    with served() as server, ExitStack() as stack:
        server.gate.knows = lambda key: False
        before = peak()
        peers = [stack.enter_context(connect(server)) for _ in range(6)]
        for peer in peers:
            peer.sendall(head)
            assert peer.recv(100).startswith(REFUSED)
            assert pour(peer, 64) < 64
        assert peak() - before < 50 * MEGABYTE
        assert server.gate.refused.total() == 6


def test_headers_without_end_are_not_buffered():
    with served() as server, connect(server) as peer:
        before = peak()
        peer.sendall(HALF + b"X: ")
        assert pour(peer, 64) < 64
        assert peak() - before < 50 * MEGABYTE


def test_a_thousand_half_sent_requests_keep_nobody_out():
    """1,100 connections of one address that never finish their headers."""
    with served() as server, ExitStack() as stack:
        for _ in range(1_100):
            stack.enter_context(connect(server, "127.0.0.2")).sendall(HALF)
        server.start()
        (name,) = server.wait_for(1)
        assert server.nodes.send("hello", {name: b"there"}) == {name: b"hello there"}


def test_an_address_has_so_many_connections_and_slow_headers_end(monkeypatch):
    monkeypatch.setattr(listener, "MOST_PER_ADDRESS", 20)
    monkeypatch.setattr(listener, "HEADER_SECONDS", 0.5)
    with served() as server, ExitStack() as stack:
        for _ in range(30):
            with suppress(OSError):
                stack.enter_context(connect(server, "127.0.0.2")).sendall(HALF)
        server.start()
        (name,) = server.wait_for(1)
        connections = server.http.server_state.connections
        assert len(connections) <= 20 + 2
        assert server.nodes.send("hello", {name: b"there"}) == {name: b"hello there"}
        until = time.monotonic() + 5
        while len(connections) > 2:
            assert time.monotonic() < until
            time.sleep(0.05)
