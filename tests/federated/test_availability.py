"""Availability: which clients can be selected, which reply in time, and what does not change."""

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


def present(training: TrainingSet, t: int, rounds: int = ROUNDS, **changes) -> np.ndarray:
    return availability.those_here(world_for("fedavg", training, **changes), t, rounds).present


def test_the_number_of_available_clients_follows_the_day(choices):
    counts = np.array([present(choices, t, availability="diurnal").sum() for t in range(ROUNDS)])
    day = counts[[0, 1, 23, 24, 25, 47]].mean()
    night = counts[[11, 12, 13, 35, 36, 37]].mean()
    assert day > 3 * night
    assert counts.mean() == pytest.approx(availability.AWAKE * choices.n_users, rel=0.1)


def test_every_client_is_unavailable_for_one_stretch(choices):
    available = np.array([present(choices, t, availability="stretches") for t in range(ROUNDS)])
    members = world_for("fedavg", choices).members
    assert (available.sum(axis=0)[members] == ROUNDS * 2 / 3).all()
    circle = np.vstack([available, available[:1]]).astype(int)
    changes = (np.diff(circle, axis=0) != 0).sum(axis=0)[members]
    assert (changes == 2).all()
    assert 0.5 < available.mean() < 0.8


def test_a_trace_determines_who_is_available(choices):
    traced = replace(choices, presence=np.array([[3, 1, 5], [3, 9, 9], [7, 2, 2]]))
    world = world_for("fedavg", traced, availability_file="trace.csv")
    by_round = []
    for t in range(10):
        available = availability.those_here(world, t, 10).available
        assert available is not None
        by_round.append(np.flatnonzero(available[[3, 7, 8]]).tolist())
    assert by_round == [[0, 2], [0, 1, 2], [0, 2], [0, 2], [0, 2], [2], [2], [2], [0, 2], [2]]


@pytest.mark.parametrize("name", FEDERATED)
@pytest.mark.parametrize("pattern", ["diurnal", "stretches"])
def test_only_available_clients_are_selected(name, pattern, choices):
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
def test_over_selection_accepts_the_first_replies(name, choices):
    if name not in FEDERATED:
        pytest.skip("needs PyTorch")
    usual = play_locally(name, choices, users_per_round=40)[1]
    more = play_locally(name, choices, users_per_round=40, over_selection=0.5)[1]
    for before, after in zip(usual, more, strict=True):
        assert len(after.users) == pytest.approx(1.5 * len(before.users), abs=1)
        assert after.accepted == before.accepted
        assert after.dropped == len(after.users) - after.accepted


def test_late_replies_are_dropped(choices):
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
def test_the_number_of_nodes_does_not_change_a_run(name, choices):
    changes = {
        "availability": "diurnal",
        "deadline": 1.5,
        "over_selection": 0.2,
        "rounds_per_day": 4,
    }
    runs = [play_locally(name, choices, nodes, **changes) for nodes in (1, 3)]
    assert sha256(runs[0][0][-1]) == sha256(runs[1][0][-1])
    assert sum(costs.dropped for costs in runs[0][1]) or name.startswith("sfpl")


def test_a_round_without_available_clients_changes_nothing(choices):
    later = replace(choices, presence=np.array([[u, 2, 9] for u in range(choices.n_users)]))
    states, costs = play_locally("fedfast", later, availability_file="trace.csv")
    assert sha256(states[0]) == sha256(states[1]) != sha256(states[2])
    assert (len(costs[0].users), costs[0].bytes_down) == (0, 0)


def test_a_trace_from_a_file(tmp_path: Path):
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
        ("user_id,from_round,to_round\nnobody,1,2\n", "nothing in column 'user_id' is in the data"),
    ],
)
def test_errors_in_a_trace_are_reported(tmp_path: Path, text: str, message: str):
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    with pytest.raises(DataError, match=message):
        api.run("fedavg", n_users=30, n_items=30, rounds=1, availability_file=str(trace))


def test_a_missing_trace_is_reported():
    with pytest.raises(DataError, match=r"nowhere\.csv: does not exist"):
        api.run("fedavg", n_users=30, n_items=30, rounds=1, availability_file="nowhere.csv")


def test_a_pattern_and_a_trace_exclude_each_other():
    with pytest.raises(ConfigError, match="expected one of the two"):
        api.run(
            "fedavg", n_users=30, n_items=30, availability="diurnal", availability_file="trace.csv"
        )


def test_secure_aggregation_excludes_over_selection():
    with pytest.raises(ConfigError, match="a ring cannot close before"):
        api.run(
            "fedavg",
            n_users=30,
            n_items=30,
            rounds=1,
            secure_aggregation="ring",
            over_selection=0.5,
        )
