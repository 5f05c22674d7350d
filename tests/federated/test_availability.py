"""Devices that come and go: who can be asked, who is in time, and that the rest of a run is as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_federation import FEDERATED, ON_KERNELS, play_locally, sha256, world_for

from coterie import api
from coterie.algorithms import registry
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError, DataError
from coterie.federated import availability
from coterie.federated.federation import Federation

ROUNDS = 48


@pytest.fixture(scope="module")
def choices(people) -> TrainingSet:
    return split(people, "leave-one-out", 0.2, seed=0).training()


def here(training: TrainingSet, t: int, rounds: int = ROUNDS, **changes) -> np.ndarray:
    return availability.those_here(world_for("fedavg", training, **changes), t, rounds).present


def test_the_number_of_devices_swings_with_the_day(choices):
    counts = np.array([here(choices, t, availability="diurnal").sum() for t in range(ROUNDS)])
    day = counts[[0, 1, 23, 24, 25, 47]].mean()
    night = counts[[11, 12, 13, 35, 36, 37]].mean()
    assert day > 3 * night
    assert counts.mean() == pytest.approx(availability.AWAKE * choices.n_users, rel=0.1)


def test_everybody_is_away_for_one_stretch(choices):
    there = np.array([here(choices, t, availability="stretches") for t in range(ROUNDS)])
    members = world_for("fedavg", choices).members
    assert (there.sum(axis=0)[members] == ROUNDS * 2 / 3).all()
    changes = (np.diff(np.vstack([there, there[:1]]).astype(int), axis=0) != 0).sum(axis=0)[members]
    assert (changes == 2).all()
    assert 0.5 < there.mean() < 0.8


def test_a_trace_says_who_is_there(choices):
    traced = replace(choices, presence=np.array([[3, 1, 5], [3, 9, 9], [7, 2, 2]]))
    world = world_for("fedavg", traced, availability_file="trace.csv")
    found = [
        sorted(np.flatnonzero(availability.those_here(world, t, 10).here[[3, 7, 8]]))
        for t in range(10)
    ]
    assert found == [[0, 2], [0, 1, 2], [0, 2], [0, 2], [0, 2], [2], [2], [2], [0, 2], [2]]


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("pattern", ["diurnal", "stretches"])
def test_only_those_who_are_there_are_asked(name, pattern, choices):
    world = world_for(name, choices, availability=pattern)
    federation = registry.algorithm(name).train
    assert isinstance(federation, Federation)
    state = play_locally(name, choices)[0][0].without_private()
    for t in range(6):
        at = availability.those_here(world, t, 6)
        cohort = federation.sample(at, state, t)
        assert len(cohort)
        assert at.present[cohort].all()


@pytest.mark.parametrize("name", ["fedavg", "fedfast", "pfpl+", "sttfedrec-dssm"])
def test_a_round_asks_for_more_and_closes_with_the_first(name, choices):
    if name not in FEDERATED:
        pytest.skip("needs PyTorch")
    usual = play_locally(name, choices, users_per_round=40)[1]
    more = play_locally(name, choices, users_per_round=40, over_selection=0.5)[1]
    for before, after in zip(usual, more, strict=True):
        assert len(after.users) == pytest.approx(1.5 * len(before.users), abs=1)
        assert after.accepted == before.accepted
        assert after.dropped == len(after.users) - after.accepted


def test_who_is_late_is_not_heard(choices):
    world = world_for("fedavg", choices, deadline=1.0)
    cohort = np.arange(100, dtype=np.int32)
    times = availability.seconds(world, cohort, 3)
    late = availability.late(world, cohort, 3, 100)
    assert (late == (times > 1)).all()
    assert 30 < late.sum() < 70
    first = availability.late(world_for("fedavg", choices), cohort, 3, 40)
    assert (~first).sum() == 40
    assert times[~first].max() < times[first].min()
    assert availability.late(world_for("fedavg", choices), cohort, 3, 100) is None


@pytest.mark.parametrize("name", ON_KERNELS)
def test_any_number_of_nodes_is_one_run(name, choices):
    changes = {
        "availability": "diurnal",
        "deadline": 1.5,
        "over_selection": 0.2,
        "rounds_per_day": 4,
    }
    runs = [play_locally(name, choices, nodes, **changes) for nodes in (1, 3)]
    assert sha256(runs[0][0][-1]) == sha256(runs[1][0][-1])
    assert sum(costs.dropped for costs in runs[0][1]) or name.startswith("sfpl")


def test_a_round_for_nobody_changes_nothing(choices):
    nobody = replace(choices, presence=np.array([[u, 2, 9] for u in range(choices.n_users)]))
    states, tallies = play_locally("fedfast", nobody, availability_file="trace.csv")
    assert sha256(states[0]) == sha256(states[1]) != sha256(states[2])
    assert (len(tallies[0].users), tallies[0].bytes_down) == (0, 0)


def test_from_a_file(tmp_path: Path):
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "user_id,from_round,to_round\n" + "".join(f"{u},1,2\n" for u in range(2, 61, 2))
    )
    run = api.run(
        "fedavg", n_users=60, n_items=50, rounds=3, participation=1.0, availability_file=str(trace)
    )
    assert run.result["asked"] == 60 + 60 + 30


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("user_id,from_round\n1,2\n", "to_round"),
        (
            "user_id,from_round,to_round\n1,0,2\n",
            "line 2, column 'from_round' is '0'; expected a whole number from 1",
        ),
        ("user_id,from_round,to_round\nnobody,1,2\n", "no value of column 'user_id' is in the data"),
    ],
)
def test_what_is_wrong_with_a_trace_is_said(tmp_path: Path, text: str, told: str):
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    with pytest.raises(DataError, match=told):
        api.run("fedavg", n_users=30, n_items=30, rounds=1, availability_file=str(trace))


def test_a_file_that_there_is_not():
    with pytest.raises(DataError, match=r"nowhere\.csv: does not exist"):
        api.run("fedavg", n_users=30, n_items=30, rounds=1, availability_file="nowhere.csv")


def test_a_pattern_or_a_trace():
    with pytest.raises(ConfigError, match="expected one of the two"):
        api.run(
            "fedavg", n_users=30, n_items=30, availability="diurnal", availability_file="trace.csv"
        )


def test_a_ring_cannot_close_early():
    with pytest.raises(ConfigError, match="a ring cannot close before"):
        api.run(
            "fedavg",
            n_users=30,
            n_items=30,
            rounds=1,
            secure_aggregation="ring",
            over_selection=0.5,
        )
