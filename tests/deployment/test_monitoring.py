"""What operators see: metrics, health, the state of a server that was killed, idle nodes."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from deployment.test_fleet import free_port
from deployment.test_fleet import served as serving

pytest.importorskip("flwr")
pytest.importorskip("prometheus_client")
from prometheus_client.parser import text_string_to_metric_families

from coterie.core.heap import FreeMemory
from coterie.core.progress import Progress
from coterie.data.options import ReadOptions
from coterie.deployment.fleet import node_loop
from coterie.deployment.fleet.join import NodeUsers, put_in_another_process
from coterie.deployment.fleet.monitoring import collect, monitoring
from coterie.deployment.fleet.node_loop import NodeLoop
from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.server_status import read_current_status
from coterie.errors import ConfigError, DataError, RunError
from coterie.experiments import run_folder

STATUS = {
    "state": "training",
    "round": 3,
    "rounds": 9,
    "seconds_per_round": 0.25,
    "seconds_by_phase": {"exchange": 12.5, "commit": 0.5},
    "nodes": 4,
    "enrolled": 3,
    "silent": ["ann"],
    "updates": 120,
    "dropped": 2,
    "refused": {"unknown key": 7},
    "alarms_raised": {"row of an item": 2},
    "unanswered": 1,
    "bytes_up": 1000,
    "bytes_down": 2000,
    "bytes_control": 30,
    "metrics": {},
}


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def write(folder: Path, **changes: object) -> None:
    (folder / "status.json").write_text(json.dumps(STATUS | changes))


def test_metrics_are_those_of_the_status(tmp_path: Path):
    write(tmp_path)
    port = free_port()
    with monitoring(tmp_path, port):
        _, text = get(port, "/metrics")
        write(tmp_path, round=4, epsilon=5.0, epsilon_spent=1.25)
        _, later = get(port, "/metrics")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found[("coterie_round",)] == 3
    assert found[("coterie_seconds_per_round",)] == 0.25
    assert found[("coterie_silent_nodes",)] == 1
    assert found[("coterie_nodes",)] == 4
    by_state = {"connected": 4, "enrolled": 3, "silent": 1}
    for name, count in by_state.items():
        assert found[("coterie_nodes_by_state", name)] == count
    assert found[("coterie_phase_seconds_total", "exchange")] == 12.5
    assert found[("coterie_phase_seconds_total", "commit")] == 0.5
    assert found[("coterie_updates_total",)] == 120
    assert found[("coterie_refused_total", "unknown key")] == 7
    assert found[("coterie_alarms_total", "row of an item")] == 2
    assert found[("coterie_state", "training")] == 1
    assert found[("coterie_resident_memory_bytes",)] > 1e6
    assert "coterie_round 4.0" in later
    assert "coterie_epsilon_spent 1.25" in later
    assert "coterie_epsilon" not in text


@pytest.mark.parametrize(("state", "code"), [("training", 200), ("waiting", 200), ("stopped", 503)])
def test_health(state: str, code: int, tmp_path: Path):
    write(tmp_path, state=state)
    port = free_port()
    with monitoring(tmp_path, port):
        assert get(port, "/healthz") == (code, f"{state}\n")
        assert get(port, "/other")[0] == 404


def test_a_server_without_a_status_is_starting(tmp_path: Path):
    port = free_port()
    with monitoring(tmp_path, port):
        assert get(port, "/healthz") == (200, "starting\n")
        assert 'coterie_state{state="starting"} 1.0' in get(port, "/metrics")[1]
        with pytest.raises(ConfigError, match=f"--metrics is {port}, which cannot be used"):
            monitoring(tmp_path, port).__enter__()


def test_a_killed_server_is_not_training(tmp_path: Path):
    write(tmp_path)
    with run_folder.locked(tmp_path):
        assert read_current_status(tmp_path)["state"] == "training"
    killed = read_current_status(tmp_path)
    assert killed["state"] == "stopped"
    assert "the server was killed" in killed["note"]
    write(tmp_path, state="finished")
    assert read_current_status(tmp_path)["state"] == "finished"


def test_a_folder_without_a_status(tmp_path: Path):
    with pytest.raises(RunError, match=r"holds no status\.json; expected .* Check the path"):
        read_current_status(tmp_path / "runs" / "nothing")


def test_a_wrong_folder_names_the_newest_one_of_a_server(tmp_path: Path):
    for n, seconds in ((1, 100), (2, 300), (3, 200)):
        folder = tmp_path / f"federation-{n}"
        folder.mkdir()
        write(folder, state="finished")
        os.utime(folder / "status.json", (seconds, seconds))
    for wrong in (tmp_path, tmp_path / "federation-7"):
        with pytest.raises(RunError, match=r"The newest one there is .*federation-2\."):
            read_current_status(wrong)


@pytest.mark.slow
def test_a_node_that_was_busy_becomes_idle():
    with serving() as server:
        client = server.client()
        loop = NodeLoop(client, lambda kind, body: body, idle_seconds=0.3)
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        (name,) = server.wait_for(1)
        time.sleep(0.5)
        assert thread.is_alive()
        server.nodes.send("train", {name: b"x"})
        server.gate.close()
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.slow
def test_a_busy_node_returns_free_memory():
    with serving() as server:
        emptied = threading.Event()
        memory = FreeMemory(emptied.set, returned=-1e9)
        loop = NodeLoop(server.client(), lambda kind, body: body, memory=memory)
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        (name,) = server.wait_for(1)
        server.nodes.send("train", {name: b"x"})
        assert emptied.wait(10)
        loop.stop.set()
        server.gate.close()
        thread.join(10)


@pytest.mark.slow
def test_a_node_logs_messages_without_their_content():
    lines: list[str] = []

    class Details(Progress):
        def debug(self, text: str) -> None:
            lines.append(text)

    with serving() as server:
        loop = NodeLoop(server.client(), lambda kind, body: b"secret" * 20, Details())
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        (name,) = server.wait_for(1)
        server.nodes.send("train", {name: b"ann's history" * 100})
        until = time.monotonic() + 5
        while not lines and time.monotonic() < until:
            time.sleep(0.01)
        loop.stop.set()
        server.gate.close()
        thread.join(10)
    (line,) = lines
    assert re.fullmatch(r"message 'train': 1,300 bytes received, 120 bytes sent, \d+ ms", line)


@pytest.mark.slow
def test_files_are_read_in_another_process(tmp_path: Path):
    (tmp_path / "mine.csv").write_text("user_id,item_id\nann,x\nbob,y\n")
    lines = put_in_another_process(
        NodeUsers(tmp_path / "mine.csv", ReadOptions()), tmp_path / "mine.db"
    )
    assert any("2 rows read" in line for line in lines)
    store = NodeStore.open(tmp_path / "mine.db")
    assert store.users() == ["ann", "bob"]
    store.close()
    with pytest.raises(DataError, match="does not exist"):
        put_in_another_process(
            NodeUsers(tmp_path / "nothing.csv", ReadOptions()), tmp_path / "another.db"
        )
    assert not (tmp_path / "another.db").exists()


def test_the_page_names_every_metric():
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    names = {sample.name for metric in collect(STATUS) for sample in metric.samples}
    assert {name for name in names if f"`{name}`" not in page} == set()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "warnings"), [("train", 1), ("finish", 0)])
def test_a_node_warns_of_a_missing_server_unless_its_federation_is_over(
    monkeypatch, kind, warnings
):
    monkeypatch.setattr(node_loop, "REMARK_AFTER", 0.2)
    lines: list[str] = []

    class Warnings(Progress):
        def warn(self, text: str) -> None:
            lines.append(text)

    with serving() as server:
        client = server.client()
        loop = NodeLoop(client, lambda kind, body: body, Warnings(), last_kind="finish")
        thread = threading.Thread(target=loop.run, daemon=True)
        thread.start()
        (name,) = server.wait_for(1)
        server.nodes.send(kind, {name: b"x"})
        server.gate.close()
    until = time.monotonic() + 5
    while len(lines) < warnings and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.5)
    loop.stop.set()
    thread.join(10)
    assert len(lines) == warnings
    assert all("does not answer" in line for line in lines)
