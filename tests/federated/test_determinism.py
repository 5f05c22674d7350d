"""Same seed, same bits: for any threads and nodes, order of users, and after interruptions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_federation import (
    FEDERATED,
    ON_KERNELS,
    SENT_ONCE,
    histories,
    play,
    play_locally,
    sha256,
    small,
    steps,
    world_for,
)

from coterie import api
from coterie.algorithms import registry
from coterie.algorithms.algorithm import Algorithm
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.errors import RunError
from coterie.experiments import checkpoint, preparation, training
from coterie.experiments import experiment as story
from coterie.experiments.config import Experiment
from coterie.experiments.history import Point, TrainingHistory
from coterie.experiments.preparation import Prepared
from coterie.experiments.training import Evaluator, Fitted
from coterie.federated import nodes, wire
from coterie.federated.engine import Engine
from coterie.federated.federation import Exchange, Federation, NodeData, PrivateState, World
from coterie.federated.trainer import world_of
from coterie.federated.validation import Reply
from coterie.models.popularity_prior import PopularityPrior
from coterie.models.recommender import Recommender
from coterie.types import Message

federated = pytest.mark.parametrize("name", FEDERATED)
on_kernels = pytest.mark.parametrize("name", ON_KERNELS)
ONE_PER_ROUND = {"sfpl": 20, "sfpl+": 20}
"""Users selected in four steps of five rounds, by algorithms that select one per round."""
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "drop-out": {"client_dropout": 0.3, "local_epochs": 2},
    "adam": {"optimizer": "adam", "batch_size": 4, "learning_rate": 0.01},
    "moments": {"optimizer": "adam", "batch_size": 4, "learning_rate": 0.01, "moments": "averaged"},
}


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


@pytest.fixture(scope="module")
def ratings(choices) -> TrainingSet:
    """Ratings with so many distinct values that no two nodes share any."""
    drawn = np.random.default_rng(0).normal(3, 1, len(choices)).astype(np.float32)
    return replace(choices, ratings=drawn)


# Threads and nodes.


@federated
@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_threads_does_not_change_a_run(name, way, choices, monkeypatch):
    found = set()
    for threads in (1, 2, 5):
        monkeypatch.setenv("COTERIE_THREADS", str(threads))
        found.add(sha256(play_locally(name, choices, **WAYS[way])[0][-1]))
    assert len(found) == 1


@on_kernels
@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_nodes_does_not_change_a_run(name, way, choices):
    """In memory, through the wire, on 3, 7 and more nodes than users; costs are the same too."""
    runs = [(1, False), (1, True), (3, None), (7, None), (300, None)]
    played = [play_locally(name, choices, nodes, wire, **WAYS[way]) for nodes, wire in runs]
    assert len({sha256(states[-1]) for states, _ in played}) == 1
    costs = [
        [(t.accepted, t.dropped, t.bytes_up, t.bytes_down) for t in all_costs]
        for _, all_costs in played
    ]
    assert all(cost == costs[0] for cost in costs)
    accepted = sum(accepted for accepted, *_ in costs[0])
    selected = sum(len(t.users) for t in played[0][1])
    assert accepted > selected / 2
    assert selected > 100 or ONE_PER_ROUND.get(name) == selected


@on_kernels
def test_the_number_of_nodes_does_not_change_a_run_on_ratings(name, ratings):
    played = [
        play_locally(name, ratings, nodes, wire)[0]
        for nodes, wire in [(1, False), (1, True), (3, None), (7, None)]
    ]
    assert len({sha256(states[-1]) for states in played}) == 1
    assert sha256(played[0][0]) != sha256(played[0][-1])


@on_kernels
def test_nodes_and_threads_together(name, choices, monkeypatch):
    monkeypatch.setenv("COTERIE_THREADS", "1")
    one_thread = play_locally(name, choices)[0][-1]
    monkeypatch.setenv("COTERIE_THREADS", "3")
    assert sha256(play_locally(name, choices, nodes=4)[0][-1]) == sha256(one_thread)


@on_kernels
def test_the_number_of_nodes_is_a_setting(name, people):
    """Set in the API, down to the bytes in the result."""
    few = steps(name, 3) | small(name)
    one, three = (api.run(name, people, nodes=n, **few) for n in (1, 3))
    assert sha256(one.model) == sha256(three.model)
    assert (one.result["bytes_up"], one.result["bytes_down"]) == (
        three.result["bytes_up"],
        three.result["bytes_down"],
    )
    assert one.metrics == three.metrics


@federated
def test_the_reported_bytes_are_those_sent(name, people, monkeypatch):
    """One node per user: the bytes of all messages add up to those in the result.

    Without popularity, whose counts are reported at the bytes of rings that are not simulated.
    """
    travelled = Counter[str]()

    def counting(t: int, arrays: Any, common: Any = None, exchange: int = 0) -> bytes:
        data = wire.encode(t, arrays, common, exchange)
        travelled["up" if common is None else "down"] += len(data)
        return data

    monkeypatch.setattr(nodes, "encode", counting)
    few = steps(name, 3) | small(name)
    result = api.run(name, people, nodes=people.n_users, popularity_prior=0, **few).result
    assert (result["bytes_up"], result["bytes_down"]) == (travelled["up"], travelled["down"])


@pytest.mark.parametrize("name", [name for name in FEDERATED if name not in SENT_ONCE])
def test_another_seed_changes_a_run(name, choices):
    """Otherwise all of the above would hold for a run that does nothing."""
    assert len({sha256(play_locally(name, choices, seed=seed)[0][-1]) for seed in range(3)}) == 3


# Order.


class Shuffled(Engine):
    """Calls nodes with users in random order, and returns replies in random order."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self.rng = np.random.default_rng(seed)

    def gather(self, make: Callable[[World, NodeData], PrivateState]) -> PrivateState:
        return self.engine.gather(make)

    def call(self, exchange: Exchange, message: Message) -> list[Reply]:
        replies = self.engine.call(exchange, message.to(self.rng.permutation(len(message.users))))
        return [replies[k] for k in self.rng.permutation(len(replies))]


@on_kernels
@pytest.mark.parametrize("nodes", [1, 4])
def test_the_order_of_users_does_not_change_a_run(name, nodes, choices):
    world = world_for(name, choices)
    engine = LocalEngine.over(world, choices, nodes)
    expected = [sha256(state) for state in play(name, world, engine)[0]]
    for seed in range(3):
        assert [sha256(state) for state in play(name, world, Shuffled(engine, seed))[0]] == expected


@federated
def test_a_round_can_be_repeated(name):
    """The same state gives the same next state: there is no hidden state, none is overwritten."""
    small = histories(5, n_users=30)
    world = world_for(name, small)
    states, _ = play(name, world, LocalEngine.over(world, small, 2))
    before = [sha256(state) for state in states]
    for n in (1, 2, 4):
        again, _ = play(
            name, world, LocalEngine.over(world, small, 2), since=states[n - 1], first=n
        )
        assert [sha256(state) for state in again] == before[n - 1 :]
    assert [sha256(state) for state in states] == before


# Resuming.


def prepared(name: str, people: Any, **changes: Any) -> Prepared:
    n = changes.pop("rounds", 6)
    length = {"epochs": n} if name == "gmf" else steps(name, n)
    values = (
        {"algorithm": name, "evaluate_every": 2, "checkpoint_every": 1}
        | small(name)
        | length
        | changes
    )
    return preparation.prepare(Experiment.of(values), people, SILENT)


def train(
    ready: Prepared, keep: Any = None, since: Point | None = None, evaluator: Any = None
) -> Fitted:
    return training.train(
        ready.experiment, ready.training, evaluator or ready.evaluator, SILENT, keep, since
    )


def without_time(history: TrainingHistory) -> dict[str, Any]:
    """All but durations."""
    curve = [
        {key: value for key, value in line.items() if key != "seconds"} for line in history.curve
    ]
    return history.to_json() | {
        "curve": curve,
        "seconds": 0,
        "curve_seconds": 0,
        "selections": history.selections.tolist(),
    }


def same_end(one: Fitted, other: Fitted) -> bool:
    return (
        sha256(one.model) == sha256(other.model)
        and one.best_round == other.best_round
        and without_time(one.history) == without_time(other.history)
    )


class Disk:
    """Checkpoints as files, one folder per round."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.kind = registry.algorithm(name).state

    def __call__(self, point: Point, model: Recommender, prior: PopularityPrior | None) -> None:
        place = self.folder / f"{point.history.round:03d}"
        place.mkdir(exist_ok=True)
        checkpoint.write(place, point, "data", {})

    def points(self) -> list[Point]:
        found = [
            checkpoint.read(place, self.kind, "data", {}) for place in sorted(self.folder.iterdir())
        ]
        return [point for point in found if point is not None]


STOPPING = {
    "validation": True,
    "patience": 2,
    "rounds": 12,
    "evaluate_every": 1,
    "learning_rate": 0.3,
}


def stopping_settings(name: str) -> dict[str, Any]:
    """Those of STOPPING that the algorithm has."""
    if "learning_rate" in registry.algorithm(name).settings.model_fields:
        return STOPPING
    return {key: value for key, value in STOPPING.items() if key != "learning_rate"}


@pytest.mark.parametrize("name", [*FEDERATED, "gmf"])
@pytest.mark.parametrize("stopping", [False, True], ids=["to the end", "with patience"])
def test_resuming_from_any_checkpoint_gives_the_uninterrupted_run(name, stopping, people, tmp_path):
    ready = prepared(name, people, **stopping_settings(name) if stopping else {})
    saved = Disk(tmp_path, name)
    straight = train(ready, saved)
    assert same_end(straight, train(ready))  # saving changes nothing
    points = saved.points()
    assert [p.history.round for p in points] == list(range(1, straight.history.round + 1))
    assert all(same_end(straight, train(ready, since=point)) for point in points)


class CtrlC:
    """An evaluator that is interrupted by Ctrl-C while it evaluates one round."""

    def __init__(self, evaluator: Evaluator, at: int) -> None:
        self.evaluator = evaluator
        self.at = at
        self.part = evaluator.part
        self.headline = evaluator.headline
        self.describe = evaluator.describe

    def measure(self, model: Recommender, n: int) -> dict[str, float]:
        if n == self.at:
            raise KeyboardInterrupt
        return self.evaluator.measure(model, n)


@pytest.mark.parametrize("at", [2, 4, 6])
@pytest.mark.parametrize("stopping", [False, True], ids=["to the end", "with patience"])
def test_ctrl_c_during_evaluation_loses_no_measurement(at, stopping, people, tmp_path):
    """A missing measurement would change the curve and, with patience, the chosen model."""
    ready = prepared("fedfast", people, **STOPPING if stopping else {})
    saved = Disk(tmp_path, "fedfast")
    with pytest.raises(KeyboardInterrupt):
        train(ready, saved, evaluator=CtrlC(ready.evaluator, at))
    resumed = train(ready, since=saved.points()[-1])
    rounds = [line["round"] for line in resumed.history.curve]
    assert rounds == ([2, 4, 6] if not stopping else list(range(1, len(rounds) + 1)))
    assert same_end(train(ready), resumed)


def interrupted(name: str, step: int, world: World) -> Algorithm:
    """The algorithm with a Ctrl-C in the middle of the rounds of a step, on every path."""
    chosen = registry.algorithm(name)
    assert isinstance(chosen.train, Federation)
    n_rounds = chosen.train.rounds_per_step(world)
    when = (step - 1) * n_rounds + n_rounds // 2

    def at_a_message(work: Any) -> Any:
        def stop(world: World, message: Message, node: NodeData) -> Any:
            done = work(world, message, node)
            if done is not None and message.exchange == 0 and message.round == when:
                raise KeyboardInterrupt
            return done

        return stop

    def at_a_round(work: Any) -> Any:
        def stop(world: World, node: NodeData, state: Any, rounds: range) -> Any:
            done = work(world, node, state, rounds)
            if done is not None and when in rounds:
                raise KeyboardInterrupt
            return done

        return stop

    def stopping(exchange: Exchange) -> Exchange:
        fast = replace(
            exchange.fast,
            single_pass=at_a_message(exchange.fast.single_pass),
            sequential_rounds=at_a_round(exchange.fast.sequential_rounds),
        )
        return replace(exchange, client_update=at_a_message(exchange.client_update), fast=fast)

    exchanges = [stopping(e) if isinstance(e, Exchange) else e for e in chosen.train.exchanges]
    return replace(chosen, train=replace(chosen.train, exchanges=tuple(exchanges)))


@federated
@pytest.mark.parametrize("at", [1, 3, 6])
def test_ctrl_c_within_a_round_loses_only_that_round(name, at, people, tmp_path, monkeypatch):
    """Or that epoch, where a step is an epoch."""
    if name in SENT_ONCE and at > 1:
        pytest.skip("all clients send in the first round")
    ready = prepared(name, people, checkpoint_every=1000)
    straight = train(ready)
    world = world_of(ready.training, ready.experiment.settings, 0)
    saved = Disk(tmp_path, name)
    stopped = interrupted(name, at, world)
    with monkeypatch.context() as patch:
        patch.setattr(training, "algorithm", lambda name: stopped)
        with pytest.raises(KeyboardInterrupt):
            train(ready, saved)
    (point,) = saved.points()
    assert point.history.round == at - 1
    assert same_end(straight, train(ready, since=point))


# A crash at every single write.

SMALL = {"n_users": 60, "n_items": 90, "mean_interactions": 9, "n_groups": 3}


class Killed(BaseException):
    """Like kill -9: nothing catches it."""


def small_run(folder: Path) -> None:
    values = {
        "algorithm": "fedfast",
        "rounds": 3,
        "evaluate_every": 2,
        "checkpoint_every": 1,
        "embedding_size": 4,
    }
    story.run(Experiment.of(values | SMALL), make_folder=lambda: folder)


def files(folder: Path) -> dict[str, bytes]:
    """The files whose bytes do not depend on the clock."""
    return {
        name: (folder / name).read_bytes()
        for name in ("model.npz", "model.json", "users.csv", "config.yaml")
    }


def crashing_at(n: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The n-th temporary file is never renamed; returns the names of written files, in order."""
    written: list[str] = []
    honest = Path.replace

    def replace_file(self: Path, target: Path) -> Path:
        written.append(Path(target).name)
        if len(written) == n:
            raise Killed
        return honest(self, target)

    monkeypatch.setattr(Path, "replace", replace_file)
    return written


def test_resuming_after_a_crash_at_any_write_gives_the_uninterrupted_run(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # plots take most of a small run's time
    monkeypatch.chdir(tmp_path)
    (tmp_path / "straight").mkdir()
    with monkeypatch.context() as patch:
        written = crashing_at(-1, patch)
        small_run(tmp_path / "straight")
    expected = files(tmp_path / "straight")
    assert written.count("checkpoint.npz") == 3
    for n in range(1, len(written) + 1):
        folder = tmp_path / f"crash {n}"
        folder.mkdir()
        with monkeypatch.context() as patch:
            crashing_at(n, patch)
            with pytest.raises(Killed):
                small_run(folder)
        if n == 1:  # without a config a run cannot be resumed, which is reported
            with pytest.raises(RunError, match=r"config\.yaml"):
                story.resume(folder)
            continue
        assert not (folder / "result.json").exists()
        story.resume(folder)
        assert files(folder) == expected, f"crash before {written[n - 1]} was written"
