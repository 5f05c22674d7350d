"""A real federation: Flower's processes on loopback, started by the documented commands, with TLS and keys."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deployment.test_membership import without
from deployment.test_server import Together, served, simulated
from federated.fuzzing import GIGABYTES, mangled

from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import FederationTerms

pytest.importorskip("flwr")
pytestmark = pytest.mark.long
COTERIE = [sys.executable, "-m", "coterie.cli.main"]
HOOK = """
import os, sys, time
from pathlib import Path
if any("clientapp" in part for part in sys.orig_argv):
    from coterie.runtime import host
    from coterie.runtime.wire import decode
    from federated.fuzzing import BEYOND_DOUBT, mangled
    import numpy as np
    honest, control, node = host.Host.answer, Path(os.environ["CONTROL"]), os.environ["NODE"]

    def answer(self, kind, data):
        hold = control / f"hold-{node}"
        if kind == TRAIN and hold.exists() and hold.read_text() == str(at(data)):
            (control / f"held-{node}").touch()
            while hold.exists():
                time.sleep(0.1)
        said = honest(self, kind, data)
        return mangled(said, np.random.default_rng(at(data)), BEYOND_DOUBT) if kind == TRAIN and os.environ.get("LIES") == node else said

    def at(data):
        message = decode(host.opened(data)[1])
        return message.round if message.exchange < 255 else -1

    host.Host.answer = answer
"""
"""What a node's processes do before anything: wait in a round until somebody lets them go on, or lie."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Place:
    """A folder with files of nodes, and what was started in it."""

    def __init__(self, folder: Path, people: Interactions) -> None:
        self.folder = folder
        self.people = people
        self.server = f"127.0.0.1:{free_port()}"
        self.started: list[subprocess.Popen[bytes]] = []

    def files(self, n: int, settings: str) -> None:
        people = self.people
        for node in range(n):
            rows = np.flatnonzero(people.users % n == node)
            lines = [
                f"{people.user_ids[people.users[r]]},{people.item_ids[people.items[r]]},{people.times[r]}"
                for r in rows
            ]  # type: ignore[index]
            (self.folder / f"{node}.csv").write_text(
                "\n".join(["user_id,item_id,timestamp", *lines])
            )
        (self.folder / "items.csv").write_text("\n".join(["item_id", *map(str, people.item_ids)]))
        about = f"dataset: given.csv\nitems: items.csv\nleast_nodes: {n}\n{settings}"
        (self.folder / "fed.yaml").write_text(about)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log-{len(self.started)}.txt").open("wb") as log:
            child = subprocess.Popen(
                [*COTERIE, *command],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | environment,
            )
        self.started.append(child)
        return child

    def serve(self, *more: str) -> subprocess.Popen[bytes]:
        return self.start(
            "serve", "--config", "fed.yaml", "--out", "run", "--server", self.server, *more
        )

    def join(self, node: int, *more: str, store: str = "") -> subprocess.Popen[bytes]:
        place = store or f"{node}.db"
        return self.start(
            "join",
            "--data",
            f"{node}.csv",
            "--store",
            place,
            "--server",
            self.server,
            "--as-simulated",
            *more,
            **self.hooked(node),
        )

    def hooked(self, node: int) -> dict[str, str]:
        """In the environment of a node that can be held, or lies."""
        hook = self.folder / "hook"
        if not hook.is_dir():
            return {}
        path = os.pathsep.join([str(hook), str(Path(__file__).parents[1])])
        return {
            "PYTHONPATH": path,
            "CONTROL": str(self.folder),
            "NODE": str(node),
            "LIES": self.liar,
        }

    def hook(self, liar: str = "") -> None:
        self.liar = liar
        (self.folder / "hook").mkdir()
        (self.folder / "hook" / "sitecustomize.py").write_text(HOOK)

    def hold(self, node: int, t: int) -> None:
        (self.folder / f"hold-{node}").write_text(str(t))

    def wait_until_held(self, node: int) -> None:
        self.wait((self.folder / f"held-{node}").exists, 150)

    def let_go(self, node: int) -> None:
        (self.folder / f"hold-{node}").unlink()

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

    @property
    def terms(self) -> FederationTerms:
        return FederationTerms.from_json((self.folder / "run" / "terms.json").read_text())

    def state(self) -> dict[str, np.ndarray]:
        with np.load(self.folder / "run" / "checkpoint.npz") as saved:
            return {
                name.removeprefix("state."): saved[name]
                for name in saved.files
                if name.startswith("state.")
            }

    def is_the_simulation(self) -> bool:
        return self.equals(simulated(self.terms, self.people))

    def twin(self, n: int) -> dict[str, Any]:
        """The status of the same federation in this process, once more."""
        (self.folder / "twin").mkdir()
        served(
            self.folder / "twin",
            replace(self.terms, run="a twin"),
            Together([self.folder / f"{k}.db" for k in range(n)]),
            least_nodes=n,
        )
        return json.loads((self.folder / "twin" / "status.json").read_text())

    def equals(self, expected: Mapping[str, np.ndarray]) -> bool:
        return all(np.array_equal(array, expected[name]) for name, array in self.state().items())


def family(pid: int) -> list[int]:
    """A process and all that came of it."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(place.parent.name)] = int(place.read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def kill_9(child: subprocess.Popen[bytes]) -> None:
    """All of it at once, as when a machine is switched off."""
    for pid in family(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait(10)


@pytest.fixture
def place(tmp_path: Path, people) -> Iterator[Place]:
    made = Place(tmp_path, people)
    yield made
    for child in made.started:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
    for child in made.started:
        child.wait(30)


FEDFAST = "algorithm: fedfast\nembedding_size: 5\nrounds: 2\nparticipation: 0.3\nclusters: 4\n"
PFPL = "algorithm: pfpl+\nembedding_size: 5\nepochs: 1\nrounds_an_epoch: 2\n"
RING = (
    "algorithm: fcf\nembedding_size: 5\nrounds: 1\nparticipation: 0.2\nsecure_aggregation: ring\n"
)
TOWERS = "algorithm: sttfedrec-dssm\nrounds: 2\nusers_a_round: 40\ninputs: 60\ntitles: 3\n"


def keyed(name: str, folder: str = "keys") -> Sequence[str]:
    return "--key", f"{folder}/nodes/{name}.key", "--ca", f"{folder}/ca.pem"


def commands(place: Place) -> set[int]:
    """What Flower's own commands are answered, such as to run a program or to let a node in: who has ca.pem, as all nodes do, must not."""
    import httpx

    trust = ssl.create_default_context(cafile=str(place.folder / "keys" / "ca.pem"))
    with httpx.Client(verify=trust, base_url=f"https://{place.server}", timeout=10) as client:
        calls = (
            "control/start-run",
            "control/register-node",
            "control/list-nodes",
            "runtime/pull-task-input",
            "fleet/../control/start-run",
        )
        return {client.post(f"/v1/{call}", content=b"").status_code for call in calls}


def test_tls_and_keys(place: Place):
    """Strangers are refused one way or another, who say to host the second node's people; those with a key train, and the model is
    that of the simulation."""
    place.files(2, FEDFAST)
    for folder, names in (("keys", ("a", "b")), ("others", ("c",))):
        nodes = [part for name in names for part in ("--node", name)]
        subprocess.run(
            [*COTERIE, "federation", "init", folder, *nodes], cwd=place.folder, check=True
        )
    server = place.serve("--keys", "keys")
    place.wait(lambda: "serving at" in place.said(server), 60)
    place.join(0, *keyed("a"))
    place.join(1, *keyed("b"))
    assert commands(place) == {404}
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
    assert (place.status()["state"], place.status()["nodes"], place.status()["refused"]) == (
        "finished",
        2,
        {},
    )
    assert place.is_the_simulation()


@pytest.mark.parametrize(
    ("n", "settings"), [(1, FEDFAST), (5, FEDFAST), (1, PFPL), (2, PFPL), (5, PFPL), (2, RING)]
)
def test_any_number_of_nodes_is_the_simulation(place: Place, n: int, settings: str):
    place.files(n, settings)
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    for node in range(n):
        place.join(node, "--insecure")
    place.wait(lambda: server.poll() is not None, 240)
    assert server.returncode == 0, place.said(server)
    assert place.is_the_simulation()
    twin = place.twin(n)
    assert [place.status()[way] for way in ("bytes_up", "bytes_down")] == [
        twin[way] for way in ("bytes_up", "bytes_down")
    ]


def test_a_server_that_is_killed_goes_on(place: Place):
    place.files(2, PFPL.replace("rounds_an_epoch: 2", "rounds_an_epoch: 3"))
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


@pytest.mark.parametrize("who", ["server", "both"])
def test_killed_in_the_middle_of_a_round(place: Place, who: str):
    """Nodes have private rows, and one of them had begun its answer: the outcome is that of a federation in which nothing happened."""
    place.files(2, PFPL + "round_seconds: 30\n")
    place.hook()
    place.hold(1, 1)
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    _, node = (place.join(node, "--insecure") for node in range(2))
    place.wait_until_held(1)
    kill_9(server)
    if who == "both":
        kill_9(node)
    place.let_go(1)
    again = place.serve("--insecure")
    if who == "both":
        place.join(1, "--insecure")
    place.wait(lambda: again.poll() is not None, 300)
    assert again.returncode == 0, place.said(again)
    assert place.status()["round"] == 2
    assert place.is_the_simulation()


def test_a_node_that_is_killed_in_the_middle_of_a_round_was_absent(place: Place):
    place.files(2, FEDFAST + "round_seconds: 25\nquorum: 0.3\n")
    place.hook()
    place.hold(1, 1)
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    _, node = (place.join(node, "--insecure") for node in range(2))
    place.wait_until_held(1)
    kill_9(node)
    place.wait(lambda: server.poll() is not None, 200)
    assert server.returncode == 0, place.said(server)
    assert place.status()["unanswered"] >= 1
    assert place.equals(without(place.terms, place.people, 1, 2, 1))


def test_a_node_that_lies_and_a_thousand_strangers(place: Place):
    """One of three nodes answers with bytes that are no message, and its machine throws a thousand more at the server's port: the model
    is that of the other two, and nobody's memory grows."""
    place.files(3, FEDFAST + "round_seconds: 30\n")
    place.hook(liar="2")
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    for node in range(3):
        place.join(node, "--insecure")
    place.wait(lambda: place.status().get("state") == "training", 120)
    rng, host, port = np.random.default_rng(0), *place.server.split(":")
    for _ in range(1_000):
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=5) as stranger,
        ):
            stranger.sendall(
                (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if rng.random() < 0.5 else b"")
                + mangled(GIGABYTES * 4, rng)
            )
    most = max(peak_memory(pid) for pid in family(server.pid))
    place.wait(lambda: server.poll() is not None, 200)
    assert server.returncode == 0, place.said(server)
    assert most < 1 << 30
    assert place.status()["refused"]["malformed"] > 0
    others = Together(
        [place.folder / f"{node}.db" for node in range(3)],
        lambda kind, node, call: kind == TRAIN and node == 2,
    )
    (place.folder / "twin").mkdir()
    twin = served(place.folder / "twin", replace(place.terms, run="a twin"), others)
    assert place.equals(twin.state.shared_arrays())


def peak_memory(pid: int) -> int:
    with contextlib.suppress(OSError):
        lines = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return int(lines.get("VmHWM", "0 kB").split()[0]) * 1024
    return 0


def test_a_key_that_is_taken_away_while_the_server_runs(place: Place):
    place.files(2, FEDFAST.replace("rounds: 2", "rounds: 6") + "round_seconds: 20\nquorum: 0.3\n")
    subprocess.run(
        [*COTERIE, "federation", "init", "keys", "--node", "a", "--node", "b"],
        cwd=place.folder,
        check=True,
    )
    server = place.serve("--keys", "keys")
    place.wait(lambda: "serving at" in place.said(server), 60)
    place.join(0, *keyed("a"))
    out = place.join(1, *keyed("b"))
    place.wait(lambda: place.status().get("round", 0) >= 1, 120)
    assert place.status()["nodes"] == 2
    subprocess.run([*COTERIE, "federation", "revoke", "keys", "b"], cwd=place.folder, check=True)
    place.wait(lambda: place.status()["nodes"] == 1, 60)
    place.wait(lambda: server.poll() is not None, 240)
    assert server.returncode == 0, place.said(server)
    assert place.status()["round"] == 6
    assert out.wait(60) == 2
    assert "keys/nodes/b.key is not registered there, was revoked" in place.said(out)


def test_nodes_stay_for_the_next_federation_and_say_what_is_wrong(place: Place):
    place.files(2, FEDFAST.replace("rounds: 2", "rounds: 1"))
    (place.folder / "7.csv").write_text("user_id,item_id,timestamp\nzoe,nowhere-to-be-found,1\n")
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    nodes = [place.join(node, "--insecure") for node in (0, 1, 7)]
    place.wait(lambda: server.poll() is not None, 150)
    assert server.returncode == 0, place.said(server)
    assert "HR@10" in place.said(server)
    for node in nodes[:2]:
        place.wait(
            lambda node=node: "the federation is over, and its model is here" in place.said(node),
            20,
        )
    assert "nobody has any of the federation's" in place.said(nodes[2])
    following = place.start(
        "serve", "--config", "fed.yaml", "--out", "next", "--server", place.server, "--insecure"
    )
    place.wait(lambda: following.poll() is not None, 200)
    assert following.returncode == 0, place.said(following)
    assert [node.poll() for node in nodes] == [None] * 3
    call = [*COTERIE, "status", "next", "--json"]
    done = subprocess.run(call, cwd=place.folder, check=True, capture_output=True)
    assert json.loads(done.stdout)["state"] == "finished"


def test_two_towers_and_what_a_node_recommends(place: Place):
    """STTFedRec on two nodes, two rounds: within 1e-5 of the simulation. Then everything is off, and a node still recommends."""
    place.files(2, TOWERS)
    titles = [
        f"{item},{text}"
        for item, text in zip(place.people.item_ids, place.people.item_texts, strict=True)
    ]
    (place.folder / "items.csv").write_text("\n".join(["item_id,title", *titles]))
    server = place.serve("--insecure")
    place.wait(lambda: "serving at" in place.said(server), 60)
    nodes = [place.join(node, "--insecure") for node in range(2)]
    place.wait(lambda: server.poll() is not None, 240)
    assert server.returncode == 0, place.said(server)
    for node in nodes:
        node.send_signal(signal.SIGTERM)
    bare = replace(place.people, user_features={}, item_categories=None, item_bodies=None)
    expected = simulated(place.terms, bare)
    for name, array in place.state().items():
        assert np.allclose(array, expected[name], rtol=0, atol=1e-5), name
    assert place.status()["metrics"]["part"] == "test"
    person = str(place.people.user_ids[0])
    call = [*COTERIE, "recommend", "--node", "0.db", "--user", person, "-n", "3", "--json"]
    done = subprocess.run(call, cwd=place.folder, check=True, capture_output=True)
    found = json.loads(done.stdout)["items"]
    assert len(found) == 3
    assert all(line["text"] for line in found)


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
