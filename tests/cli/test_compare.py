"""`coterie compare` and `coterie tune`: metrics, files, mistakes and interrupted comparisons."""

from __future__ import annotations

import csv
import json
import re
import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from calling import SMALL, Done, start
from scipy import stats

from coterie.experiments import plan_runner

Command = Callable[..., Done]
CELLS = ["--cells", "cells"]
QUICK = [*SMALL, "--set", "epochs=3", *CELLS]


def result_of(done: Done) -> dict[str, Any]:
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert isinstance(found, dict)
    return found


def rows_of(text: str) -> list[list[str]]:
    drawn = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in drawn]


def cells_in(place: Path) -> dict[tuple[str, int], Path]:
    found = {}
    for path in place.rglob("result.json"):
        result = json.loads(path.read_text())
        found[result["algorithm"], result["seed"]] = path.parent
    return found


# ---- metrics and tests


def users_of(folder: Path, name: str) -> dict[str, float]:
    with (folder / "users.csv").open() as file:
        return {row["user_id"]: float(row[name]) for row in csv.DictReader(file)}


def by_hand(places: dict[tuple[str, int], Path], name: str, algorithm: str) -> list[float]:
    """Every user's mean over three seeds, in the order of their ids."""
    tables = [users_of(places[algorithm, seed], name) for seed in range(3)]
    return [statistics.mean(table[user] for table in tables) for user in sorted(tables[0])]


def test_the_table_is_what_the_cells_say(coterie: Command, tmp_path: Path) -> None:
    found = result_of(coterie("compare", "bpr", "popular", "gmf", "--seeds", "3", *QUICK, "--json"))
    places = cells_in(tmp_path / "cells")
    assert len(places) == 9
    compared = [found[key] for key in ("dataset", "protocol", "seeds")]
    assert compared == ["synthetic", "loo-50", [0, 1, 2]]
    assert [s["method"] for s in found["standings"]] == ["bpr", "popular", "gmf"]
    for standing in found["standings"]:
        files = [places[standing["method"], seed] / "result.json" for seed in range(3)]
        results = [json.loads(file.read_text()) for file in files]
        for kind in ("metrics", "full"):
            for name in ("HR@10", "NDCG@10"):
                values = [result[kind][name] for result in results]
                mean = pytest.approx(statistics.mean(values), abs=1e-12)
                deviation = pytest.approx(statistics.stdev(values), abs=1e-12)
                assert standing[kind][name] == {"mean": mean, "deviation": deviation}
        for cost in ("rounds", "seconds", "bytes_up", "bytes_down"):
            mean = pytest.approx(statistics.mean(result[cost] for result in results))
            assert standing["costs"][cost]["mean"] == mean
        areas = [result["convergence"]["area"] for result in results]
        if standing["method"] == "popular":
            assert standing["area"] is None
        else:
            assert standing["area"]["mean"] == pytest.approx(statistics.mean(areas))


def test_the_tests_are_what_scipy_and_holm_say(coterie: Command, tmp_path: Path) -> None:
    found = result_of(coterie("compare", "bpr", "popular", "gmf", "--seeds", "3", *QUICK, "--json"))
    places = cells_in(tmp_path / "cells")
    expected = {}
    for other in ("popular", "gmf"):
        for name in ("HR@10", "NDCG@10", "full:HR@10", "full:NDCG@10"):
            one = by_hand(places, name, "bpr")
            two = by_hand(places, name, other)
            expected[other, name] = (
                statistics.mean(one) - statistics.mean(two),
                stats.ttest_rel(one, two).pvalue,
            )
    assert len(found["tests"]) == len(expected) == 8
    for test in found["tests"]:
        difference, p = expected[test["other"], test["metric"]]
        assert test["difference"] == pytest.approx(difference, abs=1e-9)
        assert test["p"] == pytest.approx(p, rel=1e-6)
        assert test["low"] <= test["difference"] <= test["high"]
    ordered = sorted(test["p"] for test in found["tests"])
    for test in found["tests"]:
        # Holm: the largest of m p_(1), (m - 1) p_(2), ... up to this one, at most 1.
        rank = ordered.index(test["p"])
        corrected = min(1, max((8 - k) * ordered[k] for k in range(rank + 1)))
        assert test["p_holm"] == pytest.approx(corrected)


def test_what_is_printed_is_what_is_written(coterie: Command, tmp_path: Path) -> None:
    done = coterie("compare", "bpr", "popular", "--seeds", "2", *QUICK)
    found = json.loads((tmp_path / "runs" / "compare-synthetic-1" / "comparison.json").read_text())
    cells = {row[0]: row for row in rows_of(done.out)[:2]}
    for standing in found["standings"]:
        spread = standing["metrics"]["HR@10"]
        text = f"{spread['mean']:.4f} ±{spread['deviation']:.4f}"
        text += " †" if "HR@10" in standing["below_popular"] else ""
        assert cells[standing["method"]][1].rstrip(" ▲▼") == text
    # Two epochs are too few for BPR: the comparison says so.
    assert found["standings"][0]["below_popular"] == ["HR@10", "NDCG@10"]
    assert found["standings"][1]["below_popular"] == []
    assert "† below popular: recommending the most popular items" in done.out
    written = (tmp_path / "runs" / "compare-synthetic-1" / "report.md").read_text()
    for method, row in cells.items():
        assert f"| {method} | {row[1]} | {row[2]} |" in written.replace("*", "")
    assert "report: runs/compare-synthetic-1/report.html" in done.out
    assert "4 runs ..." in done.err
    assert "4 runs" not in done.out


def test_folds_are_all_run_and_compared(coterie: Command) -> None:
    methods = ("compare", "popular", "random", "--folds", "3", *SMALL, *CELLS)
    found = result_of(coterie(*methods, "--json"))
    assert (found["folds"], found["seeds"], len(found["runs"])) == (3, [0], 6)
    assert found["protocol"] == "kfold-5 (folds=3)"
    assert found["standings"][0]["metrics"]["R@10"]["deviation"] > 0
    wrong = coterie(*methods, "--set", "split=random")
    assert wrong.error == "setting 'split' is 'random', but the plan determines it. Use --folds."


def test_quiet_hides_progress_and_keeps_every_line_of_the_result(coterie: Command) -> None:
    arguments = ["compare", "popular", "random", "--seeds", "1", *SMALL, *CELLS, "--out", "both"]
    loud = coterie(*arguments)
    done = coterie(*arguments, "--quiet")
    assert (done.code, done.err) == (0, "")
    assert done.out == loud.out
    assert "Best by HR@10: popular" in done.out
    assert "users tested" in done.out
    assert "report: both/report.html" in done.out


def test_the_protocol_is_explained(coterie: Command, tmp_path: Path) -> None:
    arguments = ["compare", "popular", "random", "--seeds", "1", *CELLS, "--out", "report"]
    done = coterie(*arguments, *SMALL, "--protocol", "full")
    line = (
        "Protocol full: the newest interaction of every user held out, "
        "ranked among all items that the user has not seen; lists of 10"
    )
    assert line in done.out
    rows = [f"{user},{item}" for user in range(9) for item in range(9) if user != item]
    (tmp_path / "likes.csv").write_text("\n".join(["user_id,item_id", *rows, ""]))
    done = coterie(*arguments, "--dataset", "likes.csv")
    assert "full: one interaction of every user, drawn at random (no times), held out, " in done.out
    assert "one interaction of every user" in (tmp_path / "report" / "report.html").read_text()


def test_popularity_in_scores_is_told_once(coterie: Command) -> None:
    arguments = ["compare", "gmf", "popular", "--seeds", "2", *SMALL, *CELLS]
    done = coterie(*arguments, "--set", "gmf.epochs=2", "--set", "gmf.popularity_prior=3")
    assert done.code == 0, done.err
    assert done.out.count("Popularity counts as") == 1


def test_untuned_settings_of_several_have_one_command(coterie: Command) -> None:
    done = coterie("compare", "ease", "slim", "--seeds", "1", *SMALL, *CELLS)
    assert "Settings of ease, slim: defaults" in done.out
    assert "coterie tune NAME --dataset synthetic searches" in done.out


def test_untuned_settings_are_named(coterie: Command, tmp_path: Path) -> None:
    arguments = ["compare", "ease", "mine=ease", "popular", "--seeds", "1", *SMALL, *CELLS]
    arguments += ["--out", "both"]
    line = (
        "Settings of ease: defaults, not tuned for this data; "
        "coterie tune ease --dataset synthetic searches for better ones."
    )
    assert line in coterie(*arguments, "--set", "mine.reg=7").out
    for name in ("report.md", "report.html"):
        assert line in (tmp_path / "both" / name).read_text()
    done = coterie("compare", "popular", "random", "--seeds", "1", *SMALL, *CELLS)
    assert "not tuned" not in done.out, "they have no settings"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_log_file_gets_a_line_for_every_finished_run(
    coterie: Command, tmp_path: Path, workers: str
) -> None:
    arguments = ["compare", "bpr", "popular", "--seeds", "2", *QUICK, "--workers", workers]
    done = coterie(*arguments)
    assert done.code == 0, done.err
    pattern = r"run (\d) of 4: (\w+) on synthetic, seed (\d): HR@10 (0\.\d+), [\d.]+ s"
    found = re.findall(pattern, done.err)
    assert [number for number, *_ in found] == ["1", "2", "3", "4"]
    places = cells_in(tmp_path / "cells")
    for _, method, seed, value in found:
        result = json.loads((places[method, int(seed)] / "result.json").read_text())
        assert float(value) == pytest.approx(result["metrics"]["HR@10"], abs=1e-4)


def test_a_page_with_one_colour_per_method(coterie_with_figures: Command, tmp_path: Path) -> None:
    arguments = ["compare", "bpr", "gmf", "--seeds", "2", *QUICK, "--out", "both", "--quiet"]
    assert coterie_with_figures(*arguments).code == 0
    text = (tmp_path / "both" / "report.html").read_text()
    pushed = re.findall(r"FIGURES\.push\((\[.*?\])\)</script>", text)
    for figure in pushed:
        colours = re.findall(r'"name": "(\w+)".*?"color": "(#\w{6})"', figure)
        assert {("bpr", "#2a6f97"), ("gmf", "#e07a5f")} <= set(colours)
    assert len(pushed) == 2
    assert "bpr, gmf on synthetic" in text
    assert "coterie compare bpr gmf --seeds 2" in text


def test_a_target_says_when_it_was_reached(coterie: Command, tmp_path: Path) -> None:
    arguments = ["compare", "fedavg", "popular", "--seeds", "2", *SMALL, *CELLS]
    found = result_of(coterie(*arguments, "--set", "rounds=6", "--target", "0.01", "--json"))
    (fedavg, popular) = found["standings"]
    places = cells_in(tmp_path / "cells")
    assert found["target"] == 0.01
    files = [places["fedavg", seed] / "metrics.jsonl" for seed in (0, 1)]
    curves = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    first = [next(line for line in curve if line["HR@10"] >= 0.01) for curve in curves]
    assert fedavg["rounds_to_target"] == [line["round"] for line in first]
    assert fedavg["updates_to_target"] == [line["updates"] for line in first]
    assert popular["rounds_to_target"] == [1, 1]
    assert fedavg["costs"]["bytes_up"]["mean"] > 0 == popular["costs"]["bytes_up"]["mean"]


# ---- finished runs are not repeated


def test_a_second_comparison_runs_only_what_is_new(coterie: Command, tmp_path: Path) -> None:
    coterie("compare", "bpr", "popular", "--seeds", "2", *QUICK)
    before = {path: path.read_bytes() for path in (tmp_path / "cells").rglob("*") if path.is_file()}
    again = coterie("compare", "popular", "bpr", "gmf", "--seeds", "2", *QUICK)
    assert "4 of 6 runs are already finished" in again.err
    assert "2 runs ..." in again.err
    assert all(path.read_bytes() == content for path, content in before.items())
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [
        "compare-synthetic-1",
        "compare-synthetic-2",
    ]


def test_by_default_cells_lie_in_the_cache_folder(
    coterie: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_runner, "cache_folder", lambda: tmp_path / "cache")
    coterie("compare", "popular", "--seeds", "1", *SMALL, "--quiet")
    assert cells_in(tmp_path / "cache" / "cells").keys() == {("popular", 0)}


def test_settings_for_all_and_for_one(coterie: Command, tmp_path: Path) -> None:
    arguments = ["compare", "bpr", "popular", "long=bpr", *SMALL, *CELLS, "--seeds", "1", "--json"]
    found = result_of(coterie(*arguments, "--set", "epochs=2", "--set", "long.epochs=5"))
    shown = [
        (s["method"], s["algorithm"], s["costs"]["rounds"]["mean"]) for s in found["standings"]
    ]
    assert shown == [("bpr", "bpr", 2), ("popular", "popular", 1), ("long", "bpr", 5)]


def test_an_experiment_file_is_a_method(coterie: Command, tmp_path: Path) -> None:
    """Only the algorithm and its settings count; data, protocol and seeds are the comparison's."""
    (tmp_path / "mine.yaml").write_text(
        "algorithm: bpr\nepochs: 4\ndataset: ml-100k\nseed: 7\nprotocol: full\n"
    )
    arguments = [
        "compare",
        "mine.yaml",
        "again=mine.yaml",
        *SMALL,
        *CELLS,
        "--seeds",
        "1",
        "--json",
    ]
    found = result_of(coterie(*arguments, "--set", "again.epochs=2"))
    assert (found["dataset"], found["protocol"], found["seeds"]) == ("synthetic", "loo-50", [0])
    assert [(s["method"], s["costs"]["rounds"]["mean"]) for s in found["standings"]] == [
        ("mine", 4),
        ("again", 2),
    ]


def test_secure_aggregation_is_for_every_federated_method(coterie: Command, tmp_path: Path) -> None:
    """Also for a file with another setting; settings of one method come first."""
    pytest.importorskip("cryptography")
    (tmp_path / "mine.yaml").write_text("algorithm: fcf\nsecure_aggregation: none\n")
    methods = ["fcf", "popular", "mine.yaml", "open=fcf"]
    options = ["--secure-aggregation", "secagg", "--set", "open.secure_aggregation=none"]
    quick = [*SMALL, *CELLS, "--seeds", "1", "--set", "rounds=1", "--json"]
    found = result_of(coterie("compare", *methods, *options, *quick))
    results = [json.loads((Path(run) / "result.json").read_text()) for run in found["runs"]]
    protocols = [result["settings"].get("secure_aggregation") for result in results]
    assert protocols == ["secagg", None, "secagg", "none"]
    assert ["protection" in result for result in results] == [True, False, True, False]
    accuracy = [standing["metrics"] for standing in found["standings"]]
    assert accuracy[0] == accuracy[2] == accuracy[3], "sums are the same"


def test_a_method_that_secure_aggregation_cannot_hide_is_refused(
    coterie: Command, tmp_path: Path
) -> None:
    quick = [*SMALL, *CELLS, "--seeds", "1", "-q"]
    line = coterie("compare", "sfpl", "popular", "--secure-aggregation", "secagg", *quick).error
    assert "a round of 1 user cannot hide any of them; expected at least 10" in line
    assert not (tmp_path / "runs").exists()


def test_budgets_are_methods_of_their_own_with_a_figure(coterie: Command) -> None:
    pytest.importorskip("dp_accounting")
    quick = [*SMALL, *CELLS, "--seeds", "2", "--json"]
    options = ["--epsilon", "1", "--epsilon", "20"]
    found = result_of(coterie("compare", "popular", "fedease", "ease", *options, *quick))
    assert [standing["method"] for standing in found["standings"]] == [
        "popular (epsilon 1)",
        "popular (epsilon 20)",
        "fedease (epsilon 1)",
        "fedease (epsilon 20)",
        "ease",
    ]
    results = [json.loads((Path(run) / "result.json").read_text()) for run in found["runs"]]
    assert [r.get("privacy", {}).get("epsilon") for r in results] == [1, 20, 1, 20, None] * 2
    report = (Path(found["report"]) / "report.html").read_text()
    assert "<h2>Accuracy and privacy</h2>" in report
    assert "by privacy budget" in report
    assert "coterie tune fedease" not in report, "a search would not be paid for"


def test_an_algorithm_without_private_sums_is_refused_by_name(coterie: Command) -> None:
    pytest.importorskip("dp_accounting")
    quick = [*SMALL, *CELLS, "--seeds", "1", "-q"]
    line = coterie("compare", "popular", "fedavg", "--epsilon", "5", *quick).error
    assert "fedavg (epsilon 5) on synthetic, seed 0: epsilon is 5, but this algorithm" in line


def test_a_comparison_may_be_written_over_an_earlier_one_and_over_nothing_else(
    coterie: Command, tmp_path: Path
) -> None:
    arguments = ["compare", "popular", "--seeds", "1", *SMALL, *CELLS, "--quiet", "--out"]
    assert coterie(*arguments, "mine").code == 0
    assert coterie(*arguments, "mine").code == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    assert coterie(*arguments, "other").error.startswith("other exists")
    assert [p.name for p in (tmp_path / "other").iterdir()] == ["thesis.txt"]


def test_a_real_comparison_finds_a_real_difference(
    coterie: Command, real_data: Callable[..., None]
) -> None:
    real_data("ml-100k", "u.data", "ml-100k.inter")
    found = result_of(
        coterie("compare", "popular", "random", "-d", "ml-100k", "--seeds", "2", *CELLS, "--json")
    )
    assert found["tested_users"] == 943
    hits = next(test for test in found["tests"] if test["metric"] == "HR@10")
    # docs/baselines.md: 0.60 and 0.19.
    assert hits["difference"] == pytest.approx(0.41, abs=0.03)
    assert hits["low"] > 0.35
    assert hits["p_holm"] < 1e-10


# ---- interrupted


def test_interrupted_comparison_says_how_to_go_on_and_goes_on(
    coterie: Command, tmp_path: Path
) -> None:
    endless = ["--set", "bpr.epochs=10000000", "--set", "bpr.evaluate_every=5"]
    arguments = ["compare", "popular", "bpr", "--seeds", "1", *SMALL, *CELLS]
    process = start(*arguments, *endless, cwd=tmp_path)
    try:
        wait_for_cells(tmp_path / "cells", 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "interrupted: 1 of 2 runs is finished and saved. Continue with the same command." in err
    assert "Traceback" not in err
    done = coterie(*arguments, "--set", "bpr.epochs=2")
    assert done.code == 0, done.err
    assert "1 of 2 runs is already finished" in done.err


def wait_for_cells(place: Path, n: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(place.glob("*/cell.json"))) < n:
        if time.monotonic() > deadline:
            pytest.fail("training did not begin within a minute")
        time.sleep(0.02)


# ---- mistakes

MISTAKES = [
    (["gmff"], "unknown algorithm 'gmff'. Did you mean 'gmf'?"),
    (
        ["gmf", "gmf"],
        "method 'gmf' is given more than once; expected different ones. "
        "Label the methods: LABEL=NAME.",
    ),
    (
        ["gmf", "--set", "gmff.epochs=2"],
        "unknown method 'gmff' in --set gmff.epochs. Did you mean 'gmf'?",
    ),
    (["gmf", "bpr", "--set", "epoch=2"], "Did you mean 'epochs'?"),
    (
        ["popular", "--set", "epochs=2"],
        "unknown setting 'epochs' (value 2): no compared method has it.",
    ),
    (["popular", "gmf", "--set", "popular.epochs=2"], "popular: unknown setting 'epochs'"),
    (
        ["gmf", "--set", "seed=2"],
        "setting 'seed' is 2, but the plan determines it. Use --seeds.",
    ),
    (
        ["gmf", "bpr", "--set", "bpr.candidates=9"],
        "setting 'candidates' is 9 for bpr and 50 for gmf;",
    ),
    (
        ["gmf", "bpr", "--set", "bpr.validation=true"],
        "expected one value for all compared methods",
    ),
    (["gmf", "--dataset", "ml100k"], "unknown dataset 'ml100k'"),
    (["gmf", "--protocol", "loo50"], "unknown protocol 'loo50'"),
    (["none.yaml"], "none.yaml: does not exist"),
    (
        ["fcf", "--secure-aggregation", "rings"],
        "fcf: setting 'secure_aggregation' is 'rings'",
    ),
    (
        ["gmf", "bpr", "--secure-aggregation", "secagg"],
        "setting 'secure_aggregation' (value 'secagg'): no compared method has it.",
    ),
    (
        ["gmf", "bpr", "--epsilon", "5"],
        "--epsilon is 5, but none of gmf, bpr has a privacy budget;",
    ),
    (
        ["gmf", "--set", "learning_rate=1e30"],
        "gmf on synthetic, seed 0: training diverged at round 1",
    ),
]


@pytest.mark.parametrize(
    ("arguments", "complaint"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES]
)
def test_mistake_is_one_line(
    coterie: Command, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    data = [] if "--dataset" in arguments else SMALL
    line = coterie("compare", *arguments, *data, "--seeds", "1", *CELLS, "-q").error
    assert complaint in line
    assert not (tmp_path / "runs").exists(), "no report of a comparison that failed"
    assert (tmp_path / "cells").exists() == ("diverged" in complaint), (
        "a mistake is found before any run"
    )


@pytest.mark.parametrize("command", ["compare", "tune"])
def test_help_explains(coterie: Command, command: str) -> None:
    text = coterie(command, "--help").out
    assert "\\[" not in text
    assert f"coterie {command} " in text
    assert command in coterie("--help").out


# ---- tune


def test_tune_prints_the_winner_and_writes_it_as_an_experiment(
    coterie: Command, tmp_path: Path
) -> None:
    fixed = ["--set", "embedding_size=4", "--set", "evaluate_every=1"]
    trials = ["--trials", "3", "--finalists", "0"]
    done = coterie("tune", "gmf", *trials, *QUICK, *fixed, "--write", "found/gmf.yaml")
    assert done.code == 0, done.err
    results = [json.loads(path.read_text()) for path in (tmp_path / "cells").rglob("result.json")]
    best = max(results, key=lambda result: result["value"])
    values = sorted((result["value"] for result in results), reverse=True)
    shown = {row[0]: row[1:] for row in rows_of(done.out)}
    assert shown["NDCG@10"] == [f"{value:.4f}" for value in values]
    assert (shown["epochs"][0], shown["embedding_size"][0]) == (str(best["best_round"]), "4")
    assert "run it: coterie run found/gmf.yaml" in done.out
    written = yaml.safe_load((tmp_path / "found" / "gmf.yaml").read_text())
    settings = [written[key] for key in ("algorithm", "epochs", "n_users")]
    assert settings == ["gmf", best["best_round"], 60]
    assert shown["popularity_prior"][0] == f"{written['popularity_prior']:.3g}"
    result = result_of(coterie("run", "found/gmf.yaml", "--json"))
    assert result["rounds"] == best["best_round"]
    assert result["popularity_prior"] == best["popularity_prior"] == written["popularity_prior"]


def test_a_run_of_a_tuned_file_says_that_settings_come_from_it(
    coterie: Command, tmp_path: Path
) -> None:
    trials = ["--trials", "1", "--finalists", "0"]
    assert coterie("tune", "ease", *trials, *SMALL, *CELLS, "--write", "ease.yaml").code == 0
    done = coterie("run", "ease.yaml")
    assert "Settings of ease: from ease.yaml. --set overrides them." in done.err
    assert "not tuned" not in done.err


def test_tune_with_json_prints_one_object(coterie: Command) -> None:
    trials = ["--trials", "3", "--finalists", "2", "--seeds", "2"]
    done = coterie("tune", "ease", *trials, *SMALL, *CELLS, "--json")
    found = result_of(done)
    assert done.err == ""
    assert (found["algorithm"], found["metric"], len(found["ranking"])) == ("ease", "NDCG@10", 2)
    assert found["settings"] == found["ranking"][0]["settings"]
    assert found["value"] == max(trial["value"] for trial in found["ranking"])


TUNE_MISTAKES = [
    (["popular"], "algorithm 'popular' has no search space; expected one of"),
    (["fedfsat"], "unknown algorithm 'fedfsat'. Did you mean 'fedfast'?"),
    (
        ["gmf", "--write", "winner.txt"],
        "--write is winner.txt; expected an experiment file that ends in .yaml.",
    ),
    (["gmf", "--set", "learning_rat=1"], "Did you mean 'learning_rate'?"),
    (["ease", "--set", "embedding_size=4"], "unknown setting 'embedding_size' (value 4)"),
]


@pytest.mark.parametrize(
    ("arguments", "complaint"), TUNE_MISTAKES, ids=[" ".join(m[0]) for m in TUNE_MISTAKES]
)
def test_tuning_mistake_is_one_line(coterie: Command, arguments: list[str], complaint: str) -> None:
    assert complaint in coterie("tune", *arguments, *SMALL, *CELLS, "-q").error
