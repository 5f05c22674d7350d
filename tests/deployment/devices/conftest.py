"""A federation whose gateway listens on a socket of this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.test_enrolment import terms_of
from deployment.test_server import InProcessNodes

pytest.importorskip("flwr")

from deployment.devices.stand_in import Browser, Client

from coterie import kernels
from coterie.core.progress import SILENT
from coterie.data.coded import coded_texts
from coterie.data.interactions import Interactions
from coterie.deployment.address import Address
from coterie.deployment.devices.app import DeviceGate, milliseconds
from coterie.deployment.devices.clients import PublicTerms
from coterie.deployment.devices.freshness import Freshness
from coterie.deployment.devices.gateway import Gateway, gateway_of
from coterie.deployment.devices.nodes import NodesWithDevices
from coterie.deployment.devices.pages import read_pages
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.fleet.listener import listening
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_service import SIMULATED, NodeService
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig
from coterie.experiments.history import Point
from coterie.experiments.preparation import prepare
from coterie.federated.wire import encode
from coterie.types import Message, Updates

SETTINGS = {"epochs": 3, "rounds_an_epoch": 2, "triples": 8, "disclosure": 0.5}
ON_DEVICES = (3, 51, 111)
"""The users whose histories are in browsers. The times of their last interactions are unique, also
in MovieLens-100K: which of several equal ones is held out depends on the index of a user, which a
device has only when training begins."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Site:
    """The folder of a run of two nodes, and of three users without a node."""

    folder: Path
    people: Interactions
    terms: FederationTerms
    is_open: bool = False
    least_devices: int = 3
    round_seconds: float = 20.0
    port: int = field(default_factory=free_port)
    threads: list[threading.Thread] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)

    def nodes(self) -> InProcessNodes:
        """Two nodes with the users who are not on devices; their stores are made once."""
        paths = [self.folder.parent / f"{node}.db" for node in range(2)]
        people = self.people
        for node, path in enumerate(paths):
            if path.exists():
                continue
            hosted = (people.users % 2 == node) & ~np.isin(people.users, ON_DEVICES)
            store = NodeStore.create(path)
            store.put_interactions(people.select(hosted).compact())
            NodeService(store).set_seed(SIMULATED)
            store.close()
        return InProcessNodes(paths)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def gateway(self, most: int = 100) -> Gateway:
        return gateway_of(self.folder, self.terms, SILENT, self.is_open, self.least_devices, most)

    @contextmanager
    def listening(
        self, page: Path | None = None, **changes: Any
    ) -> Iterator[tuple[Gateway, DeviceGate]]:
        """The gateway on a socket; `page` is the folder of the page, a placeholder by default."""
        gateway = self.gateway()
        gate = DeviceGate(
            gateway,
            PublicTerms.of(self.terms, "a federation", "", self.round_seconds),
            read_pages(page or self.page()),
            frozenset(("127.0.0.1", "localhost")),
            Freshness(milliseconds() - 1),
            **changes,
        )
        gateway.board.on_message = gate.ring
        with listening(gate, Address("127.0.0.1", self.port), None):
            try:
                yield gateway, gate
            finally:
                gateway.board.stop()

    def page(self) -> Path:
        folder = self.folder / "page"
        folder.mkdir(exist_ok=True)
        (folder / "index.html").write_text("<!doctype html><title>a placeholder</title>")
        (folder / "a.mjs").write_text("export const a = 1;")
        (folder / "secret.db").write_text("not served")
        return folder

    def serve(self, gateway: Gateway, **settings: Any) -> Point:
        nodes = NodesWithDevices(self.nodes(), gateway, self.round_seconds)
        given = {"items": "items.csv", "wait_seconds": 20.0, "least_nodes": 3, "open": self.is_open}
        return serve(self.folder, self.terms, nodes, ServerConfig(**given | settings))

    def client(self, user: int, gateway: Gateway) -> Client:
        """An enrolled device with the training part of a user, which does not run yet."""
        ready = prepare(self.terms.experiment, self.people, SILENT)
        browser = Browser(self.url)
        client = Client(browser, ready.training.of_users(np.array([user])))
        assert browser.enrol(gateway.store.add_code(), f"phone of {user}").status == 200
        self.clients.append(client)
        return client

    def browsers(self, gateway: Gateway, n: int = 2) -> list[Browser]:
        """Enrolled browsers, whose users have the indices 0, 1, ..."""
        made = [Browser(self.url) for _ in range(n)]
        for browser in made:
            assert browser.enrol(gateway.store.add_code()).status == 200
        numbers = {f"devices-{browser.device}": k for k, browser in enumerate(made)}
        gateway.store.put_numbers(numbers, [])
        return made

    @contextmanager
    def asking(
        self, gateway: Gateway, n: int = 2, t: int = 0, seconds: float = 20.0, model: int = 0
    ) -> Iterator[list[bytes]]:
        """A round is open for the users 0 to n while the body runs, or until all have answered;
        the list has the reply to the server afterwards. `model` is the seed of the item table."""
        rng = np.random.default_rng(model)
        n_items = len(self.terms.items)
        common = {
            "item_rows": rng.normal(size=(n_items, 5)).astype(np.float32),
            "item_bias": rng.normal(size=n_items).astype(np.float32),
        }
        own = {"accepted": np.full(n, -1, np.int64)}
        message = Message(t, np.arange(n, dtype=np.int32), common, own)
        replies: list[bytes] = []

        def ask() -> None:
            replies.append(gateway.train(message, time.monotonic() + seconds))

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        while gateway.board.exchange is None and thread.is_alive():
            time.sleep(0.001)
        try:
            yield replies
        finally:
            thread.join(seconds + 5)

    def start(self, client: Client) -> None:
        thread = threading.Thread(target=client.run, daemon=True)
        self.threads.append(thread)
        thread.start()

    def stop(self) -> None:
        for client in self.clients:
            client.stop.set()
            client.released.set()
        for thread in self.threads:
            thread.join(30)

    def renamed(self) -> Interactions:
        return renamed(self.people, [client.browser.device for client in self.clients])


def renamed(people: Interactions, devices: list[str]) -> Interactions:
    """People under the ids that they have in the federation: some are on devices."""
    ids = people.user_ids.astype(str).astype(object)
    ids[list(ON_DEVICES)] = [f"devices-{device}" for device in devices]
    return Interactions.from_columns(
        coded_texts([str(user) for user in ids[people.users]]),
        coded_texts([str(item) for item in people.item_ids[people.items]]),
        people.ratings,
        people.times,
    )


def update_of(user: int, t: int = 0, items: tuple[int, ...] = (3, 7), value: int = 9) -> bytes:
    """A valid update of a user: the rows of some items, five factors and a bias each."""
    rows = np.full((len(items), 6), value, np.int32)
    made = Updates.of_item_rows(np.array([user], np.int32), [np.array(items, np.int32)], [rows])
    return encode(t, made.columns())


def site_of(people: Interactions, folder: Path, algorithm: str = "pfpl+", **settings: Any) -> Site:
    """A federation that has not begun, of pfpl+ by default."""
    for name in ("fpl", "samples", "sums", "clusters", "als", "als_sums"):
        # Compiling takes longer than a round may.
        kernels.load(name)
    given = SETTINGS | settings if algorithm == "pfpl+" else settings
    terms = replace(terms_of(people, algorithm, **given), run="a run")
    run = folder / "run"
    run.mkdir()
    return Site(run, people, terms)


@pytest.fixture
def site(people: Interactions, tmp_path: Path) -> Iterator[Site]:
    made = site_of(people, tmp_path)
    yield made
    made.stop()
