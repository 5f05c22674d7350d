"""The leaderboards in the docs: what they claim of themselves is in their data."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.algorithms.registry import names
from coterie.evaluation.significance import holm
from coterie.experiments import leaderboard_folder
from coterie.experiments.leaderboard import Leaderboard, Placing
from coterie.experiments.tuning import space_of

FOLDER = Path(__file__).parents[2] / "docs" / "assets" / "leaderboard"
BOARDS, COMMANDS = leaderboard_folder.read(FOLDER)


@pytest.fixture(params=BOARDS, ids=lambda board: board.dataset)
def board(request: pytest.FixtureRequest) -> Leaderboard:
    found: Leaderboard = request.param
    return found


def test_all_algorithms_are_compared_or_left_out_with_a_reason(board: Leaderboard):
    left_out = {one.algorithm: one.reason for one in board.left_out}
    assert {entry.algorithm for entry in board.entries} | set(left_out) == set(names())
    assert all(left_out.values())


def test_trials_are_equally_many(board: Leaderboard):
    for entry in board.entries:
        searched = space_of(entry.algorithm)
        assert len(entry.trials) == (board.n_trials if searched else 0), entry.algorithm


def test_final_runs_have_the_settings_of_the_best_trial(board: Leaderboard):
    for entry in board.entries:
        if entry.trials:
            best = max(entry.trials, key=value_of)
            searched = set(space_of(entry.algorithm))
            assert {key: entry.settings[key] for key in searched} == {
                key: best.settings[key] for key in searched
            }, entry.algorithm


def value_of(trial) -> float:
    return -1.0 if trial.value is None else trial.value


def test_every_algorithm_has_all_seeds_and_a_corrected_p(board: Leaderboard):
    assert len(board.seeds) == 3
    first, *others = board.entries
    assert first.behind == []
    tests = [test for entry in others for test in entry.behind]
    assert [test.p_holm for test in tests] == pytest.approx(holm([test.p for test in tests]))
    assert [mean_of(board, entry) for entry in board.entries] == sorted(
        (mean_of(board, entry) for entry in board.entries), reverse=True
    )


def mean_of(board: Leaderboard, entry: Placing) -> float:
    return entry.metrics[board.metric].mean


def test_the_page_has_the_figures_of_the_data(board: Leaderboard):
    page = (FOLDER.parents[1] / "leaderboard.md").read_text()
    for entry in board.entries:
        assert f"| {entry.algorithm} | {mean_of(board, entry):.4f} |" in page
    assert all(command in page for command in COMMANDS)
