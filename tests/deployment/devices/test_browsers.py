"""Real pages in Chromium as clients of a federation with two nodes."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import needs_browser
from deployment.devices.conftest import ON_DEVICES, Site, renamed, site_of
from deployment.test_server import simulated

import coterie
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.data.training_set import TrainingSet
from coterie.deployment.devices.gateway import Gateway, Place, Receipt
from coterie.deployment.devices.pages import INDEX, STATIC
from coterie.deployment.devices.store import Device
from coterie.experiments.preparation import prepare
from coterie.federated.wire import decode

ONE_UNIT = 2.0**-20
"""What an entry of an update of the page may differ by from that of the kernel in Python."""
pytestmark = [
    pytest.mark.long,
    needs_browser,
    pytest.mark.skipif(not (STATIC / INDEX).exists(), reason="the device page is not there"),
]


def test_pages_of_fedals_send_the_likes_that_are_not_private(
    chromium: Any, people: Interactions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is that of a simulation in which the private like does not exist."""
    site = site_of(people, tmp_path, "fedals", rounds=3, embedding_size=8, reg=0.1)
    site.round_seconds = 120
    training = prepare(site.terms.experiment, site.people, SILENT).training
    faults: list[str] = []
    points: list[Any] = []
    with site.listening(STATIC) as (gateway, _):
        recorder = Recorder(gateway, monkeypatch)
        pages = open_pages(chromium, site, gateway, training, faults)
        devices = [device.id for device in gateway.store.devices()]
        pages[0].locator("#likes button[aria-pressed=false]").first.click()
        thread = threading.Thread(target=lambda: points.append(site.serve(gateway)), daemon=True)
        thread.start()
        for page in pages:
            page.wait_for_selector("#send-all:visible")
            assert "The server can read your likes" in page.inner_text("#reveals")
            assert not page.is_visible("#rate")
            page.click("#rows-summary")
            assert page.inner_text("#row-note") == "You and the server know"
            n_rows = page.locator("#rows tr").count()
            assert page.inner_text("#fact-likes").split(" ")[0] == str(n_rows)
            page.click("#send-all")
        for page in pages:
            page.locator("#status").filter(has_text="Training is over").wait_for()
            page.click("#recommend")
            page.wait_for_selector("#best li")
        thread.join(120)
    assert faults == []
    private = int(training.positives.of(ON_DEVICES[0])[0])
    for user, device in zip(ON_DEVICES, devices, strict=True):
        expected = training.positives.of(user).tolist()
        if user == ON_DEVICES[0]:
            expected.remove(private)
        assert len(recorder.bodies[device]) == 3
        for body in recorder.bodies[device]:
            assert decode(body).arrays["items"].tolist() == expected
    is_private = (people.users == ON_DEVICES[0]) & (
        people.item_ids.astype(str)[people.items] == site.terms.items[private]
    )
    assert is_private.sum() == 1
    expected_state = simulated(site.terms, renamed(people.select(~is_private), devices))
    difference = np.abs(points[0].state.item_rows - expected_state["item_rows"]).max()
    print(f"fedals, item_rows: the largest difference is {difference}")
    assert difference <= 1e-4


def open_pages(
    chromium: Any, site: Site, gateway: Gateway, training: TrainingSet, faults: list[str]
) -> list[Any]:
    """A page for each user on a device, with the user's history as likes."""
    pages = []
    for user in ON_DEVICES:
        liked = [site.terms.items[item] for item in training.positives.of(user)]
        likes = site.folder.parent / f"likes-{user}.csv"
        likes.write_text("\n".join(["item_id", *liked]))
        pages.append(open_page(chromium, site, gateway.store.add_code(), likes, faults))
    return pages


def open_page(chromium: Any, site: Site, code: str, likes: Path, faults: list[str]) -> Any:
    """A page with the likes of a file, which has joined and waits for its first round."""
    page = chromium.new_context().new_page()
    page.set_default_timeout(120_000)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    page.goto(f"{site.url}/device/?draws=simulated#code={code}")
    page.wait_for_selector("main:not([hidden])")
    page.set_input_files("#csv", likes)
    n_likes = len(likes.read_text().splitlines()) - 1
    page.wait_for_function("n => document.querySelectorAll('#likes li').length === n", arg=n_likes)
    page.click("#join-button")
    page.wait_for_selector("#joined:not([hidden])")
    return page


class Recorder:
    """What the gateway received, by device."""

    def __init__(self, gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bodies: dict[str, list[bytes]] = {}
        received = Gateway.receive

        def record(gateway: Gateway, device: Device, place: Place, body: bytes) -> Receipt:
            receipt = received(gateway, device, place, body)
            self.bodies.setdefault(device.id, []).append(body)
            return receipt

        monkeypatch.setattr(Gateway, "receive", record)


@pytest.mark.parametrize(("dataset", "rounds"), [("synthetic", 4), ("ml-100k", 20)])
def test_two_nodes_and_three_pages_train_the_model_of_the_simulation(
    dataset: str,
    rounds: int,
    chromium: Any,
    people: Interactions,
    real_data: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if dataset != "synthetic":
        real_data(dataset)
        people = coterie.load(dataset)
    site = site_of(people, tmp_path, epochs=rounds, rounds_an_epoch=1)
    site.round_seconds = 120
    training = prepare(site.terms.experiment, site.people, SILENT).training
    faults: list[str] = []
    points: list[Any] = []
    with site.listening(STATIC) as (gateway, _):
        recorder = Recorder(gateway, monkeypatch)
        pages = open_pages(chromium, site, gateway, training, faults)
        devices = [device.id for device in gateway.store.devices()]
        thread = threading.Thread(target=lambda: points.append(site.serve(gateway)), daemon=True)
        thread.start()
        for page in pages:
            page.wait_for_selector("#send-all:visible")
            assert recorder.bodies.keys() <= set(devices[: pages.index(page)])
            page.click("#send-all")
        for page in pages:
            page.locator("#status").filter(has_text="Training is over").wait_for()
        thread.join(120)
        logs = [page.locator("#log tr").all_inner_texts() for page in pages]
    assert faults == []
    assert points[0].history.updates == rounds * people.n_users
    for device, log in zip(devices, logs, strict=True):
        # What the gateway received is what the page said it sent.
        digests = [hashlib.sha256(body).hexdigest()[:12] for body in recorder.bodies[device]]
        assert len(digests) == len(log) == rounds
        for digest in digests:
            assert sum(digest in row for row in log) == 1
    expected = simulated(site.terms, renamed(people, devices))
    state = points[0].state
    for name in ("item_rows", "item_bias"):
        # A round adds at most a unit of each page to an entry.
        difference = np.abs(getattr(state, name) - expected[name]).max()
        assert difference <= len(pages) * rounds * ONE_UNIT, (name, difference)
        print(f"{dataset}, {name}: the largest difference is {difference}")
