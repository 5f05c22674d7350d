"""Real federations: a server and nodes on loopback, started by the documented commands."""

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
from deployment.test_server import InProcessNodes, served, simulated
from federated.fuzzing import GIGABYTES, mangled
from node_keys import make_keys

from coterie.data.interactions import Interactions
from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_service import TRAIN

pytest.importorskip("flwr")
COTERIE = [sys.executable, "-m", "coterie.cli.main"]
HOOK = """
import os, sys, time
from pathlib import Path
if "join" in sys.orig_argv:
    import numpy as np
    from coterie.deployment.node_service import TRAIN, NodeService, split_preamble
    from coterie.federated.wire import decode
    from federated.fuzzing import BEYOND_DOUBT, mangled
    honest = NodeService.answer
    control = Path(os.environ["CONTROL"])
    node = os.environ["NODE"]

    def answer(self, kind, data):
        hold = control / f"hold-{node}"
        if kind == TRAIN and hold.exists() and hold.read_text() == str(round_of(data)):
            (control / f"held-{node}").touch()
            while hold.exists():
                time.sleep(0.1)
        reply = honest(self, kind, data)
        if kind == TRAIN and os.environ.get("MALICIOUS") == node:
            return mangled(reply, np.random.default_rng(round_of(data)), BEYOND_DOUBT)
        return reply

    def round_of(data):
        message = decode(split_preamble(data)[1])
        return message.round if message.exchange < 255 else -1

    NodeService.answer = answer
"""
"""A sitecustomize of a node's processes: they wait in a round until released, or send garbage."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Site:
    """A folder with the files of nodes, and the processes started in it."""

    def __init__(self, folder: Path, people: Interactions) -> None:
        self.folder = folder
        self.people = people
        self.server = f"127.0.0.1:{free_port()}"
        self.started: list[subprocess.Popen[bytes]] = []

    def files(self, n: int, settings: str) -> None:
        for node in range(n):
            self.node_file(node, np.arange(self.people.n_users) % n == node)
        self.config(n, settings)

    def node_file(self, node: int, hosted: np.ndarray) -> None:
        """The interactions of the users of a node, given as a mask."""
        people = self.people
        rows = np.flatnonzero(hosted[people.users])
        users = people.user_ids[people.users[rows]]
        items = people.item_ids[people.items[rows]]
        times = people.times[rows]  # type: ignore[index]
        columns = zip(users, items, times, strict=True)
        lines = [f"{user},{item},{time}" for user, item, time in columns]
        (self.folder / f"{node}.csv").write_text("\n".join(["user_id,item_id,timestamp", *lines]))

    def config(self, n: int, settings: str) -> None:
        """The item catalogue, and the config of a server that waits for n nodes."""
        catalogue = self.folder / "items.csv"
        catalogue.write_text("\n".join(["item_id", *map(str, self.people.item_ids)]))
        config = f"dataset: given.csv\nitems: {catalogue}\nleast_nodes: {n}\n{settings}"
        (self.folder / "fed.yaml").write_text(config)

    def make_keys(self, *names: str, folder: str = "keys") -> None:
        make_keys(self.folder / folder, ["127.0.0.1"], names)

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
        path = store or f"{node}.db"
        return self.start(
            "join",
            "--data",
            f"{node}.csv",
            "--store",
            path,
            "--server",
            self.server,
            "--as-simulated",
            *more,
            **self.hooked(node),
        )

    def hooked(self, node: int) -> dict[str, str]:
        """The environment of a node that can be held, or is malicious."""
        hook = self.folder / "hook"
        if not hook.is_dir():
            return {}
        folders = [str(hook), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, folders)),
            "CONTROL": str(self.folder),
            "NODE": str(node),
            "MALICIOUS": self.malicious,
        }

    def hook(self, malicious: str = "") -> None:
        self.malicious = malicious
        (self.folder / "hook").mkdir()
        (self.folder / "hook" / "sitecustomize.py").write_text(HOOK)

    def hold(self, node: int, t: int) -> None:
        (self.folder / f"hold-{node}").write_text(str(t))

    def wait_until_held(self, node: int) -> None:
        self.wait((self.folder / f"held-{node}").exists, 150)

    def release(self, node: int) -> None:
        (self.folder / f"hold-{node}").unlink()

    def log(self, child: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"log-{self.started.index(child)}.txt").read_text(errors="replace")

    def status(self) -> dict:
        path = self.folder / "run" / "status.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def wait(self, until, seconds: float = 80) -> None:
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end, [self.log(child) for child in self.started]
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

    def equals_the_simulation(self) -> bool:
        return self.equals(simulated(self.terms, self.people))

    def twin(self, n: int) -> dict[str, Any]:
        """The status of the same federation, repeated in this process."""
        (self.folder / "twin").mkdir()
        served(
            self.folder / "twin",
            replace(self.terms, run="a twin"),
            InProcessNodes([self.folder / f"{k}.db" for k in range(n)]),
            least_nodes=n,
        )
        return json.loads((self.folder / "twin" / "status.json").read_text())

    def stop(self) -> None:
        """Stop all processes."""
        for child in self.started:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in self.started:
            child.wait(30)

    def equals(self, expected: Mapping[str, np.ndarray]) -> bool:
        return all(np.array_equal(array, expected[name]) for name, array in self.state().items())


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents[int(stat.parent.name)] = parent
    members = [pid]
    for member in members:
        members += [child for child, parent in parents.items() if parent == member]
    return members


def kill_9(child: subprocess.Popen[bytes]) -> None:
    """Kill the whole family at once, as when a machine is switched off."""
    for pid in family(child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait(10)


@pytest.fixture
def site(tmp_path: Path, people) -> Iterator[Site]:
    made = Site(tmp_path, people)
    yield made
    made.stop()


FEDFAST = "algorithm: fedfast\nembedding_size: 5\nrounds: 2\nparticipation: 0.3\nclusters: 4\n"
PFPL = "algorithm: pfpl+\nembedding_size: 5\nepochs: 1\nrounds_an_epoch: 2\n"
RING = (
    "algorithm: fcf\nembedding_size: 5\nrounds: 1\nparticipation: 0.2\nsecure_aggregation: ring\n"
)
TOWERS = "algorithm: sttfedrec-dssm\nrounds: 2\nusers_per_round: 40\ninputs: 60\ntitles: 3\n"


def keyed(name: str, folder: str = "keys") -> Sequence[str]:
    return "--key", f"{folder}-nodes/{name}.key", "--ca", f"{folder}/ca.pem"


def commands(site: Site) -> set[int]:
    """Status codes of Flower's control calls, such as to run a program or to register a node.

    All nodes have ca.pem, so it must not be enough for them.
    """
    import httpx

    trust = ssl.create_default_context(cafile=str(site.folder / "keys" / "ca.pem"))
    with httpx.Client(verify=trust, base_url=f"https://{site.server}", timeout=10) as client:
        calls = (
            "control/start-run",
            "control/register-node",
            "control/list-nodes",
            "runtime/pull-task-input",
            "fleet/../control/start-run",
        )
        return {client.post(f"/v1/{call}", content=b"").status_code for call in calls}


@pytest.mark.long
def test_tls_and_keys(site: Site):
    """Unauthenticated peers that list the second node's users are refused; nodes with a key train,
    and the model equals the simulation's."""
    site.files(2, FEDFAST)
    for folder, names in (("keys", ("a", "b")), ("others", ("c",))):
        site.make_keys(*names, folder=folder)
    server = site.serve("--keys", "keys")
    site.wait(lambda: "serving at" in site.log(server), 60)
    assert commands(site) == {404}
    unregistered = site.join(1, "--key", "others-nodes/c.key", "--ca", "keys/ca.pem", store="x.db")
    wrong_ca = site.join(1, "--key", "keys-nodes/b.key", "--ca", "others/ca.pem", store="y.db")
    plaintext = site.join(1, "--insecure", store="z.db")
    site.wait(lambda: unregistered.poll() is not None and wrong_ca.poll() is not None, 40)
    assert (unregistered.returncode, wrong_ca.returncode) == (2, 2)
    assert "the node was rejected" in site.log(unregistered)
    assert "is not trusted by this node's ca.pem" in site.log(wrong_ca)
    site.wait(lambda: "if it uses TLS, give --key and --invitation" in site.log(plaintext), 20)
    plaintext.send_signal(signal.SIGTERM)
    site.join(0, *keyed("a"))
    site.join(1, *keyed("b"))
    site.wait(lambda: server.poll() is not None)
    assert server.returncode == 0, site.log(server)
    status = site.status()
    assert (status["state"], status["nodes"]) == ("finished", 2)
    assert status["refused"].keys() == {"unknown key", "not a node's call"}
    assert site.equals_the_simulation()


@pytest.mark.parametrize(
    ("n", "settings"), [(1, FEDFAST), (5, FEDFAST), (1, PFPL), (2, PFPL), (5, PFPL), (2, RING)]
)
@pytest.mark.long
def test_any_number_of_nodes_equals_the_simulation(site: Site, n: int, settings: str):
    site.files(n, settings)
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    for node in range(n):
        site.join(node, "--insecure")
    site.wait(lambda: server.poll() is not None, 240)
    assert server.returncode == 0, site.log(server)
    assert site.equals_the_simulation()
    twin = site.twin(n)
    for key in ("bytes_up", "bytes_down"):
        assert site.status()[key] == twin[key]


@pytest.mark.long
def test_a_server_stops_within_its_privacy_budget(site: Site):
    """Its exit code is 4, and a server that is started again has nothing to do."""
    site.files(
        2,
        "algorithm: fcf\nembedding_size: 5\nrounds: 50\nparticipation: 0.5\nepsilon: 2\n"
        "noise_multiplier: 6\n",
    )
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    policy = site.folder / "policy.yaml"
    policy.write_text("epsilon_limit: 2\n")
    for node in range(2):
        site.join(node, "--insecure", "--policy", str(policy))
    site.wait(lambda: server.poll() is not None, 120)
    assert server.returncode == 4, site.log(server)
    assert "stopped: 7 of 50 rounds are done" in site.log(server)
    assert "under a privacy budget nodes report none" in site.log(server)
    again = site.serve("--insecure")
    site.wait(lambda: again.poll() is not None, 60)
    assert again.returncode == 0, site.log(again)


@pytest.mark.long
def test_a_killed_server_resumes(site: Site):
    site.files(2, PFPL.replace("rounds_an_epoch: 2", "rounds_an_epoch: 200"))
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    for node in range(2):
        site.join(node, "--insecure")
    site.wait(lambda: site.status().get("round", 0) >= 1, 120)
    os.kill(server.pid, signal.SIGKILL)
    again = site.serve("--insecure")
    site.wait(lambda: again.poll() is not None, 200)
    assert again.returncode == 0, site.log(again)
    assert site.equals_the_simulation()


@pytest.mark.parametrize("who", ["server", "both"])
@pytest.mark.long
def test_killed_in_the_middle_of_a_round(site: Site, who: str):
    """Nodes have private state, and one of them was computing its reply: the result is that of an
    undisturbed federation."""
    site.files(2, PFPL + "round_seconds: 30\n")
    site.hook()
    site.hold(1, 1)
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    _, node = (site.join(node, "--insecure") for node in range(2))
    site.wait_until_held(1)
    kill_9(server)
    if who == "both":
        kill_9(node)
    site.release(1)
    again = site.serve("--insecure")
    if who == "both":
        site.join(1, "--insecure")
    site.wait(lambda: again.poll() is not None, 300)
    assert again.returncode == 0, site.log(again)
    assert site.status()["round"] == 2
    assert site.equals_the_simulation()


@pytest.mark.long
def test_a_node_killed_in_the_middle_of_a_round_drops_out(site: Site):
    site.files(2, FEDFAST + "round_seconds: 25\nquorum: 0.3\n")
    site.hook()
    site.hold(1, 1)
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    _, node = (site.join(node, "--insecure") for node in range(2))
    site.wait_until_held(1)
    kill_9(node)
    site.wait(lambda: server.poll() is not None, 200)
    assert server.returncode == 0, site.log(server)
    assert site.status()["unanswered"] >= 1
    assert site.equals(without(site.terms, site.people, 1, 2, 1))


@pytest.mark.long
def test_a_malicious_node_and_a_thousand_unauthenticated_peers(site: Site):
    """One of three nodes replies with garbage, and a thousand peers send garbage to the server's
    port: the model is that of the other two nodes, and memory stays bounded."""
    site.files(3, FEDFAST + "round_seconds: 30\n")
    site.hook(malicious="2")
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    for node in range(3):
        site.join(node, "--insecure")
    site.wait(lambda: site.status().get("state") == "training", 120)
    rng = np.random.default_rng(0)
    host, port = site.server.split(":")
    for _ in range(1_000):
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host, int(port)), timeout=5) as peer,
        ):
            http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" if rng.random() < 0.5 else b""
            peer.sendall(http2 + mangled(GIGABYTES * 4, rng))
    most = max(peak_memory(pid) for pid in family(server.pid))
    site.wait(lambda: server.poll() is not None, 200)
    assert server.returncode == 0, site.log(server)
    assert most < 1 << 30
    assert site.status()["refused"]["malformed"] > 0
    others = InProcessNodes(
        [site.folder / f"{node}.db" for node in range(3)],
        lambda kind, node, call: kind == TRAIN and node == 2,
    )
    (site.folder / "twin").mkdir()
    twin = served(site.folder / "twin", replace(site.terms, run="a twin"), others)
    assert site.equals(twin.state.shared_arrays())


def peak_memory(pid: int) -> int:
    with contextlib.suppress(OSError):
        lines = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        )
        return int(lines.get("VmHWM", "0 kB").split()[0]) * 1024
    return 0


@pytest.mark.long
def test_a_key_is_revoked_while_the_server_runs(site: Site):
    site.files(2, FEDFAST.replace("rounds: 2", "rounds: 400") + "round_seconds: 20\nquorum: 0.3\n")
    site.make_keys("a", "b")
    server = site.serve("--keys", "keys")
    site.wait(lambda: "serving at" in site.log(server), 60)
    site.join(0, *keyed("a"))
    revoked = site.join(1, *keyed("b"))
    site.wait(lambda: site.status().get("round", 0) >= 1, 120)
    assert site.status()["nodes"] == 2
    subprocess.run([*COTERIE, "federation", "revoke", "keys", "b"], cwd=site.folder, check=True)
    site.wait(lambda: site.status()["nodes"] == 1, 60)
    site.wait(lambda: server.poll() is not None, 240)
    assert server.returncode == 0, site.log(server)
    assert site.status()["round"] == 400
    assert revoked.wait(60) == 2
    assert "keys-nodes/b.key is not registered there, or was revoked" in site.log(revoked)


@pytest.mark.long
def test_nodes_stay_for_the_next_federation_and_log_errors(site: Site):
    site.files(2, FEDFAST.replace("rounds: 2", "rounds: 1"))
    (site.folder / "7.csv").write_text("user_id,item_id,timestamp\nzoe,unlisted-item,1\n")
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    nodes = [site.join(node, "--insecure") for node in (0, 1, 7)]
    site.wait(lambda: server.poll() is not None, 150)
    assert server.returncode == 0, site.log(server)
    assert "HR@10" in site.log(server)
    for node in nodes[:2]:
        site.wait(
            lambda node=node: "The federation is finished" in site.log(node),
            20,
        )
    assert "no interaction is with one of the federation's" in site.log(nodes[2])
    following = site.start(
        "serve", "--config", "fed.yaml", "--out", "next", "--server", site.server, "--insecure"
    )
    site.wait(lambda: following.poll() is not None, 200)
    assert following.returncode == 0, site.log(following)
    assert [node.poll() for node in nodes] == [None] * 3
    call = [*COTERIE, "status", "next", "--json"]
    done = subprocess.run(call, cwd=site.folder, check=True, capture_output=True)
    assert json.loads(done.stdout)["state"] == "finished"


@pytest.mark.long
def test_two_towers_and_what_a_node_recommends(site: Site):
    """STTFedRec on two nodes, two rounds: within 1e-5 of the simulation. A node recommends without
    a server."""
    site.files(2, TOWERS)
    titles = [
        f"{item},{text}"
        for item, text in zip(site.people.item_ids, site.people.item_texts, strict=True)
    ]
    (site.folder / "items.csv").write_text("\n".join(["item_id,title", *titles]))
    server = site.serve("--insecure")
    site.wait(lambda: "serving at" in site.log(server), 60)
    nodes = [site.join(node, "--insecure") for node in range(2)]
    site.wait(lambda: server.poll() is not None, 240)
    assert server.returncode == 0, site.log(server)
    for node in nodes:
        node.send_signal(signal.SIGTERM)
    bare = replace(site.people, user_features={}, item_categories=None, item_bodies=None)
    expected = simulated(site.terms, bare)
    for name, array in site.state().items():
        assert np.allclose(array, expected[name], rtol=0, atol=1e-5), name
    assert site.status()["metrics"]["part"] == "test"
    user = str(site.people.user_ids[0])
    call = [*COTERIE, "recommend", "--node", "0.db", "--user", user, "-n", "3", "--json"]
    done = subprocess.run(call, cwd=site.folder, check=True, capture_output=True)
    found = json.loads(done.stdout)["items"]
    assert len(found) == 3
    assert all(line["text"] for line in found)


@pytest.mark.long
def test_logs_have_no_history_and_no_secret(site: Site):
    """A user and items that are easy to find, a node that fails, and JSON logs on both sides."""
    site.files(2, FEDFAST)
    for name, lines in (
        ("0.csv", "\n".join(f"canary-user,canary-item-{k},{k}" for k in range(9))),
    ):
        path = site.folder / name
        path.write_text(f"{path.read_text()}\n{lines}\n")
    items = site.folder / "items.csv"
    items.write_text(items.read_text() + "".join(f"\ncanary-item-{k}" for k in range(9)))
    site.make_keys("a", "b")
    detailed = ("--log-format", "json", "--log-level", "debug")
    server = site.serve("--keys", "keys", *detailed)
    site.wait(lambda: "serving at" in site.log(server), 60)
    site.join(0, *keyed("a"), *detailed)
    site.join(1, *keyed("b"), *detailed)
    site.wait(lambda: server.poll() is not None, 120)
    assert server.returncode == 0, site.log(server)
    secrets = [
        line for key in site.folder.rglob("*.key") for line in key.read_text().splitlines()[1:-1]
    ]
    logs = [*site.folder.glob("log-*.txt"), site.folder / "run" / "server.log"]
    assert len(logs) == 4
    for log in logs:
        text = log.read_text()
        assert "canary" not in text, log
        assert not [line for line in secrets if line in text], log
    for child in site.started:
        entries = [json.loads(line) for line in site.log(child).splitlines() if "{" in line]
        assert "debug" in {entry["level"] for entry in entries}


@pytest.mark.long
def test_no_node_joins(site: Site):
    site.files(2, FEDFAST + "wait_seconds: 3\n")
    server = site.serve("--insecure")
    site.wait(lambda: server.poll() is not None, 60)
    assert server.returncode == 3
    assert "0 of 2 nodes joined within 3 seconds" in site.log(server)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "no certificates are named"),
        (("--insecure", "--server", "10.0.0.5:8000"), "could be read and changed on the way"),
        (("--insecure", "--server", "nowhere"), "expected HOST:PORT"),
        (("--keys", "nowhere"), "nowhere holds no ca.pem"),
    ],
)
@pytest.mark.long
def test_insecure_servers_are_refused(site: Site, more: Sequence[str], message: str):
    site.files(1, FEDFAST)
    server = site.start("serve", "--config", "fed.yaml", *more)
    assert server.wait(30) == 2
    assert message in site.log(server)


@pytest.mark.long
def test_users_join_leave_and_move_while_nodes_run(site: Site):
    """By the documented commands, while the server and its nodes run."""
    site.files(3, FEDFAST.replace("rounds: 2", "rounds: 400"))
    config = site.folder / "fed.yaml"
    config.write_text(config.read_text().replace("least_nodes: 3", "least_nodes: 2\nopen: true"))
    site.make_keys("a", "b", "c")
    server = site.serve("--keys", "keys")
    site.wait(lambda: "serving at" in site.log(server), 60)
    site.join(0, *keyed("a"))
    site.join(1, *keyed("b"))
    site.wait(lambda: site.status().get("round", 0) >= 2)
    assert site.status()["users"] == 134
    site.join(2, *keyed("c"))
    site.wait(lambda: site.status()["users"] == 200)
    erased, moved = (str(user) for user in site.people.user_ids[[0, 3]])

    def node(*command: str) -> None:
        subprocess.run([*COTERIE, "node", *command], cwd=site.folder, check=True)

    node("forget", "0.db", erased)
    node("transfer", "0.db", moved, "--to", "b", "--key", "keys-nodes/a.key", "--out", "package")
    node("receive", "1.db", "package")
    site.wait(lambda: site.status()["users"] == 199)
    homes = site.folder / "run" / "homes.json"
    site.wait(lambda: json.loads(homes.read_text())[moved] == "b")
    site.wait(lambda: site.status()["state"] == "finished", 200)
    assert server.wait(30) == 0
    assert "users: 66 joined, 0 erased, 200 in all" in site.log(server)
    assert erased not in json.loads((site.folder / "run" / "members.json").read_text())["users"]
    assert site.status()["refused"] == {}
    node("export", "1.db", moved)
