"""What the server solves for after the last round is announced, and counts as training."""

from __future__ import annotations

import time
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from coterie import api
from coterie.algorithms import fedease, fedslim
from coterie.core.progress import SILENT, Progress
from coterie.experiments import preparation, training
from coterie.experiments.choice import ChoiceRequest, choose
from coterie.experiments.config import Experiment
from coterie.experiments.history import Point

SMALL = {"n_users": 60, "n_items": 40, "mean_interactions": 10, "n_groups": 3}
SLOW = 0.4
"""Seconds that a solution is made to take: many times the rest of such a run."""
ANNOUNCED = {
    "fedease": "FedEASE: the server inverts a matrix of 40 items on one thread",
    "fedslim": "FedSLIM: the server solves for the weights of 40 items",
}
solving = pytest.mark.parametrize("module", [fedease, fedslim], ids=list(ANNOUNCED))


class LogLines(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


def name_of(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2]


def slowed(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make the solution slow; the list has an entry for each time that it is computed."""
    solve = module.item_weights
    calls: list[float] = []

    def slow(*args: Any) -> Any:
        calls.append(SLOW)
        time.sleep(SLOW)
        return solve(*args)

    monkeypatch.setattr(module, "item_weights", slow)
    return calls


@solving
def test_it_is_announced_once_and_is_training_time(module, monkeypatch):
    calls = slowed(module, monkeypatch)
    progress = LogLines()
    run = api.run(name_of(module), progress=progress, **SMALL)
    assert len(calls) == 1
    assert progress.lines.count(ANNOUNCED[name_of(module)]) == 1
    assert run.result["seconds"] > SLOW
    assert run.curve[-1]["seconds"] > SLOW
    assert run.result["curve_seconds"] < SLOW
    assert run.result["evaluation_seconds"] < SLOW


@solving
def test_models_of_earlier_rounds_are_measurements(module, monkeypatch):
    """Training needs the last one alone."""
    calls = slowed(module, monkeypatch)
    progress = LogLines()
    few = {"rounds": 3, "participation": 0.3, "evaluate_every": 1}
    run = api.run(name_of(module), progress=progress, **SMALL, **few)
    assert len(calls) == 3
    assert progress.lines.count(ANNOUNCED[name_of(module)]) == 1
    assert SLOW < run.result["seconds"] < 2 * SLOW
    assert 2 * SLOW < run.result["curve_seconds"] < 3 * SLOW


@solving
def test_a_run_that_had_ended_is_announced_and_not_counted_again(module, monkeypatch):
    experiment = Experiment.of(SMALL | {"algorithm": name_of(module)})
    ready = preparation.prepare(experiment, None, SILENT)
    points: list[Point] = []

    def train(progress: Progress, since: Point | None = None) -> training.Fitted:
        return training.train(
            experiment,
            ready.training,
            ready.evaluator,
            progress,
            lambda point, model, prior: points.append(point),
            since,
        )

    first = train(SILENT)
    calls = slowed(module, monkeypatch)
    # As read from disk: other arrays.
    ended = replace(points[-1].state, pairs=points[-1].state.pairs.copy())
    progress = LogLines()
    again = train(progress, Point(ended, points[-1].history))
    assert len(calls) == 1
    assert progress.lines == [ANNOUNCED[name_of(module)]]
    assert again.history.seconds == first.history.seconds
    for field, array in first.model.arrays().items():
        assert array.tobytes() == again.model.arrays()[field].tobytes()


@solving
def test_a_choice_counts_it_as_training(module, monkeypatch):
    slowed(module, monkeypatch)
    quick = {"fcf": {"rounds": 1}, "fedmvmf": {"rounds": 1}, "fedals": {"rounds": 1}}
    epochs = {name: {"epochs": 1} for name in ("pfpl", "pfpl+")}
    request = ChoiceRequest(may_leave="sums", settings=SMALL, own=quick | epochs)
    found = next(one for one in choose(request).candidates if one.name == name_of(module))
    assert found.seconds > SLOW


@pytest.mark.parametrize("name", ["fedals", "popular"])
def test_other_algorithms_announce_nothing(name):
    progress = LogLines()
    api.run(name, progress=progress, **SMALL)
    assert not any("the server" in line for line in progress.lines)
