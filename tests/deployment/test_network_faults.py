"""A network that loses connections, delays, repeats and reorders: the model stays the same."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from deployment.test_fleet import served as serving
from deployment.test_server import new_federation, same, simulated

pytest.importorskip("flwr")
from coterie.deployment.address import Address
from coterie.deployment.fleet.client import FleetClient
from coterie.deployment.fleet.node_loop import NodeLoop
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import NodeService
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig

FAULTS = {"lost before": 0.025, "lost after": 0.025, "twice": 0.05, "late copy": 0.05, "slow": 0.05}
"""How often each fault strikes a request."""
DELAY = 0.2


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a server, with faults."""

    daemon_threads = True

    def __init__(self, server: Address, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = server
        self.draws = random.Random(seed)
        self.struck: Counter[str] = Counter()
        self.drawing = threading.Lock()

    def fault(self) -> str:
        """The fault of the next request; mostly none."""
        with self.drawing:
            draw = self.draws.random()
            for name, share in FAULTS.items():
                draw -= share
                if draw < 0:
                    self.struck[name] += 1
                    return name
        return ""

    def handle_error(self, request: object, client_address: object) -> None:
        """Broken connections are what this is about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        fault = self.server.fault()
        if fault == "lost before":
            self.close_connection = True
            return
        if fault == "slow":
            time.sleep(DELAY)
        status, headers, reply = self.passed_on(body)
        if fault == "twice":
            status, headers, reply = self.passed_on(body)
        if fault == "late copy":
            # It overtakes what the node sends next.
            threading.Timer(0.02, self.pass_on_quietly, [body]).start()
        if fault == "lost after":
            self.close_connection = True
            return
        self.send_response_only(status)
        self.send_header("content-length", str(len(reply)))
        self.send_header("date", headers.get("date", ""))
        self.end_headers()
        self.wfile.write(reply)

    def passed_on(self, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        behind = self.server.behind
        connection = http.client.HTTPConnection(behind.host, behind.port, timeout=60)
        with contextlib.closing(connection):
            headers = {k: v for k, v in self.headers.items() if k.lower() != "host"}
            connection.request("POST", self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def pass_on_quietly(self, body: bytes) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.passed_on(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def faulty(server: Address, seed: int) -> Iterator[Proxy]:
    proxy = Proxy(server, seed)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()


def run_node(path: Path, address: Address, stop: threading.Event) -> None:
    store = NodeStore.open(path)
    client = FleetClient.to(address, None, None)
    try:
        NodeLoop(client, NodeService(store).answer, stop=stop).run()
    finally:
        client.close()
        store.close()


SECURE = {"rounds": 3, "participation": 0.2, "secure_aggregation": "secagg"}
RING = SECURE | {"secure_aggregation": "ring"}


@pytest.mark.parametrize(
    ("name", "settings", "seed"),
    [
        pytest.param("pfpl+", {}, 0, marks=pytest.mark.slow),
        *(
            pytest.param(name, settings, seed, marks=pytest.mark.long)
            for name, settings in (
                ("fedfast", {"rounds": 15}),
                ("pfpl+", {}),
                ("fcf", SECURE),
                ("fcf", RING),
            )
            for seed in (1, 2)
        ),
    ],
)
def test_faults_do_not_change_the_model(name, settings, seed, people, tmp_path):
    terms, paths = new_federation(name, people, tmp_path, 3, **settings)
    stop = threading.Event()
    with serving(deadline=60) as server, faulty(server.address, seed) as proxy:
        through = Address("127.0.0.1", proxy.server_port)
        nodes = [
            threading.Thread(target=run_node, args=(path, through, stop), daemon=True)
            for path in paths
        ]
        for node in nodes:
            node.start()
        config = ServerConfig(items="items.csv", least_nodes=3, wait_seconds=60)
        point = serve(tmp_path, terms, server.nodes, config)
        stop.set()
        server.gate.close()
        for node in nodes:
            node.join(30)
    assert same(point.state, simulated(terms, people))
    assert sum(proxy.struck.values()) > 5
    assert point.history.dropped == 0
