"""A recording is what happened: against the run's own figures, and against training once more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coterie
from coterie.algorithms.fedfast import ALGORITHM
from coterie.attacks import report
from coterie.attacks.eavesdropper import Observation
from coterie.attacks.evidence import Claims
from coterie.console.recordings import replay_progress
from coterie.console.recordings.inferred import best_claims, times_of
from coterie.console.recordings.received import UpdateRecorder
from coterie.console.recordings.record import record_run
from coterie.console.recordings.recording import NAME, Recording
from coterie.console.recordings.user_map import (
    MARGIN,
    MOST_USERS,
    STEPS,
    frames_of,
    mapped_users,
    on_a_map,
    principal_axes,
)
from coterie.core.progress import SILENT
from coterie.engines import select
from coterie.errors import ConfigError, RunError
from coterie.experiments import run_folder
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.experiments.run_folder import (
    read_catalogue,
    read_config,
    write_arrays,
    write_catalogue,
)
from coterie.federated.federation import Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context

SMALL: dict[str, Any] = {"n_users": 60, "n_items": 40, "n_groups": 2, "mean_interactions": 10}


@pytest.fixture(scope="module")
def clustered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "fedfast"
    coterie.run("fedfast", rounds=5, clusters=4, participation=0.2, seed=3, out=folder, **SMALL)
    return folder


@pytest.fixture(scope="module")
def disclosing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded") / "pfpl"
    rates = "uniform(0, 1)"
    coterie.run("pfpl+", epochs=4, embedding_size=6, disclosure=rates, out=folder, **SMALL)
    return folder


# ---- the map


def test_the_map_is_that_of_training_once_more(clustered: Path) -> None:
    """The trainer that runs use, not the one of replays, has the same cohorts and clusters."""
    recording = record_run(clustered)
    found = recording.user_map
    assert found is not None
    assert recording.difference == 0.0
    assert found.rounds.tolist() == [0, 1, 2, 3, 4, 5]
    experiment = Experiment.of(read_config(clustered))
    ready = prepare(experiment, None, SILENT)
    assert isinstance(ALGORITHM.train, Federation)
    work = select.trainer(
        ALGORITHM.train,
        ready.training,
        federation_settings(experiment.settings),
        Context(experiment.choice.seed, SILENT),
    )
    state, _ = work.start()
    assert (found.clusters[0] == state.clusters[found.users]).all()
    assert not found.selections[0].any()
    for n in range(1, 6):
        state, costs = work.step(state, n)
        assert (found.clusters[n] == state.clusters[found.users]).all()
        assert found.users[found.selections[n] > 0].tolist() == sorted(costs.users.tolist())
    assert len({tuple(labels) for labels in found.clusters}) > 1


def test_centres_of_fedbso_are_members(tmp_path: Path) -> None:
    run = tmp_path / "run"
    coterie.run("fedbso", rounds=3, clusters=4, out=run, **SMALL)
    found = record_run(run).user_map
    assert found is not None
    assert found.centres.shape == (4, 4)
    assert np.isin(found.centres, found.users).all()


def test_axes_are_those_of_a_singular_value_decomposition() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32)
    rows *= np.array([1, 9, 2, 5, 1, 1], np.float32)
    axes, explained = principal_axes(rows)
    _, values, vectors = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    for k in range(2):
        expected = vectors[k] * np.sign(vectors[k][np.abs(vectors[k]).argmax()])
        assert axes[:, k] == pytest.approx(expected, abs=1e-4)
    assert explained == pytest.approx((values**2 / (values**2).sum())[:2], rel=1e-4)


def test_points_on_a_line_need_one_axis() -> None:
    """(3, 4) / 5 by hand; the sign is that of the larger entry."""
    rows = np.outer([-2.0, 1.0, 5.0], [-3.0, -4.0]).astype(np.float32)
    axes, explained = principal_axes(rows)
    assert axes[:, 0] == pytest.approx([0.6, 0.8], abs=1e-6)
    assert explained == pytest.approx([1.0, 0.0], abs=1e-6)
    one, _ = principal_axes(np.array([[1.0], [2.0]], np.float32))
    assert one.tolist() == [[1.0, 0.0]]


def test_a_map_has_one_scale_and_grows_downwards() -> None:
    points = np.array([[[0.0, 0.0], [10.0, 5.0]]], np.float32)
    placed = on_a_map(points) / STEPS
    inner = 1 - 2 * MARGIN
    assert placed[0, 0] == pytest.approx([MARGIN, 0.5 + inner / 4], abs=1e-4)
    assert placed[0, 1] == pytest.approx([1 - MARGIN, 0.5 - inner / 4], abs=1e-4)
    assert (on_a_map(np.zeros((1, 3, 2), np.float32)) == 32768).all()


def test_frames_are_even_and_have_both_ends() -> None:
    assert frames_of(3, 200) == {0, 1, 2, 3}
    assert frames_of(100, 5) == {0, 25, 50, 75, 100}


def test_many_users_are_sampled_and_the_same_ones_again() -> None:
    members = np.ones(MOST_USERS + 500, bool)
    members[7] = False
    users = mapped_users(members, 1)
    assert len(np.unique(users)) == MOST_USERS
    assert 7 not in users
    assert (users == mapped_users(members, 1)).all()
    assert (users != mapped_users(members, 2)).any()


# ---- what the server received


def test_bytes_are_those_that_the_run_counted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = coterie.run(
        "fedavg", rounds=3, participation=0.3, popularity_prior=0, out=run, **SMALL
    ).result
    received = record_run(run).received
    assert received is not None
    assert int(received.n_bytes.sum()) == result["bytes_up"]
    assert len(received.users) == result["updates"]
    updates = [update for user in range(60) for update in received.of(user)]
    assert len(updates) == result["updates"]
    assert sum(len(update.items) for update in updates) == len(received.items)
    for user in range(60):
        rounds = [update.round for update in received.of(user)]
        assert rounds == sorted(set(rounds))


def observation(t: int, users: list[int], items: list[list[int]]) -> Observation:
    counts = [len(each) for each in items]
    flat = np.array([item for each in items for item in each], np.int32)
    return Observation(
        t,
        np.array(users, np.int32),
        np.array(counts, np.int64),
        np.concatenate([[0], np.cumsum(counts)]),
        flat,
        np.repeat(flat[:, None] << 20, 2, axis=1),
        {},
        np.empty((len(users), 0), np.int32),
        np.array(counts, np.int64) * 100,
    )


def test_updates_are_sorted_by_user_and_round() -> None:
    recorder = UpdateRecorder()
    recorder.add(observation(0, [2, 5], [[3, 4], [1]]))
    recorder.add(observation(1, [0, 2], [[2], [0, 1, 3]]))
    found = recorder.finish(2)
    assert [(one.round, one.items.tolist(), one.n_bytes) for one in found.of(2)] == [
        (1, [3, 4], 200),
        (2, [0, 1, 3], 300),
    ]
    # Both entries of a row are the item, so that its length is the item times the root of two.
    assert found.of(2)[0].changes == pytest.approx([3 * 2**0.5, 4 * 2**0.5])
    assert found.of(1) == []
    assert found.until == 2


def test_a_recording_that_grows_too_large_ends_early() -> None:
    recorder = UpdateRecorder(most_rows=4)
    recorder.add(observation(0, [2, 5], [[3, 4], [1]]))
    recorder.add(observation(1, [2], [[0, 1]]))
    recorder.add(observation(2, [2], [[0]]))
    found = recorder.finish(3)
    assert found.until == 1
    assert len(found.users) == 2


def test_under_secure_aggregation_nothing_is_received(tmp_path: Path) -> None:
    run = tmp_path / "run"
    coterie.run("fedals", rounds=1, secure_aggregation="ring", out=run, **SMALL)
    recording = record_run(run)
    assert recording.received is None
    assert recording.inferred is not None


# ---- what attackers infer


def test_figures_are_those_of_the_disclosure_report(disclosing: Path) -> None:
    inferred = record_run(disclosing).inferred
    assert inferred is not None
    expected = report(disclosing, (4,))
    assert inferred.after.tolist() == [1, 3, 4]
    for n, name in enumerate(inferred.attackers):
        observed = inferred.observed[n]
        recall = inferred.hits[-1, n, observed] / inferred.liked[observed]
        assert recall.mean() == pytest.approx(expected.of(name, 4).recall), name
        assert inferred.claims[-1, n, observed].mean() == pytest.approx(expected.of(name, 4).claims)
    assert 0 < inferred.rates.min() < inferred.rates.max() < 1


def test_best_claims_by_hand() -> None:
    keys = np.array([0, 2, 4, 11, 12])  # user 0: items 0, 2, 4; user 1: items 1, 2
    claims = Claims(keys, np.array([1, 5, 5, -1, 2]), np.zeros(3, np.int64))
    best = best_claims(claims, 3, 10)
    assert best[0, :4].tolist() == [2, 4, 0, -1]
    assert best[1, :2].tolist() == [2, -1]
    assert (best[2] == -1).all()
    assert times_of(1) == [1]
    assert times_of(100) == [1, 3, 10, 30, 100]


# ---- progress


def test_a_replay_says_how_far_it_is_and_leaves_nothing(
    clustered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(replay_progress, "EVERY", 0.0)
    write = run_folder.write_text

    def watched(folder: Path, name: str, text: str) -> None:
        write(folder, name, text)
        seen.append(replay_progress.read_progress(folder))

    monkeypatch.setattr(run_folder, "write_text", watched)
    record_run(clustered, rounds=3)
    assert [(one.round, one.rounds) for one in seen if one] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert not (clustered / replay_progress.NAME).exists()
    assert replay_progress.read_progress(clustered) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"round": 1}',
        '{"round": "x"}',
        '{"round": 1, "rounds": 2, "seconds": NaN}',
        '{"round": Infinity, "rounds": 2, "seconds": 1}',
        "\xff",
        "[" * 9000,
    ],
)
def test_broken_progress_is_no_progress(tmp_path: Path, text: str) -> None:
    (tmp_path / replay_progress.NAME).write_bytes(text.encode("latin-1"))
    assert replay_progress.read_progress(tmp_path) is None


# ---- the file


def test_a_recording_is_read_back(disclosing: Path) -> None:
    recording = record_run(disclosing, rounds=2)
    recording.write(disclosing)
    assert (disclosing / NAME).stat().st_mode & 0o077 == 0
    again = Recording.read(disclosing)
    assert np.isnan(again.difference)
    assert again.n_rounds == 2
    assert again.inferred is not None
    assert recording.inferred is not None
    assert again.inferred.attackers.tolist() == recording.inferred.attackers.tolist()
    assert again.user_map is not None
    assert recording.user_map is not None
    assert (again.user_map.places == recording.user_map.places).all()
    assert again.received is not None
    assert recording.received is not None
    assert again.received.of(3)[0].items.tolist() == recording.received.of(3)[0].items.tolist()


def test_a_damaged_recording_is_refused(clustered: Path, tmp_path: Path) -> None:
    recording = record_run(clustered, rounds=1)
    assert recording.user_map is not None
    write_catalogue(tmp_path, read_catalogue(clustered))
    recording.write(tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RunError, match="coterie record"):
        Recording.read(tmp_path)
    write_arrays(tmp_path / NAME, {"about": np.array([99.0, 1, 1, 0])})
    with pytest.raises(RunError, match="its format is 99; expected 1"):
        Recording.read(tmp_path)
    short = replace(recording.user_map, clusters=recording.user_map.clusters[:, :-1])
    replace(recording, user_map=short).write(tmp_path)
    with pytest.raises(RunError, match="the map is not of 2 rounds"):
        Recording.read(tmp_path)
    assert recording.received is not None
    wild = replace(recording.received, offsets=recording.received.offsets + 10**6)
    replace(recording, received=wild).write(tmp_path)
    with pytest.raises(RunError, match="offsets do not ascend"):
        Recording.read(tmp_path)


def test_indices_beyond_the_run_are_refused(disclosing: Path, tmp_path: Path) -> None:
    """60 users and 40 items: index 60 or 40 is the first that is wrong."""
    recording = record_run(disclosing, rounds=1)
    write_catalogue(tmp_path, read_catalogue(disclosing))
    drawn, received, inferred = recording.user_map, recording.received, recording.inferred
    assert drawn is not None
    assert received is not None
    assert inferred is not None

    def refused(damaged: Recording, reason: str) -> None:
        damaged.write(tmp_path)
        with pytest.raises(RunError, match=reason) as raised:
            Recording.read(tmp_path)
        assert "\n" not in str(raised.value)
        assert "coterie record" in str(raised.value)

    for wrong in (-1, 40):
        damaged = replace(received, items=changed(received.items, wrong))
        refused(replace(recording, received=damaged), "items are not all from 0 to 39")
    damaged = replace(received, users=changed(received.users, 60))
    refused(replace(recording, received=damaged), "users of updates are not all from 0 to 59")
    for wrong in (-2, 40):
        claims = replace(inferred, best=changed(inferred.best, wrong))
        refused(replace(recording, inferred=claims), "items of claims are not all from -1 to 39")
    claims = replace(inferred, hits=inferred.hits[:, :, :-1])
    refused(replace(recording, inferred=claims), "the inferences are not of .* 60 users")
    for wrong in (-1, 60):
        placed = replace(drawn, users=changed(drawn.users, wrong))
        refused(replace(recording, user_map=placed), "users of the map are not all from 0 to 59")
    recording.write(tmp_path)
    assert Recording.read(tmp_path).n_rounds == 1


def changed(indices: np.ndarray, wrong: int) -> np.ndarray:
    """The same array with another last entry."""
    copy = indices.copy()
    copy.flat[-1] = wrong
    return copy


def test_with_patience_the_saved_model_is_that_of_the_best_round(tmp_path: Path) -> None:
    """Training goes on after the best round: the recording has those rounds, too."""
    run = tmp_path / "run"
    result = coterie.run(
        "fedavg",
        rounds=30,
        evaluate_every=1,
        patience=2,
        validation=True,
        headline=["HR@10"],
        out=run,
        **SMALL,
    ).result
    assert (result["best_round"], result["rounds"]) == (3, 5)
    recording = record_run(run)
    assert recording.n_rounds == 5
    assert recording.difference == 0.0
    assert record_run(run, 3).difference == 0.0
    assert np.isnan(record_run(run, 2).difference)


def test_a_centralised_run_is_refused(tmp_path: Path) -> None:
    coterie.run("popular", out=tmp_path / "run", **SMALL)
    with pytest.raises(ConfigError, match="popular, which is centralised"):
        record_run(tmp_path / "run")
