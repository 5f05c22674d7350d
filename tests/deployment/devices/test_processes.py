"""Real processes: a server with TLS and a gateway, two nodes, three devices, and kill -9."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import needs_browser
from deployment.devices.conftest import ON_DEVICES, free_port, renamed
from deployment.devices.stand_in import Browser, Client
from deployment.test_federation import COTERIE, Site, keyed, kill_9
from deployment.test_server import simulated

from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.experiments.preparation import prepare
from coterie.federated.wire import decode

PFPL = (
    "algorithm: pfpl+\nembedding_size: 5\nepochs: 5\nrounds_an_epoch: 1\ntriples: 8\n"
    "disclosure: 0.5\nleast_devices: 3\n"
)


class DeviceSite(Site):
    """Two nodes, and three users whose histories are in browsers."""

    def __init__(self, folder: Path, people: Interactions) -> None:
        super().__init__(folder, people)
        self.port = free_port()
        self.clients: list[Client] = []
        self.threads: list[threading.Thread] = []

    def prepare_files(self) -> None:
        for node in range(2):
            users = np.arange(self.people.n_users)
            self.node_file(node, (users % 2 == node) & ~np.isin(users, ON_DEVICES))
        self.config(3, PFPL)
        self.make_keys("a", "b")

    def serve_devices(self) -> subprocess.Popen[bytes]:
        child = self.serve("--keys", "keys", "--devices", "--devices-port", str(self.port))
        self.wait(lambda: "devices enrol at" in self.log(child) or child.poll() is not None, 120)
        return child

    def command(self, *arguments: str) -> str:
        done = subprocess.run(
            [*COTERIE, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def enrol(self, address: str, user: int) -> Client:
        """A browser that opens an address of `coterie device code`."""
        url, _, code = address.partition("#code=")
        trust = ssl.create_default_context(cafile=str(self.folder / "keys" / "ca.pem"))
        training = prepare(self.terms.experiment, self.people, SILENT).training
        client = Client(Browser(url, trust), training.of_users(np.array([user])))
        assert client.browser.enrol(code, f"phone {user}").status == 200
        self.clients.append(client)
        self.threads.append(threading.Thread(target=client.run, daemon=True))
        self.threads[-1].start()
        return client

    def stop(self) -> None:
        for client in self.clients:
            client.stop.set()
            client.released.set()
        for thread in self.threads:
            thread.join(30)
        super().stop()


@pytest.fixture
def device_site(tmp_path: Path, people: Interactions) -> Iterator[DeviceSite]:
    made = DeviceSite(tmp_path, people)
    yield made
    made.stop()


@pytest.mark.long
def test_a_gateway_that_is_killed_in_a_round_goes_on_with_it(device_site: DeviceSite) -> None:
    site = device_site
    site.prepare_files()
    server = site.serve_devices()
    lines = site.command("device", "code", "run", "--count", "3").splitlines()
    addresses = [line.split()[1] for line in lines]
    assert all(a.startswith(f"https://127.0.0.1:{site.port}/device/#code=") for a in addresses)
    for address, user in zip(addresses, ON_DEVICES, strict=True):
        client = site.enrol(address, user)
        client.hold_round = 2 if user == ON_DEVICES[0] else -1
    site.join(0, *keyed("a"))
    site.join(1, *keyed("b"))
    held, *others = site.clients
    assert held.held.wait(120), site.log(server)
    site.wait(lambda: all(2 in client.sent for client in others), 30)
    kill_9(server)
    held.released.set()
    server = site.serve_devices()
    site.wait(lambda: server.poll() is not None, 120)
    assert server.returncode == 0, site.log(server)
    people = renamed(site.people, [client.browser.device for client in site.clients])
    assert site.equals(simulated(site.terms, people))
    status = site.status()
    assert (status["state"], status["round"], status["users"]) == ("finished", 5, 200)
    for client in site.clients:
        assert sorted(client.sent) == [0, 1, 2, 3, 4]
        assert all(len(made) == 1 for made in client.sent.values())
        assert client.model is not None
        assert np.array_equal(client.model[1]["item_rows"], site.state()["item_rows"])
    # A device that was away at the end gets the model from a finished run.
    late = site.serve_devices()
    answer = held.browser.signed("GET", "/device/model")
    assert (answer.status, answer.headers["coterie-round"]) == (200, "5")
    assert np.array_equal(decode(answer.body).common["item_rows"], site.state()["item_rows"])
    late.send_signal(signal.SIGINT)
    late.wait(30)
    listed = json.loads(site.command("device", "list", "run", "--json"))
    assert [row["device"] for row in listed] == [c.browser.device for c in site.clients]
    assert sorted(row["user"] for row in listed) == [197, 198, 199]


@pytest.mark.long
@needs_browser
def test_phones_take_part_over_tls(device_site: DeviceSite, chromium: Any) -> None:
    """From the address of the QR code to recommendations, in a window of a phone's size."""
    site = device_site
    site.config(1, PFPL.replace("least_devices: 3", "least_devices: 2"))
    site.make_keys()
    server = site.serve_devices()
    assert "devices have to trust keys/ca.pem, fingerprint " in site.log(server)
    lines = site.command("device", "code", "run", "--count", "2").splitlines()
    faults: list[str] = []
    pages = [phone(chromium, line.split()[1], faults) for line in lines]
    for page in pages:
        page.locator("#send-all").click()
    for page in pages:
        page.locator("#status").filter(has_text="Training is over").wait_for()
        page.click("#recommend")
        page.wait_for_selector("#best li")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("#log tr").count() == 5
    site.wait(lambda: server.poll() is not None, 120)
    assert server.returncode == 0, site.log(server)
    assert site.status()["round"] == 5
    assert faults == []


def phone(chromium: Any, address: str, faults: list[str]) -> Any:
    """A phone that trusts the certificate has opened an address, picked items, and joined."""
    assert address.startswith("https://127.0.0.1:")
    context = chromium.new_context(
        viewport={"width": 390, "height": 844},
        device_scale_factor=3,
        is_mobile=True,
        has_touch=True,
        ignore_https_errors=True,
    )
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    page.goto(address)
    page.wait_for_selector("main:not([hidden])")
    assert page.evaluate("window.isSecureContext")
    assert "#" not in page.url
    for n in range(3):
        page.fill("#search", str(n))
        page.locator("#results button").first.tap()
    page.fill("#search", "")
    page.locator("#join-button").tap()
    page.wait_for_selector("#joined:not([hidden])")
    return page


@pytest.mark.long
def test_the_commands_and_what_serve_refuses(device_site: DeviceSite) -> None:
    site = device_site
    site.config(1, PFPL)

    def refused(*arguments: str) -> str:
        done = subprocess.run(
            [*COTERIE, *arguments], cwd=site.folder, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    serve = ("serve", "--config", "fed.yaml", "--insecure", "--server", site.server)
    assert "without --devices" in refused(*serve, "--devices-port", "9000")
    site.config(1, "algorithm: fedfast\nrounds: 2\n")
    assert "the server would have the users' rows" in refused(*serve, "--devices")
    assert not (site.folder / "runs").exists()
    assert "no gateway.db" in refused("device", "code", "elsewhere")
    site.config(1, PFPL)
    server = site.serve("--insecure", "--devices", "--devices-port", str(site.port))
    site.wait(lambda: "devices enrol at" in site.log(server), 120)
    port = str(site.port)
    assert "something listens there already" in refused(
        "serve", "--config", "fed.yaml", "--insecure", "--devices", "--devices-port", port
    )
    assert "has no devices" in site.command("device", "list", "run")
    shown = site.command("device", "code", "run", "--qr")
    code, address = shown.splitlines()[0].split()
    assert address == f"http://127.0.0.1:{site.port}/device/#code={code}"
    assert "█" in shown
    browser = Browser(f"http://127.0.0.1:{site.port}")
    assert browser.enrol(code, "a\x1b[31mphone").status == 200
    listed = site.command("device", "list", "run")
    assert browser.device in listed
    assert "\x1b" not in listed
    assert browser.message(0).status == 204
    assert f"Revoked {browser.device}" in site.command("device", "revoke", "run", browser.device)
    assert browser.message(0).status == 401
    assert "Did you mean" in refused("device", "revoke", "run", browser.device[:-1] + "x")
