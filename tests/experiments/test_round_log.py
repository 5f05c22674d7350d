"""rounds.jsonl: what a run appends while it trains."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.errors import ConfigError, Interrupted, RunError
from coterie.experiments import round_log, training
from coterie.experiments.history import TrainingHistory
from coterie.experiments.round_log import RoundLog
from coterie.federated.costs import Costs

SMALL = {"n_users": 60, "n_items": 40, "n_groups": 2, "mean_interactions": 10}


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / round_log.NAME).read_text().splitlines()]


def history(rounds: int, measured: bool = False) -> TrainingHistory:
    found = TrainingHistory(np.zeros(3, np.int64))
    for _ in range(rounds):
        costs = Costs(accepted=2, dropped=1, refused=Counter({"too long": 1}), bytes_down=10)
        found = found.after(costs, 0.5)
    return found.measured("test", {"HR@10": 0.25}, "HR@10") if measured else found


def test_a_budget_that_no_algorithm_can_keep_is_refused_before_the_log(tmp_path: Path) -> None:
    """The log would say what is spent, which such an algorithm has no number for."""
    with pytest.raises(ConfigError, match="cannot be trained under a privacy budget"):
        coterie.run("fedavg", rounds=2, epsilon=4.0, out=tmp_path / "run", **SMALL)


def test_every_measured_round_has_a_line(tmp_path: Path) -> None:
    coterie.run("fedavg", rounds=6, evaluate_every=2, out=tmp_path / "run", **SMALL)
    begin, *rounds = lines(tmp_path / "run")
    assert begin["after"] == 0
    assert begin["rounds"] == 6
    assert begin["begin"]["algorithm"] == "fedavg"  # type: ignore[index]
    measured = [line["round"] for line in rounds if "metrics" in line]
    assert measured == [2, 4, 6]
    curve = [json.loads(t) for t in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in curve] == measured
    assert [line["bytes_up"] for line in curve] == [
        line["bytes_up"] for line in rounds if "metrics" in line
    ]


def test_costs_are_sums_and_quick_rounds_share_a_line(tmp_path: Path) -> None:
    log = RoundLog(tmp_path, {"algorithm": "x"})
    log.begin(history(0), 3)
    log.step(history(1))
    log.step(history(2))
    log.step(history(3, measured=True))
    begin, last = lines(tmp_path)
    assert begin["begin"] == {"algorithm": "x"}
    assert last["round"] == 3
    assert last["updates"] == 6
    assert last["dropped"] == 3
    assert last["refused"] == {"too long": 3}
    assert last["bytes_down"] == 30
    assert last["seconds"] == 1.5
    assert last["part"] == "test"
    assert last["metrics"] == {"HR@10": 0.25}


def test_a_slow_round_without_a_measurement_has_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_log, "SECONDS_BETWEEN_LINES", -1.0)
    log = RoundLog(tmp_path, {})
    log.begin(history(0), 3)
    log.step(history(1))
    assert [line.get("round") for line in lines(tmp_path)] == [None, 1]
    assert "metrics" not in lines(tmp_path)[1]


def test_the_last_round_before_an_interrupt_has_a_line(tmp_path: Path) -> None:
    log = RoundLog(tmp_path, {}, epsilon_spent=lambda n: n / 2)
    log.begin(history(0), 9)
    log.step(history(1, measured=True))
    log.interrupt(history(1, measured=True))
    assert [line.get("round") for line in lines(tmp_path)] == [None, 1]
    log.step(history(2))
    log.interrupt(history(2))
    assert [line.get("round") for line in lines(tmp_path)] == [None, 1, 2]
    assert lines(tmp_path)[-1]["epsilon_spent"] == 1.0
    assert "metrics" not in lines(tmp_path)[-1]


def test_a_measurement_that_an_interrupt_kept_from_the_log_has_a_line(tmp_path: Path) -> None:
    log = RoundLog(tmp_path, {})
    log.begin(history(0), 9)
    log.interrupt(history(2, measured=True))
    assert lines(tmp_path)[-1]["metrics"] == {"HR@10": 0.25}


def test_an_interrupted_run_logs_its_last_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(round_log, "SECONDS_BETWEEN_LINES", 1e9)
    usual = training.step

    def interrupted(work: Any, point: Any) -> Any:
        if point.history.round == 3:
            raise KeyboardInterrupt
        return usual(work, point)

    monkeypatch.setattr(training, "step", interrupted)
    with pytest.raises(Interrupted):
        coterie.run("fedavg", rounds=9, evaluate_every=9, out=tmp_path / "run", **SMALL)
    assert [line.get("round") for line in lines(tmp_path / "run")] == [None, 3]


def test_resuming_appends_and_drops_an_incomplete_line(tmp_path: Path) -> None:
    log = RoundLog(tmp_path, {})
    log.begin(history(0), 3)
    log.step(history(2, measured=True))
    before = (tmp_path / round_log.NAME).read_bytes()
    (tmp_path / round_log.NAME).write_bytes(before + b'{"round": 3, "sec')
    RoundLog(tmp_path, {}).begin(history(1), 3)
    after = (tmp_path / round_log.NAME).read_bytes()
    assert after.startswith(before)
    assert lines(tmp_path)[-1]["after"] == 1


def test_the_budget_is_written_with_measurements(tmp_path: Path) -> None:
    log = RoundLog(tmp_path, {}, epsilon_spent=lambda n: n / 2)
    log.begin(history(0), 9)
    log.step(history(3, measured=True))
    assert lines(tmp_path)[-1]["epsilon_spent"] == 1.5


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / round_log.NAME).mkdir()
    with pytest.raises(RunError, match=r"rounds\.jsonl cannot be written"):
        RoundLog(tmp_path, {}).begin(history(0), 3)


@pytest.mark.long
def test_a_private_run_logs_what_it_spent(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting")
    coterie.run("fcf", rounds=2, epsilon=5.0, out=tmp_path / "run", **SMALL)
    found = coterie.Run.load(tmp_path / "run").result["privacy"]
    assert lines(tmp_path / "run")[-1]["epsilon_spent"] == pytest.approx(
        found["epsilon_spent"], abs=1e-9
    )
