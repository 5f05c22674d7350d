"""Availability: which clients a round can select, and which of them reply in time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_federation import (
    FEDERATED,
    ON_KERNELS,
    few_settings,
    play_locally,
    sha256,
    world_for,
)

from coterie import api
from coterie.algorithms import registry
from coterie.core.progress import SILENT
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, DataError
from coterie.federated import availability
from coterie.federated.federation import Federation
from coterie.types import Rows

ROUNDS = 48


@pytest.fixture(scope="module")
def training(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


def available(training: TrainingSet, t: int, rounds: int = ROUNDS, **changes) -> np.ndarray:
    world = world_for("fedavg", training, **changes)
    return availability.with_available(world, t, rounds).present


def test_diurnal_availability_follows_the_day(training):
    counts = np.array([available(training, t, availability="diurnal").sum() for t in range(ROUNDS)])
    day = counts[[0, 1, 23, 24, 25, 47]].mean()
    night = counts[[11, 12, 13, 35, 36, 37]].mean()
    assert day > 3 * night
    assert counts.mean() == pytest.approx(
        availability.MEAN_AVAILABILITY * training.n_users, rel=0.1
    )


def test_every_client_is_unavailable_for_one_stretch(training):
    by_round = np.array([available(training, t, availability="stretches") for t in range(ROUNDS)])
    members = world_for("fedavg", training).members
    assert (by_round.sum(axis=0)[members] == ROUNDS * 2 / 3).all()
    around = np.vstack([by_round, by_round[:1]]).astype(int)
    changes = (np.diff(around, axis=0) != 0).sum(axis=0)[members]
    assert (changes == 2).all()
    assert 0.5 < by_round.mean() < 0.8


def test_heavy_contributors_are_away_for_one_long_stretch():
    """Counts 1 to 20 and one user without any: of 20 clients, the two heaviest are sporadic."""
    counts = np.append(np.random.default_rng(0).permutation(20) + 1, 0)
    users = np.repeat(np.arange(21), counts).astype(np.int32)
    items = np.concatenate([np.arange(n) for n in counts]).astype(np.int32)
    rows = Rows.build(users, items, 21)
    plain = TrainingSet(21, 20, rows, rows, None)
    settings = few_settings("fedavg", availability="heavy_away")
    training = availability.with_availability_trace(plain, settings, None, SILENT)
    by_round = np.array([available(training, t, availability="heavy_away") for t in range(ROUNDS)])
    heavy = np.flatnonzero(counts >= 19)
    others = np.setdiff1d(np.flatnonzero(counts), heavy)
    assert by_round[:, others].all()
    assert not by_round[:, counts == 0].any()
    assert (by_round[:, heavy].sum(axis=0) == ROUNDS / 3).all()
    around = np.vstack([by_round, by_round[:1]]).astype(int)
    assert (np.abs(np.diff(around, axis=0)).sum(axis=0)[heavy] == 2).all()
    assert (by_round[:, heavy[0]] != by_round[:, heavy[1]]).any(), "each has a stretch of its own"


def test_a_run_without_its_heavy_contributors():
    few = {"n_users": 60, "n_items": 50, "rounds": 9, "participation": 1.0}
    usual = api.run("fedfast", **few).result["asked"]
    sporadic = api.run("fedfast", availability="heavy_away", **few).result["asked"]
    assert usual - sporadic == 6 * 6, "six clients are away in six of nine rounds"


def test_a_trace_defines_availability(training):
    traced = replace(training, presence=np.array([[3, 1, 5], [3, 9, 9], [7, 2, 2]]))
    world = world_for("fedavg", traced, availability_file="trace.csv")
    by_round = [
        sorted(np.flatnonzero(availability.with_available(world, t, 10).available[[3, 7, 8]]))
        for t in range(10)
    ]
    assert by_round == [[0, 2], [0, 1, 2], [0, 2], [0, 2], [0, 2], [2], [2], [2], [0, 2], [2]]


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("pattern", ["diurnal", "stretches"])
def test_only_available_clients_are_selected(name, pattern, training):
    world = world_for(name, training, availability=pattern)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    state = play_locally(name, training)[0][0].without_private()
    for t in range(6):
        now = availability.with_available(world, t, 6)
        cohort = federation.sample(now, state, t)
        assert len(cohort)
        assert now.present[cohort].all()


@pytest.mark.parametrize("name", ["fedavg", "fedfast", "pfpl+", "sttfedrec-dssm"])
def test_over_selection_aggregates_the_first_replies(name, training):
    if name not in FEDERATED:
        pytest.skip("needs PyTorch")
    usual = play_locally(name, training, users_per_round=40)[1]
    more = play_locally(name, training, users_per_round=40, over_selection=0.5)[1]
    for before, after in zip(usual, more, strict=True):
        assert len(after.users) == pytest.approx(1.5 * len(before.users), abs=1)
        assert after.accepted == before.accepted
        assert after.dropped == len(after.users) - after.accepted


def test_late_clients_are_dropped(training):
    world = world_for("fedavg", training, deadline=1.0)
    cohort = np.arange(100, dtype=np.int32)
    times = availability.response_times(world, cohort, 3)
    late = availability.late_clients(world, cohort, 3, 100)
    assert (late == (times > 1)).all()
    assert 30 < late.sum() < 70
    first = availability.late_clients(world_for("fedavg", training), cohort, 3, 40)
    assert (~first).sum() == 40
    assert times[~first].max() < times[first].min()
    assert availability.late_clients(world_for("fedavg", training), cohort, 3, 100) is None


@pytest.mark.parametrize("name", ON_KERNELS)
def test_results_do_not_depend_on_the_number_of_nodes(name, training):
    changes = {
        "availability": "diurnal",
        "deadline": 1.5,
        "over_selection": 0.2,
        "rounds_per_day": 4,
    }
    runs = [play_locally(name, training, nodes, **changes) for nodes in (1, 3)]
    assert sha256(runs[0][0][-1]) == sha256(runs[1][0][-1])
    assert sum(costs.dropped for costs in runs[0][1]) or name.startswith("sfpl")


def test_a_round_without_available_clients_changes_nothing(training):
    from_round_2 = np.array([[user, 2, 9] for user in range(training.n_users)])
    traced = replace(training, presence=from_round_2)
    states, costs = play_locally("fedfast", traced, availability_file="trace.csv")
    assert sha256(states[0]) == sha256(states[1]) != sha256(states[2])
    assert (len(costs[0].users), costs[0].bytes_down) == (0, 0)


def test_a_run_with_a_trace_file(tmp_path: Path):
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "user_id,from_round,to_round\n" + "".join(f"{u},1,2\n" for u in range(2, 61, 2))
    )
    run = api.run(
        "fedavg", n_users=60, n_items=50, rounds=3, participation=1.0, availability_file=str(trace)
    )
    assert run.result["asked"] == 60 + 60 + 30


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user_id,from_round\n1,2\n", "to_round"),
        (
            "user_id,from_round,to_round\n1,0,2\n",
            "line 2, column 'from_round' is '0'; expected a whole number from 1",
        ),
        (
            "user_id,from_round,to_round\nnobody,1,2\n",
            "no value of column 'user_id' is in the data",
        ),
    ],
)
def test_faults_of_a_trace_are_named(tmp_path: Path, text: str, message: str):
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    with pytest.raises(DataError, match=message):
        api.run("fedavg", n_users=30, n_items=30, rounds=1, availability_file=str(trace))


def test_a_missing_trace_file_is_an_error():
    with pytest.raises(DataError, match=r"nowhere\.csv: does not exist"):
        api.run("fedavg", n_users=30, n_items=30, rounds=1, availability_file="nowhere.csv")


def test_a_pattern_and_a_trace_exclude_each_other():
    with pytest.raises(ConfigError, match="expected one of the two"):
        api.run(
            "fedavg", n_users=30, n_items=30, availability="diurnal", availability_file="trace.csv"
        )


def test_over_selection_and_rings_exclude_each_other():
    with pytest.raises(ConfigError, match="cannot close before"):
        api.run(
            "fedavg",
            n_users=30,
            n_items=30,
            rounds=1,
            secure_aggregation="ring",
            over_selection=0.5,
        )
