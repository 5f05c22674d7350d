"""Leaderboards: equal trials, the test part untouched by searches, and pages made from data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from coterie.data.synthetic import Synthetic, generate
from coterie.errors import ConfigError, UnknownName
from coterie.experiments.comparison import Difference, Spread
from coterie.experiments.leaderboard import (
    NOT_WANTED,
    Leaderboard,
    LeaderboardRequest,
    NotCompared,
    Placing,
    SearchTrial,
    leaderboard,
)
from coterie.experiments.leaderboard_facts import Facts
from coterie.experiments.leaderboard_folder import add, is_leaderboard, read
from coterie.experiments.leaderboard_page import markdown, page
from coterie.experiments.leaderboard_tables import (
    accuracy_table,
    best_by_exposure,
    findings,
    pareto_front,
)

TEXTLESS = replace(
    generate(Synthetic(n_users=60, n_items=50, mean_interactions=9)), item_texts=None
)
SMALL = LeaderboardRequest(
    dataset="synthetic",
    algorithms=("popular", "ease", "fedease", "fl-dssm"),
    trials=2,
    seeds=2,
    quick=True,
)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Leaderboard, Path]:
    cells = tmp_path_factory.mktemp("cells")
    return leaderboard(SMALL, cells, given=TEXTLESS), cells


def test_all_that_have_settings_to_search_have_as_many_trials(
    measured: tuple[Leaderboard, Path],
) -> None:
    board, _ = measured
    trials = {entry.algorithm: len(entry.trials) for entry in board.entries}
    assert trials == {"popular": 0, "ease": 2, "fedease": 2}


def test_trials_are_on_validation_and_final_runs_on_test(
    measured: tuple[Leaderboard, Path],
) -> None:
    _, cells = measured
    parts = [json.loads(path.read_text())["part"] for path in cells.rglob("cell.json")]
    assert parts.count("validation") == 2 * 2
    assert parts.count("test") == 3 * 2


def test_earlier_searches_and_popularity_do_not_count(measured: tuple[Leaderboard, Path]) -> None:
    _, cells = measured
    configs = [json.loads(path.read_text())["config"] for path in cells.rglob("cell.json")]
    assert {config["popularity_prior"] for config in configs} == {0.0}


def test_the_best_trial_is_trained_again(measured: tuple[Leaderboard, Path]) -> None:
    board, _ = measured
    for entry in board.entries:
        if not entry.trials:
            continue
        best = max(entry.trials, key=lambda trial: trial.value or 0.0)
        assert best.settings.items() <= entry.settings.items()


def test_federated_ease_is_the_centralised_one(measured: tuple[Leaderboard, Path]) -> None:
    board, _ = measured
    found = {entry.algorithm: entry for entry in board.entries}
    assert found["fedease"].metrics["NDCG@10"].mean == found["ease"].metrics["NDCG@10"].mean
    assert found["fedease"].facts.exposure == "sums"
    assert found["ease"].facts.exposure == "histories"
    assert found["fedease"].bytes_up > 0
    assert found["ease"].bytes_up == 0


def test_an_algorithm_that_cannot_learn_from_the_data_is_listed(
    measured: tuple[Leaderboard, Path],
) -> None:
    board, _ = measured
    assert [one.algorithm for one in board.left_out] == ["fl-dssm"]
    assert "text" in board.left_out[0].reason


def test_an_algorithm_can_be_left_out(measured: tuple[Leaderboard, Path]) -> None:
    _, cells = measured
    board = leaderboard(replace(SMALL, without=("ease",)), cells, given=TEXTLESS)
    assert {entry.algorithm for entry in board.entries} == {"popular", "fedease"}
    assert {one.algorithm: one.reason for one in board.left_out}["ease"] == NOT_WANTED


def test_algorithms_that_train_on_a_gpu_are_named(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    request = replace(SMALL, algorithms=("popular", "ease", "fedease"), gpu=("ease",))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="PyTorch finds no GPU"):
            leaderboard(request, tmp_path, given=TEXTLESS)
        return
    board = leaderboard(request, tmp_path, given=TEXTLESS)
    settings = {entry.algorithm: entry.settings for entry in board.entries}
    assert settings["ease"]["device"] == "cuda"
    assert "device" not in settings["fedease"]


def test_a_second_run_trains_nothing(measured: tuple[Leaderboard, Path]) -> None:
    board, cells = measured
    before = {path: path.stat().st_mtime_ns for path in cells.rglob("result.json")}
    again = leaderboard(SMALL, cells, given=TEXTLESS)
    assert {path: path.stat().st_mtime_ns for path in cells.rglob("result.json")} == before
    assert [entry.metrics for entry in again.entries] == [entry.metrics for entry in board.entries]


def test_data_is_read_back(measured: tuple[Leaderboard, Path], tmp_path: Path) -> None:
    board, _ = measured
    add(tmp_path, board, "coterie leaderboard synthetic")
    assert is_leaderboard(tmp_path)
    assert read(tmp_path) == ([board], ["coterie leaderboard synthetic"])


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(UnknownName, match="fedals"):
        leaderboard(LeaderboardRequest(dataset="synthetic", algorithms=("fedal",)))
    with pytest.raises(UnknownName, match=r"(?s)fedals.*--without|--without.*fedals"):
        leaderboard(LeaderboardRequest(dataset="synthetic", without=("fedal",)))
    with pytest.raises(ConfigError, match=r"--gpu is 'als', .*expected one of .*lightgcn"):
        leaderboard(LeaderboardRequest(dataset="synthetic", gpu=("als",)))
    with pytest.raises(ConfigError, match="trials is 0; expected at least 1"):
        leaderboard(LeaderboardRequest(dataset="synthetic", trials=0))
    with pytest.raises(ConfigError, match="no algorithm can learn from synthetic"):
        leaderboard(
            LeaderboardRequest(dataset="synthetic", algorithms=("fl-dssm",)), given=TEXTLESS
        )


# Tables and pages, from data that is made up


def entry(name: str, value: float, megabytes: float, exposure: str, behind: float = 0.0) -> Placing:
    spread = {"NDCG@10": Spread(value, 0.01), "HR@10": Spread(2 * value, 0.02)}
    test = Difference(
        method="best",
        metric="NDCG@10",
        other=name,
        difference=behind,
        low=behind - 0.01,
        high=behind + 0.01,
        p=0.001,
        p_holm=0.5 if behind < 0.02 else 0.002,
        seeds_ahead=3,
    )
    return Placing(
        algorithm=name,
        facts=Facts(
            federated=exposure != "histories",
            exposure=exposure,
            server_receives="<b>its row</b>",
            secure_aggregation="",
            not_private="",
            new_users=True,
            client_seconds=0.001,
        ),
        trials=[SearchTrial(settings={"reg": 1.0}, value=value, steps=3)],
        settings={"reg": 1.0},
        metrics=spread,
        full=spread,
        steps=10.0,
        seconds=1.0,
        messages=3.0,
        bytes_up=megabytes * 1e6 / 2,
        bytes_down=megabytes * 1e6 / 2,
        behind=[test] if behind else [],
    )


BOARD = Leaderboard(
    dataset="<i>own</i>.csv",
    data="abc",
    protocol="loo-99",
    metric="NDCG@10",
    users=10,
    items=20,
    interactions=100,
    tested_users=9,
    n_trials=1,
    seeds=[0, 1, 2],
    quick=False,
    version="1",
    entries=[
        entry("central", 0.5, 0.0, "histories"),
        entry("near", 0.49, 8.0, "updates", 0.01),
        entry("summed", 0.4, 2.0, "sums", 0.1),
        entry("costly", 0.3, 4.0, "sums", 0.2),
        entry("cheap", 0.2, 1.0, "sums and more", 0.3),
    ],
    left_out=[NotCompared("towers", "no texts")],
)


def test_the_front_has_what_no_cheaper_one_beats() -> None:
    assert [one.algorithm for one in pareto_front(BOARD)] == ["cheap", "summed", "near"]


def test_the_best_of_every_exposure() -> None:
    found = {level: one.algorithm for level, one in best_by_exposure(BOARD).items()}
    assert found == {
        "sums": "summed",
        "sums and more": "cheap",
        "updates": "near",
        "histories": "central",
    }


def test_findings_name_the_best_and_who_is_level() -> None:
    lines = findings(BOARD)
    assert "central is best, NDCG@10 0.5000" in lines[0]
    assert lines[0].endswith("not significantly worse: near.")
    assert lines[1] == (
        "The best federated algorithm is near, 0.0100 behind (95% interval 0.0000 to 0.0200), not "
        "a significant difference."
    )
    assert "summed is best: NDCG@10 0.4000" in lines[2]


def test_rows_of_accuracy() -> None:
    rows = accuracy_table(BOARD).rows
    assert rows[0] == ["central", "0.5000", "1.0000", "0.5000", "best", "", ""]
    assert rows[2][4:] == ["0.1000", "0.0900 to 0.1100", "0.0020"]


def test_pages_escape_what_they_show() -> None:
    text = page([BOARD], "coterie leaderboard '<script>'")
    assert "<i>own" not in text
    assert "<b>its row" not in text
    assert "'<script>'" not in text
    assert "towers: no texts" in text
    assert "| summed |" in markdown([BOARD], "coterie leaderboard")
