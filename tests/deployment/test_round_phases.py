"""Where the time of a server goes, and what a log of the level debug shows."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from deployment.test_server import ROUNDS, InProcessNodes, Stop, new_federation, served

from coterie.core.progress import Progress
from coterie.deployment import membership
from coterie.deployment.round_phases import Phase, RoundPhases
from coterie.deployment.server import serve
from coterie.deployment.server_config import ServerConfig


class Lines(Progress):
    def __init__(self) -> None:
        self.logged: list[str] = []
        self.warned: list[str] = []
        self.details: list[str] = []

    def log(self, text: str) -> None:
        self.logged.append(text)

    def warn(self, text: str) -> None:
        self.warned.append(text)

    def debug(self, text: str) -> None:
        self.details.append(text)


def test_a_phase_inside_another_counts_by_itself():
    phases = RoundPhases()
    began = time.perf_counter()
    with phases.measure(Phase.COMPUTE):
        time.sleep(0.02)
        with phases.measure(Phase.EXCHANGE):
            time.sleep(0.05)
        time.sleep(0.02)
    total = time.perf_counter() - began
    assert phases.seconds["exchange"] >= 0.05
    assert phases.seconds["compute"] >= 0.04
    assert sum(phases.seconds.values()) == pytest.approx(total, abs=0.005)


def test_a_phase_that_fails_is_left():
    phases = RoundPhases()
    with pytest.raises(KeyError), phases.measure(Phase.COMMIT):
        raise KeyError
    assert phases.current == ""
    assert phases.since_then(dict.fromkeys(map(str, Phase), 0.0)).keys() == {"commit"}


def serve_logged(people, folder: Path, n: int, fails=lambda *call: False) -> Lines:
    terms, paths = new_federation("fedfast", people, folder, n)
    lines = Lines()
    config = ServerConfig(items="items.csv", wait_seconds=20, least_nodes=n)
    serve(folder, terms, InProcessNodes(paths, fails), config, progress=lines)
    return lines


def test_a_line_for_each_round(people, tmp_path: Path):
    """Phases and nodes, and nothing of a user."""
    lines = serve_logged(people, tmp_path, 2)
    assert len(lines.details) == ROUNDS
    for n, line in enumerate(lines.details, 1):
        assert re.fullmatch(
            rf"round {n}: enrol [\d.]+ s, exchange [\d.]+ s, compute [\d.]+ s, "
            r"commit [\d.]+ s, watch [\d.]+ s; answered: 0, 1",
            line,
        )


def test_a_node_that_does_not_answer_is_not_named(people, tmp_path: Path):
    lines = serve_logged(
        people, tmp_path, 3, lambda kind, node, call: kind == "train" and node == 1
    )
    assert all(line.endswith("answered: 0, 2") for line in lines.details)


def test_a_server_that_waits_says_so_once_a_round(people, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(membership, "PATIENCE", 0.01)
    lines = serve_logged(people, tmp_path, 3, lambda kind, node, call: call in (4, 6) and node > 0)
    assert lines.warned
    assert lines.warned[0].endswith(
        "waits for nodes: 1 of 3 nodes answered before the deadline; expected at least 50% of them"
    )
    assert len(set(lines.warned)) == len(lines.warned)


def test_the_status_has_all_phases_and_states(people, tmp_path: Path):
    """Together the phases are the time of the server, and a restart goes on with them."""
    terms, paths = new_federation("fedfast", people, tmp_path, 2, evaluate_every=2)

    def die(kind: str, node: int, call: int) -> bool:
        if call == 5:
            raise Stop
        return False

    with pytest.raises(Stop):
        served(tmp_path, terms, InProcessNodes(paths, die))
    first = json.loads((tmp_path / "status.json").read_text())
    began = time.perf_counter()
    served(tmp_path, terms, InProcessNodes(paths))
    elapsed = time.perf_counter() - began
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["nodes"], status["enrolled"], status["silent"]) == (2, 2, [])
    assert status["seconds_by_phase"].keys() == set(Phase)
    spent = {
        phase: seconds - first["seconds_by_phase"][phase]
        for phase, seconds in status["seconds_by_phase"].items()
    }
    assert all(seconds > 0 for seconds in spent.values())
    assert 0.2 * elapsed < sum(spent.values()) < elapsed
