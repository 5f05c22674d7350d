"""A real federation: Flower's processes on loopback, started by the documented commands, with TLS and keys."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from runtime.test_serving import simulated

from coterie.data.interactions import Interactions
from coterie.runtime.enrolment import Terms

pytest.importorskip("flwr")
pytestmark = pytest.mark.long
COTERIE = [sys.executable, "-m", "coterie.cli.main"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Place:
    """A folder with files of nodes, and what was started in it."""

    def __init__(self, folder: Path, people: Interactions) -> None:
        self.folder, self.people, self.server = folder, people, f"127.0.0.1:{free_port()}"
        self.started: list[subprocess.Popen[bytes]] = []

    def files(self, n: int, settings: str) -> None:
        people = self.people
        for node in range(n):
            rows = np.flatnonzero(people.users % n == node)
            lines = [
                f"{people.user_ids[people.users[r]]},{people.item_ids[people.items[r]]},{people.times[r]}" for r in rows
            ]  # type: ignore[index]
            (self.folder / f"{node}.csv").write_text("\n".join(["user_id,item_id,timestamp", *lines]))
        (self.folder / "items.csv").write_text("\n".join(["item_id", *map(str, people.item_ids)]))
        about = f"dataset: given.csv\nembedding_size: 5\nitems: items.csv\nleast_nodes: {n}\n{settings}"
        (self.folder / "fed.yaml").write_text(about)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log-{len(self.started)}.txt").open("wb") as log:
            child = subprocess.Popen(
                [*COTERIE, *command], cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        self.started.append(child)
        return child

    def serve(self, *more: str) -> subprocess.Popen[bytes]:
        return self.start("serve", "--config", "fed.yaml", "--out", "run", "--server", self.server, *more)

    def join(self, node: int, *more: str, store: str = "") -> subprocess.Popen[bytes]:
        place = store or f"{node}.db"
        return self.start(
            "join", "--data", f"{node}.csv", "--store", place, "--server", self.server, "--as-simulated", *more
        )

    def said(self, child: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"log-{self.started.index(child)}.txt").read_text(errors="replace")

    def status(self) -> dict:
        place = self.folder / "run" / "status.json"
        return json.loads(place.read_text()) if place.exists() else {}

    def wait(self, until, seconds: float = 80) -> None:
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, [self.said(child) for child in self.started]
            time.sleep(0.1)

    def is_the_simulation(self) -> bool:
        terms = Terms.from_json((self.folder / "run" / "terms.json").read_text())
        with np.load(self.folder / "run" / "checkpoint.npz") as saved:
            found = {name.removeprefix("state."): saved[name] for name in saved.files if name.startswith("state.")}
        expected = simulated(terms, self.people)
        return all(np.array_equal(array, expected[name]) for name, array in found.items())


@pytest.fixture
def place(tmp_path: Path, people) -> Iterator[Place]:
    made = Place(tmp_path, people)
    yield made
    for child in made.started:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    for child in made.started:
        child.wait(30)


FEDFAST = "algorithm: fedfast\nrounds: 2\nparticipation: 0.3\nclusters: 4\n"
PFPL = "algorithm: pfpl+\nepochs: 2\nrounds_an_epoch: 1\n"


def keyed(name: str, folder: str = "keys") -> Sequence[str]:
    return "--key", f"{folder}/nodes/{name}.key", "--ca", f"{folder}/ca.pem"


def test_tls_and_keys(place: Place):
    """Strangers are refused one way or another, who say to host the second node's people; those with a key train, and the model is
    that of the simulation."""
    place.files(2, FEDFAST)
    for folder, names in (("keys", ("a", "b")), ("others", ("c",))):
        nodes = [part for name in names for part in ("--node", name)]
        subprocess.run([*COTERIE, "federation", "init", folder, *nodes], cwd=place.folder, check=True)
    server = place.serve("--keys", "keys")
    place.wait(lambda: "serving at" in place.said(server), 60)
    place.join(0, *keyed("a"))
    place.join(1, *keyed("b"))
    unregistered = place.join(1, "--key", "others/nodes/c.key", "--ca", "keys/ca.pem", store="x.db")
    wrong_ca = place.join(1, "--key", "keys/nodes/b.key", "--ca", "others/ca.pem", store="y.db")
    in_the_clear = place.join(1, "--insecure", store="z.db")
    place.wait(lambda: unregistered.poll() is not None and wrong_ca.poll() is not None, 40)
    assert (unregistered.returncode, wrong_ca.returncode) == (2, 2)
    assert "was not let in" in place.said(unregistered)
    assert "cannot be trusted by others/ca.pem" in place.said(wrong_ca)
    in_the_clear.send_signal(signal.SIGTERM)
    place.wait(lambda: server.poll() is not None)
    assert server.returncode == 0, place.said(server)
    assert (place.status()["state"], place.status()["nodes"], place.status()["refused"]) == ("finished", 2, {})
    assert place.is_the_simulation()


@pytest.mark.parametrize(("n", "settings"), [(1, FEDFAST), (5, FEDFAST), (1, PFPL), (2, PFPL), (5, PFPL)])
def test_any_number_of_nodes_is_the_simulation(place: Place, n: int, settings: str):
    place.files(n, settings)
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    for node in range(n):
        place.join(node, "--insecure")
    place.wait(lambda: server.poll() is not None, 240)
    assert server.returncode == 0, place.said(server)
    assert place.is_the_simulation()


def test_a_server_that_is_killed_goes_on(place: Place):
    place.files(2, PFPL.replace("epochs: 2", "epochs: 3"))
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    for node in range(2):
        place.join(node, "--insecure")
    place.wait(lambda: place.status().get("round") == 1, 120)
    os.kill(server.pid, signal.SIGKILL)
    again = place.serve("--insecure")
    place.wait(lambda: again.poll() is not None, 200)
    assert again.returncode == 0, place.said(again)
    assert place.is_the_simulation()


def test_nobody_comes(place: Place):
    place.files(2, FEDFAST + "wait_seconds: 3\n")
    server = place.serve("--insecure")
    place.wait(lambda: server.poll() is not None, 60)
    assert server.returncode == 3
    assert "0 of 2 nodes joined within 3 seconds" in place.said(server)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ((), "no certificates are named"),
        (("--insecure", "--server", "10.0.0.5:8000"), "could be read and changed on the way"),
        (("--insecure", "--server", "nowhere"), "expected HOST:PORT"),
        (("--keys", "nowhere"), "nowhere holds no ca.pem"),
    ],
)
def test_what_is_not_safe_is_refused(place: Place, more: Sequence[str], told: str):
    place.files(1, FEDFAST)
    server = place.start("serve", "--config", "fed.yaml", *more)
    assert server.wait(30) == 2
    assert told in place.said(server)
