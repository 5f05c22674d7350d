"""A server's link and nodes' clients over real sockets: lost, repeated and late messages, keys."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from node_keys import add_node, key_of, make_keys

pytest.importorskip("flwr")
import uvicorn

from coterie.deployment import certificates
from coterie.deployment.address import Address
from coterie.deployment.fleet import gate as gates
from coterie.deployment.fleet.client import FleetClient, Incoming, KeyRejected, Unknown, Unreachable
from coterie.deployment.fleet.gate import Gate
from coterie.deployment.fleet.link import Link
from coterie.deployment.fleet.listener import listening
from coterie.deployment.fleet.node_loop import NodeLoop
from coterie.deployment.fleet.nodes import FleetNodes, KeyRegistry

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Served:
    """A server's side, and the nodes that were started for it."""

    address: Address
    link: Link
    gate: Gate
    nodes: FleetNodes
    keys: Path | None
    http: uvicorn.Server
    loops: list[NodeLoop] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)
    clients: list[FleetClient] = field(default_factory=list)

    def client(self, name: str = "ann", kind: type[FleetClient] = FleetClient) -> FleetClient:
        credentials: tuple[Path | None, Path | None] = None, None
        if self.keys is not None:
            credentials = key_of(self.keys, name), self.keys / "ca.pem"
        made = kind.to(self.address, *credentials)
        self.clients.append(made)
        return made

    def start(
        self,
        answer: Callable[[str, bytes], bytes] = lambda kind, body: kind.encode() + b" " + body,
        name: str = "ann",
        client: FleetClient | None = None,
    ) -> NodeLoop:
        loop = NodeLoop(client or self.client(name), answer)
        self.loops.append(loop)
        self.threads.append(threading.Thread(target=loop.run, daemon=True))
        self.threads[-1].start()
        return loop

    def stop(self) -> None:
        for loop in self.loops:
            loop.stop.set()
        self.gate.close()
        for thread in self.threads:
            thread.join(10)
        for client in self.clients:
            client.close()

    def wait_for(self, n: int, seconds: float = 10) -> list[str]:
        until = time.monotonic() + seconds
        while len(self.nodes.joined()) != n:
            assert time.monotonic() < until
            time.sleep(0.01)
        return sorted(self.nodes.joined())


@contextmanager
def served(
    keys: Path | None = None, deadline: float = 10.0, port: int | None = None
) -> Iterator[Served]:
    link = Link()
    registry = KeyRegistry(link, keys and keys / "nodes")
    registry.refresh()
    gate = Gate(link, registry.knows, keyed=keys is not None)
    link.on_change = gate.ring
    address = Address("127.0.0.1", port or free_port())
    with listening(gate, address, keys) as http:
        made = Served(address, link, gate, FleetNodes(link, registry, deadline), keys, http)
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys", ["127.0.0.1"], ["ann", "bob"])
    return tmp_path / "keys"


@pytest.mark.parametrize("secured", [False, True])
def test_messages_and_replies(secured: bool, keys: Path):
    with served(keys if secured else None) as server:
        server.start(name="ann")
        server.start(name="bob")
        names = server.wait_for(2)
        if secured:
            assert names == ["ann", "bob"]
        for k in range(5):
            sent = {name: f"{name} {k}".encode() for name in names}
            replies = server.nodes.send("train", sent)
            assert replies == {name: b"train " + body for name, body in sent.items()}
        assert server.link.posted == {}
        assert len(server.link.state.object_store) == 0


def test_equal_messages_and_empty_ones():
    with served() as server:
        server.start()
        server.start()
        names = server.wait_for(2)
        for body in (b"", b"same", b"same"):
            assert server.nodes.send("x", dict.fromkeys(names, body)) == dict.fromkeys(
                names, b"x " + body
            )


def test_a_node_that_fails_is_left_out_at_once():
    def fail(kind: str, body: bytes) -> bytes:
        raise ValueError(body)

    with served(deadline=30) as server:
        server.start(fail)
        server.start()
        names = server.wait_for(2)
        began = time.monotonic()
        replies = server.nodes.send("train", dict.fromkeys(names, b"1"))
        assert list(replies.values()) == [b"train 1"]
        assert time.monotonic() < began + 10


def test_a_late_reply_does_not_count():
    release = threading.Event()

    def slow(kind: str, body: bytes) -> bytes:
        if body == b"first":
            release.wait(10)
        return body

    with served(deadline=0.5) as server:
        server.start(slow)
        (name,) = server.wait_for(1)
        assert server.nodes.send("train", {name: b"first"}) == {}
        release.set()
        until = time.monotonic() + 10
        while not server.nodes.send("train", {name: b"second"}):
            assert time.monotonic() < until
        assert len(server.link.state.object_store) == 0


class Flaky(FleetClient):
    """A client that loses requests or answers, or sends a request twice."""

    faults = iter(())  # one of "", "before", "after", "twice" for each call

    def _post(self, name: str, body: bytes):
        fault = next(self.faults, "")
        if fault == "before":
            raise Unreachable("lost on the way")
        answer = super()._post(name, body)
        if fault == "after":
            self.close()
            raise Unreachable("the answer was lost")
        return super()._post(name, body) if fault == "twice" else answer


@pytest.mark.parametrize("fault", ["before", "after", "twice"])
@pytest.mark.parametrize("position", range(8))
def test_any_call_may_be_lost_or_repeated(fault: str, position: int):
    """Each message is answered, and computed once although it is delivered twice."""
    computed = []

    def answer(kind: str, body: bytes) -> bytes:
        computed.append(body)
        return body

    with served() as server:
        flaky = server.client(kind=Flaky)
        flaky.faults = iter([""] * position + [fault])
        server.start(answer, client=flaky)
        for k in range(3):
            (name,) = server.wait_for(1)
            assert server.nodes.send("train", {name: b"%d" % k}) == {name: b"%d" % k}
        assert computed == [b"0", b"1", b"2"]
        assert len(server.link.state.object_store) == 0


def table_sizes(link: Link) -> dict[str, int]:
    """How many entries each table of Flower's state has."""
    tables = vars(link.state) | vars(link.state.object_store)
    return {name: len(table) for name, table in tables.items() if isinstance(table, dict | set)}


def test_incomplete_and_late_replies_leave_nothing_behind():
    """A node breaks off between the two calls of a reply, and replies again when it is too late."""
    with served() as server:
        link = server.link
        client = server.client(kind=Flaky)
        client.activate()

        def pull() -> Incoming:
            assert link.post(client.node_id, "train", b"x", 30)
            received = client.pull()
            assert received is not None
            return received

        def exchange() -> dict[str, int]:
            client.push(pull(), b"reply")
            assert link.take_replies(everywhere=True) == {client.node_id: b"reply"}
            return table_sizes(link)

        before = exchange()
        for _ in range(3):
            received = pull()
            client.faults = iter(["", "before"])
            with pytest.raises(Unreachable):
                client.push(received, b"incomplete")
            link.withdraw(client.node_id)
            assert not client.push(received, b"late")
            assert exchange() == before


def test_a_reset_connection_is_freed_at_once():
    with served() as server:
        client = server.client()
        client.activate()
        (held,) = server.http.server_state.connections
        # Closing with this option resets the connection, as the end of a killed process may.
        reset = struct.pack("ii", 1, 0)
        client.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        client.close()
        until = time.monotonic() + 10
        while server.http.server_state.connections:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert held.timeout_keep_alive_task is None


def test_a_reply_that_waits_for_a_busy_server_is_not_requested_again():
    """The node pulls its next message before the server has looked at the reply."""
    with served() as server:
        client = server.client()
        client.activate()
        (name,) = server.wait_for(1)
        server.link.post(int(name), "train", b"x", 10)
        received = client.pull()
        assert received is not None
        assert client.push(received, b"reply")
        server.link.repeat_if_lost(int(name))  # as its next pull does
        assert not server.link.awaits_pull(int(name))
        assert server.link.take_replies(everywhere=True) == {int(name): b"reply"}
        assert len(server.link.state.object_store) == 0


def test_a_node_that_is_interrupted_in_a_call_leaves():
    """It waits in a pull when Ctrl-C comes: the next call needs a connection of its own."""
    with served() as server:
        client = server.client()
        client.activate()
        (name,) = server.wait_for(1)
        client.connection.request("POST", "/an/unfinished/call", b"")
        client.deactivate()
        assert server.nodes.joined() == {}
        began = time.monotonic()
        assert server.nodes.send("train", {name: b"x"}, 30) == {}
        assert time.monotonic() < began + 5


def test_a_pull_is_held_until_there_is_a_message():
    with served() as server:
        times = []

        def answer(kind: str, body: bytes) -> bytes:
            times.append(time.monotonic())
            return body

        server.start(answer)
        (name,) = server.wait_for(1)
        time.sleep(0.5)
        sent = time.monotonic()
        server.nodes.send("train", {name: b"x"})
        assert times[0] - sent < 0.2


def test_an_unknown_key_is_rejected(keys: Path, tmp_path: Path):
    make_keys(tmp_path / "others", ["127.0.0.1"], ["eve"])
    with served(keys) as server:
        eve = FleetClient.to(server.address, key_of(tmp_path / "others", "eve"), keys / "ca.pem")
        server.clients.append(eve)
        with pytest.raises(KeyRejected, match="does not accept this node's key"):
            eve.activate()
        assert server.gate.refused["unknown key"] > 0


def test_keys_are_added_and_revoked_while_the_server_runs(keys: Path):
    with served(keys) as server:
        bob = server.client("bob")
        bob.activate()
        assert server.wait_for(1) == ["bob"]
        certificates.revoke(keys, "bob")
        time.sleep(1.1)
        assert server.nodes.joined() == {}
        with pytest.raises(Unknown):
            bob.pull()
        with pytest.raises(KeyRejected):
            bob.activate()
        add_node(keys, "cem")
        time.sleep(1.1)
        server.nodes.joined()
        server.client("cem").activate()
        assert server.wait_for(1) == ["cem"]


@pytest.mark.parametrize("wrong_by", [-3600.0, 3600.0])
def test_a_clock_that_is_wrong_is_corrected(keys: Path, wrong_by: float):
    """The node signs times that are an hour off, until the server's answer tells the time."""
    with served(keys) as server:
        ann = server.client()
        ann.clock_offset = wrong_by
        ann.activate()
        assert abs(ann.clock_offset) < 2
        assert server.wait_for(1) == ["ann"]


def test_a_node_does_not_reply_for_another(keys: Path, monkeypatch):
    """A node with a valid key takes a message id of another node, and replies to it."""
    with served(keys, deadline=1.0) as server:
        ann, bob = server.client("ann"), server.client("bob")
        ann.activate()
        bob.activate()
        thread = threading.Thread(target=server.nodes.send, args=("train", {"ann": b"x"}))
        thread.start()
        received = ann.pull()
        assert received is not None
        original = bob.node_id
        bob.node_id = ann.node_id
        with pytest.raises(Unknown):
            bob.push(received, b"forged")
        bob.node_id = original
        assert not bob.push(received, b"forged")
        thread.join()


def test_a_server_that_is_restarted_is_found_again():
    """Ids are new after a restart; the node activates itself anew."""
    port = free_port()
    with served(port=port) as first:
        client = first.client()
        client.activate()
        before = client.node_id
    loop = NodeLoop(client, lambda kind, body: body, activated=True)
    with served(port=port) as second:
        second.clients.append(client)
        second.loops.append(loop)
        second.threads.append(threading.Thread(target=loop.run, daemon=True))
        second.threads[-1].start()
        (name,) = second.wait_for(1)
        assert name != str(before)
        assert second.nodes.send("train", {name: b"1"}) == {name: b"1"}


def test_held_pulls_end(monkeypatch):
    monkeypatch.setattr(gates, "HOLD_SECONDS", 0.3)
    with served() as server:
        client = server.client()
        client.activate()
        began = time.monotonic()
        assert client.pull() is None
        assert 0.2 < time.monotonic() - began < 5


def test_a_node_whose_users_change_connects_anew():
    """The server then asks for its users again, and no message is lost."""
    with served() as server:
        loop = server.start()
        (name,) = server.wait_for(1)
        first = server.nodes.joined()[name]
        assert server.nodes.send("train", {name: b"1"}) == {name: b"train 1"}
        assert server.nodes.joined()[name] == first
        loop.users_version = lambda: 1
        assert server.nodes.send("train", {name: b"2"}) == {name: b"train 2"}
        until = time.monotonic() + 10
        while server.nodes.joined()[name] == first:
            assert time.monotonic() < until
        second = server.nodes.joined()[name]
        assert server.nodes.send("train", {name: b"3"}) == {name: b"train 3"}
        assert server.nodes.joined()[name] == second


def test_a_signature_of_a_node(keys: Path):
    with served(keys) as server:
        ann = server.client("ann").key
        assert server.nodes.signed("ann", "a text", ann.sign("a text"))
        assert not server.nodes.signed("ann", "another", ann.sign("a text"))
        assert not server.nodes.signed("bob", "a text", ann.sign("a text"))
        assert not server.nodes.signed("cem", "a text", ann.sign("a text"))
        assert not server.nodes.signed("ann", "a text", "no base64!")


def test_a_reply_above_the_limit_of_its_node_is_not_read(keys: Path):
    """The limit is that of the key; the reply of another node comes in time."""
    with served(keys, deadline=2.0) as server:
        for name in ("ann", "bob"):
            server.start(lambda kind, body: b"x" * 100_000, name=name)
        server.wait_for(2)
        server.nodes.limit_replies("train", {"ann": 50_000, "bob": 200_000, "unknown": 1})
        replies = server.nodes.send("train", {"ann": b"", "bob": b""})
        assert replies == {"bob": b"x" * 100_000}
        said = server.gate.last_refused["a body that is too large"]
        assert server.nodes.fingerprint("ann") in said
        assert server.nodes.fingerprint("nobody") == ""
