"""Comparisons by hand: two methods, two seeds, and four users with known values."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from scipy import stats

from coterie.errors import ConfigError, Diverged
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.comparison import comparison
from coterie.experiments.comparison_page import page
from coterie.experiments.comparison_report import legend, markdown, notes
from coterie.experiments.comparison_summary import summary
from coterie.experiments.comparison_tables import ColumnGroup, packed, sections
from coterie.experiments.plan import Plan, cells
from coterie.report import forest
from coterie.report.figure import mean_curve, panels
from coterie.report.figures import COLOURS
from coterie.report.interactive import layout, traces
from coterie.report.lines import line_plot
from coterie.report.table import markdown_table

SVG = "{http://www.w3.org/2000/svg}"
# Hits of the users a, b, c, d with seeds 0 and 1.
HITS = {"popular": ([1, 1, 0, 1], [1, 1, 1, 1]), "random": ([0, 1, 0, 0], [0, 0, 1, 0])}
BYTES = {"popular": (0, 0), "random": (2_000_000, 4_000_000)}
AREAS = {"popular": (None, None), "random": (0.2, 0.4)}
REACHED = {"popular": ((1, None), (None, None)), "random": ((20, 40), (200, 400))}


def finished_cell(
    place: Path, cell: Any, target: float | None = None, users: str = "abcd"
) -> CellResult:
    label = cell.method.label
    seed = cell.experiment.choice.seed
    hits = HITS[cell.method.algorithm][seed]
    rows = {user: hit for user, hit in zip("abcd", hits, strict=True) if user in users}
    mean = sum(rows.values()) / len(rows)
    folder = place / f"{label}-{seed}"
    folder.mkdir()
    lines = [
        "user_id,HR@10,full:HR@10",
        *(f"{user},{rows[user]},{rows[user] / 2}" for user in users),
    ]
    (folder / "users.csv").write_text("\n".join(lines) + "\n")
    rounds, updates = REACHED[cell.method.algorithm]
    convergence = {"metric": "HR@10", "part": "test", "area": AREAS[cell.method.algorithm][seed]}
    if target is not None:
        convergence |= {
            "target": target,
            "rounds_to_target": rounds[seed],
            "updates_to_target": updates[seed],
        }
    result = {
        "algorithm": cell.method.algorithm,
        "dataset": "synthetic",
        "protocol": "loo-50",
        "seed": seed,
        "data": "x",
        "metrics": {"HR@10": mean},
        "full": {"HR@10": mean / 2, "IC@10": 12.0},
        "headline": ["HR@10", "IC@10"],
        "rounds": 10 * (seed + 1),
        "seconds": 1.5 + seed,
        "bytes_up": BYTES[cell.method.algorithm][seed],
        "bytes_down": BYTES[cell.method.algorithm][seed],
        "tested_users": len(rows),
        "training_interactions": 30,
        "users": 4,
        "items": 9,
        "future_share": None,
        "as_published": False,
        "version": "0",
        "convergence": convergence,
    }
    curve = [{"round": n, "part": "test", "HR@10": mean * n / 3} for n in (1, 2, 3)]
    return CellResult(cell, folder, result, curve)


def finished_cells(place: Path, *methods: Any, **changes: Any) -> list[CellResult]:
    declared = Plan(("synthetic",), methods or ("popular", "random"), seeds=(0, 1))
    return [finished_cell(place, cell, **changes) for cell in cells(declared)]


def test_means_and_deviations_over_seeds(tmp_path: Path) -> None:
    popular, rand = comparison(finished_cells(tmp_path)).standings
    assert (popular.metrics["HR@10"].mean, rand.metrics["HR@10"].mean) == (0.875, 0.25)
    # The means are 0.75 and 1.
    assert popular.metrics["HR@10"].deviation == pytest.approx(math.sqrt(2 * 0.125**2))
    assert rand.metrics["HR@10"].deviation == 0  # a quarter with either seed
    assert (popular.full["HR@10"].mean, popular.full["IC@10"].mean) == (0.4375, 12)
    assert (popular.costs["rounds"].mean, popular.costs["seconds"].mean) == (15, 2)
    assert popular.costs["rounds"].deviation == pytest.approx(math.sqrt(50))
    assert (rand.costs["bytes_up"].mean, rand.area.mean) == (3_000_000, pytest.approx(0.3))
    assert popular.area is None


def test_differences_are_paired_over_users_averaged_over_seeds(tmp_path: Path) -> None:
    """Means over seeds: popular (1, 1, .5, 1), random (0, .5, .5, 0); differences (1, .5, 0, 1)."""
    found = comparison(finished_cells(tmp_path))
    sampled, full = found.tests
    assert (sampled.metric, full.metric, sampled.other) == ("HR@10", "full:HR@10", "random")
    assert (sampled.difference, full.difference) == (0.625, 0.3125)
    expected = stats.ttest_rel([1, 1, 0.5, 1], [0, 0.5, 0.5, 0]).pvalue
    assert (sampled.p, full.p) == (pytest.approx(expected), pytest.approx(expected))
    assert (sampled.p_holm, full.p_holm) == (
        pytest.approx(2 * expected),
        pytest.approx(2 * expected),
    )
    assert 0 <= sampled.low < 0.625 < sampled.high <= 1
    assert (sampled.seeds_ahead, found.seeds) == (2, [0, 1])


FOLDS = {
    # Fold 0 tests a, b and c; fold 1 tests a, b and d.
    "popular": ({"a": 1.0, "b": 1.0, "c": 0.0}, {"a": 0.0, "b": 1.0, "d": 1.0}),
    "random": ({"a": 0.0, "b": 1.0, "c": 0.0}, {"a": 0.0, "b": 0.0, "d": 0.5}),
}


def test_folds_are_averaged_per_user_before_the_test(tmp_path: Path) -> None:
    """Users a to d have 0.5 1 0 1 with popular, and 0 0.5 0 0.5 with random."""
    plan = Plan(("synthetic",), ("popular", "random"), protocol="full", folds=2)
    results = []
    for cell in cells(plan):
        values = FOLDS[cell.method.algorithm][cell.experiment.protocol.fold]
        done = finished_cell(tmp_path, cell)
        folder = tmp_path / f"{cell.method.label}-fold-{cell.experiment.protocol.fold}"
        done.folder.rename(folder)
        lines = ["user_id,HR@10", *(f"{user},{value}" for user, value in values.items())]
        (folder / "users.csv").write_text("\n".join(lines) + "\n")
        mean = sum(values.values()) / 3
        result = done.result | {"metrics": {"HR@10": mean}, "tested_users": 3, "full": {}}
        results.append(replace(done, folder=folder, result=result))
    found = comparison(results)
    assert (found.seeds, found.folds, found.runs, found.tested_users) == ([0], 2, "2 folds", 4)
    assert found.standings[0].metrics["HR@10"].mean == pytest.approx(2 / 3)
    assert found.standings[1].metrics["HR@10"].deviation == pytest.approx(
        (1 / 3 - 1 / 6) / math.sqrt(2)
    )
    (test,) = found.tests
    assert test.difference == pytest.approx((0.5 + 0.5 + 0 + 0.5) / 4)
    expected = stats.ttest_rel([0.5, 1, 0, 1], [0, 0.5, 0, 0.5]).pvalue
    assert test.p == pytest.approx(expected)
    assert test.seeds_ahead == 2
    text = markdown(found, results)
    assert "standard deviation over 2 folds" in text
    assert "| 2/2 |" in text


def test_a_plan_with_folds_and_repeats_has_a_cell_for_each() -> None:
    plan = Plan(("synthetic",), ("popular",), seeds=(0, 1), folds=3, repeats=2)
    names = [cell.name for cell in cells(plan)]
    assert len(set(names)) == 12
    assert names[0] == "popular on synthetic, seed 0, fold 0"
    assert names[-1] == "popular on synthetic, seed 1, repeat 1, fold 2"


def test_the_first_method_is_the_one_that_is_tested(tmp_path: Path) -> None:
    found = comparison(finished_cells(tmp_path, "random", "popular"))
    assert (found.tests[0].difference, found.tests[0].other, found.tests[0].seeds_ahead) == (
        -0.625,
        "popular",
        0,
    )


def test_order_of_users_in_a_file_does_not_matter(tmp_path: Path) -> None:
    """One cell lists c before a; pairing goes by id."""
    mixed = finished_cells(tmp_path)
    header, a, b, c, d = (mixed[0].folder / "users.csv").read_text().splitlines()
    (mixed[0].folder / "users.csv").write_text("\n".join([header, c, b, a, d]) + "\n")
    assert comparison(mixed).tests[0].difference == 0.625
    assert comparison(mixed).tests[0].p == pytest.approx(
        stats.ttest_rel([1, 1, 0.5, 1], [0, 0.5, 0.5, 0]).pvalue
    )


@pytest.mark.parametrize("which", range(4))
def test_only_users_tested_in_every_cell_count(tmp_path: Path, which: int) -> None:
    """Without d the differences are (1, .5, 0)."""
    runs = finished_cells(tmp_path)
    path = runs[which].folder / "users.csv"
    path.write_text(
        "".join(
            line for line in path.read_text().splitlines(keepends=True) if not line.startswith("d")
        )
    )
    assert comparison(runs).tests[0].difference == 0.5


def test_one_user_gives_no_test(tmp_path: Path) -> None:
    assert comparison(finished_cells(tmp_path, users="a")).tests == []


def test_one_method_is_a_table_without_tests(tmp_path: Path) -> None:
    found = comparison(finished_cells(tmp_path, "popular"))
    assert found.tests == []
    assert [section.title for section in sections(found)] == [
        "By loo-50; by full ranking",
        "Cost and speed",
    ]


def test_tables_show_what_was_computed(tmp_path: Path) -> None:
    accuracy, cost, target, tests = sections(comparison(finished_cells(tmp_path, target=0.5)))
    # Item coverage is measured by full ranking only, so it has one column.
    assert accuracy.header == ["method", "HR@10", "HR@10 full", "IC@10 full"]
    assert accuracy.rows == [
        ["popular", "0.8750 ±0.1768", "0.4375 ±0.0884", "12"],
        ["random", "0.2500", "0.1250", "12"],
    ]
    assert accuracy.bold == {(0, 1), (0, 2)}, "popular is ahead; item coverages are equal"
    assert cost.header[-1] == "area under HR@10"
    assert cost.rows == [
        ["popular", "15 ±7.1 epochs", "2.00 ±0.71", "0 MB", "0 MB", ""],
        ["random", "15 ±7.1 rounds", "2.00 ±0.71", *["3.0 ±1.4 MB"] * 2, "0.3000 ±0.1414"],
    ]
    assert target.header == ["method", "trained to 0.5", "updates to 0.5"]
    assert target.rows == [
        ["popular", "1 epoch (1 of 2 seeds)", ""],
        ["random", "30 rounds", "300"],
    ]
    assert [row[:3] for row in tests.rows] == [
        ["random", "HR@10", "+0.6250"],
        ["random", "HR@10 full", "+0.3125"],
    ]
    assert tests.rows[0][-1] == "2/2"


def test_a_target_that_was_not_reached_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REACHED, "random", ((None, None), (None, None)))
    target = sections(comparison(finished_cells(tmp_path, target=0.9)))[2]
    assert target.rows[1][-2:] == ["not reached", "not reached"]


def test_json_is_plain(tmp_path: Path) -> None:
    found = comparison(finished_cells(tmp_path, target=0.5)).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["standings"][1]["rounds_to_target"] == [20, 40]


def test_markdown_has_every_table(tmp_path: Path) -> None:
    runs = finished_cells(tmp_path)
    found = comparison(runs)
    text = markdown(found, runs)
    for section in sections(found):
        assert markdown_table(section.header, section.rows, section.bold) in text
    assert "**0.8750 ±0.1768**" in text
    assert "standard deviation over 2 seeds" in text
    assert "Holm's correction for 2 tests" in text


def test_the_page_trusts_no_label(tmp_path: Path) -> None:
    runs = finished_cells(tmp_path, ("<script>x", "popular", {}), "random")
    text = page(comparison(runs), runs, "coterie compare '<script>x=popular' random")
    assert "<script>x" not in text
    assert text.count("&lt;script&gt;x") >= 3


# ---- significance marks, all pairs, layout


def with_hits(place: Path, monkeypatch: pytest.MonkeyPatch, hits: Any, **options: Any) -> Any:
    """A comparison of three methods with known values of eight users, one seed."""
    found = []
    for number, (label, values) in enumerate(hits.items()):
        (cell,) = cells(Plan(("synthetic",), ((label, "popular", {}),), seeds=(0,)))
        monkeypatch.setitem(HITS, "popular", ([1, 1, 1, 1],) * 2)
        made = finished_cell(place, cell)
        rows = [f"{user},{value}" for user, value in zip("abcdefgh", values, strict=True)]
        (made.folder / "users.csv").write_text("\n".join(["user_id,HR@10", *rows]) + "\n")
        mean = sum(values) / len(values)
        made.result["metrics"] = made.result["full"] = {"HR@10": mean}
        made.result["algorithm"] = f"made-{number}"
        found.append(made)
    return comparison(found, **options), found


THREE = {
    "base": [0.4, 0.5, 0.6, 0.5, 0.4, 0.5, 0.6, 0.5],
    "good": [0.8, 0.9, 0.9, 0.8, 0.9, 0.8, 0.9, 0.9],
    "same": [0.5, 0.4, 0.5, 0.6, 0.4, 0.6, 0.5, 0.5],
}


def test_marks_are_those_of_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: good is ahead of base for every user; same is ahead for two and behind for two."""
    found, runs = with_hits(tmp_path, monkeypatch, THREE)
    p = {other: stats.ttest_rel(THREE["base"], THREE[other]).pvalue for other in ("good", "same")}
    assert 2 * p["good"] < 0.05 < p["same"]
    table = sections(found)[0]
    assert [row[1] for row in table.rows] == ["0.5000", "0.8625 ▲", "0.5000"]
    assert table.bold == {(1, 1)}
    text = "\n".join(legend(found))
    assert "▲ significantly better, ▼ significantly worse than base" in text
    assert "Holm's correction for 2 tests" in text
    assert "Bold" not in "\n".join(notes(found, runs, with_bold=False))
    lines = "\n".join(summary(found))
    assert "Best by HR@10: good, 0.8625." in lines
    assert "Significantly better than base: good; not significantly different from base: same" in (
        lines
    )
    reversed_order = dict(reversed(THREE.items()))
    (tmp_path / "again").mkdir()
    swapped, _ = with_hits(tmp_path / "again", monkeypatch, reversed_order)
    assert [row[1] for row in sections(swapped)[0].rows] == ["0.5000", "0.8625 ▲", "0.5000"]
    (tmp_path / "good first").mkdir()
    good_first = {name: THREE[name] for name in ("good", "base", "same")}
    worse, _ = with_hits(tmp_path / "good first", monkeypatch, good_first)
    assert [row[1] for row in sections(worse)[0].rows] == ["0.8625", "0.5000 ▼", "0.5000 ▼"]


def test_all_pairs_are_corrected_over_all_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = with_hits(tmp_path, monkeypatch, THREE, all_pairs=True)
    pairs = [(test.method, test.other) for test in found.tests]
    assert pairs == [("base", "good"), ("base", "same"), ("good", "same")]
    raw = [stats.ttest_rel(THREE[one], THREE[other]).pvalue for one, other in pairs]
    order = sorted(range(3), key=lambda k: raw[k])
    expected = [0.0] * 3
    largest = 0.0
    for rank, k in enumerate(order):
        # Holm: three times the smallest p, twice the next, once the largest; never falling.
        largest = max(largest, (3 - rank) * raw[k])
        expected[k] = min(largest, 1.0)
    assert [test.p_holm for test in found.tests] == pytest.approx(expected)
    tests = sections(found)[-1]
    assert tests.title == "All pairs"
    assert [row[:3] for row in tests.rows][-1] == ["good", "same", "HR@10"]
    assert sections(found)[0].rows[1][1] == "0.8625 ▲", "marks stay those against the first method"


def test_blocks_share_a_table_where_they_fit() -> None:
    blocks = [ColumnGroup("A", ["x"], [["1"], ["2"]]), ColumnGroup("B", ["y"], [["3"], ["4"]])]
    # | method | x | y | takes 6 + 1 + 1 letters and 10 of lines and spaces.
    (one,) = packed(["a", "b"], blocks, 18)
    assert (one.header, one.rows) == (["method", "x", "y"], [["a", "1", "3"], ["b", "2", "4"]])
    two = packed(["a", "b"], blocks, 17)
    assert [(table.title, table.header) for table in two] == [
        ("A", ["method", "x"]),
        ("B", ["method", "y"]),
    ]


def test_methods_of_the_same_figure_are_best_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, _ = with_hits(tmp_path, monkeypatch, THREE | {"twin": THREE["good"]})
    assert summary(found)[0] == "Best by HR@10: good, twin, 0.8625."


def test_references_are_in_the_summary(tmp_path: Path) -> None:
    """Popular is ahead of the federated method, which "random" plays here."""
    runs = finished_cells(tmp_path, "random", "popular")
    for run in runs:
        if run.result["algorithm"] == "random":
            run.result["algorithm"] = "fedavg"
    assert "Not better than popular (0.8750 ±0.1768): random." in summary(comparison(runs))


def with_values(place: Path, values: dict[str, tuple[str, float]]) -> list[CellResult]:
    """Finished cells of one seed: by label, the algorithm and its mean."""
    made = []
    for label, (name, mean) in values.items():
        (cell,) = cells(Plan(("synthetic",), ((label, "popular", {}),), seeds=(0,)))
        one = finished_cell(place, cell)
        one.result["algorithm"] = name
        one.result["metrics"] = {"HR@10": mean}
        one.result["bytes_down"] = 1_000_000 if name.startswith("fed") else 0
        made.append(one)
    return made


def test_the_sentence_about_popular_names_random_lists_only_if_compared(tmp_path: Path) -> None:
    values = {"popular": ("popular", 0.25), "als": ("als", 0.5), "ease": ("ease", 0.4)}
    (tmp_path / "one").mkdir()
    lines = summary(comparison(with_values(tmp_path / "one", values)))
    assert "popular has 0.2500; every other method is better." in lines
    (tmp_path / "two").mkdir()
    values |= {"chance": ("random", 0.1)}
    lines = summary(comparison(with_values(tmp_path / "two", values)))
    assert "popular has 0.2500; every other method but chance is better." in lines


def test_popular_may_be_the_best_centralised_method(tmp_path: Path) -> None:
    values = {"fedavg": ("fedavg", 0.5), "als": ("als", 0.2), "popular": ("popular", 0.25)}
    lines = summary(comparison(with_values(tmp_path, values)))
    assert "Best centralised: popular, 0.2500; then als, 0.2000." in lines
    assert "Not better than popular (0.2500): als." in lines


# ---- what cannot be compared


@pytest.mark.parametrize(
    ("key", "value"),
    [("candidates", 9), ("core", 2), ("n_users", 9), ("validation", True), ("skip_bad_rows", True)],
)
def test_methods_evaluated_differently_are_refused(tmp_path: Path, key: str, value: Any) -> None:
    complaint = (
        rf"setting '{key}' is {value} for other and .* for popular; "
        rf"expected one value for all compared methods.*--set {key}=VALUE"
    )
    with pytest.raises(ConfigError, match=complaint):
        comparison(finished_cells(tmp_path, "popular", ("other", "random", {key: value})))


def test_methods_may_train_differently(tmp_path: Path) -> None:
    comparison(
        finished_cells(
            tmp_path, "popular", ("other", "random", {"evaluate_every": 2, "as_published": True})
        )
    )


def test_a_diverged_run_is_named(tmp_path: Path) -> None:
    runs = finished_cells(tmp_path)
    runs[3].result["diverged"] = "training diverged at round 4: lower it."
    with pytest.raises(
        Diverged, match=r"^random on synthetic, seed 1: training diverged at round 4"
    ):
        comparison(runs)


# ---- the figure


def test_the_mean_curve_goes_as_far_as_all_were_measured() -> None:
    curves = [
        [{"round": n, "HR": v} for n, v in ((1, 0.2), (2, 0.4), (3, 0.8))],
        [{"round": n, "HR": v} for n, v in ((1, 0.4), (3, 0.4), (4, 0.9))],
    ]
    rounds, means = mean_curve(curves, "HR")
    assert rounds == [1, 3]
    assert means == pytest.approx([0.3, 0.6])


def test_runs_of_one_method_share_a_line_and_a_colour(tmp_path: Path) -> None:
    runs = finished_cells(tmp_path)
    (drawn,) = panels(runs, [run.cell.method.label for run in runs])
    assert [series.name for series in drawn.series] == ["popular", "random"]
    assert [drawn.colour(number) for number in (0, 1)] == list(COLOURS[:2])
    # The means are 0.75 and 1 at the end, a third and two thirds of it before.
    assert list(drawn.series[0].y) == pytest.approx([0.875 / 3, 1.75 / 3, 0.875])
    assert drawn.series[0].high[-1] == pytest.approx(0.875 + math.sqrt(2 * 0.125**2))


def test_epochs_and_rounds_are_different_axes(tmp_path: Path) -> None:
    """The federated method, which "random" plays here, has rounds; the other one has epochs."""
    runs = finished_cells(tmp_path)
    (drawn,) = panels(runs, [run.cell.method.label for run in runs])
    assert drawn.axes == ["rounds", "epochs"]
    popular, rand = drawn.series
    assert list(popular.xs) == ["epochs"]
    assert list(rand.xs) == ["rounds"]
    over_rounds = ElementTree.fromstring(line_plot(drawn, "rounds"))
    assert len(list(over_rounds.iter(f"{SVG}polyline"))) == 1, "only the one with rounds"
    dashed = [one for one in over_rounds.iter(f"{SVG}line") if one.get("stroke-dasharray")]
    # A level and its entry in the legend, in the method's colour.
    assert [one.get("stroke") for one in dashed] == [COLOURS[0]] * 2
    names = {trace.get("name"): trace for trace in traces(drawn)}
    assert names["popular"]["line"]["dash"] == "dash"
    assert names["popular"]["y"] == [popular.y[-1]] * 2
    buttons = layout(drawn)["updatemenus"][0]["buttons"]
    assert [button["label"] for button in buttons] == ["by rounds", "by epochs"]
    over_epochs = buttons[1]["args"][0]
    lines = [k for k, trace in enumerate(traces(drawn)) if "name" in trace]
    assert [over_epochs["line.dash"][k] for k in lines] == ["solid", "dash"]
    assert over_epochs["y"][lines[0]] == list(popular.y)


def test_a_label_is_no_formula(tmp_path: Path) -> None:
    runs = finished_cells(tmp_path, (r"$\nothing$", "popular", {}))
    (drawn,) = panels(runs, [run.cell.method.label for run in runs])
    assert "$\\nothing$" in line_plot(drawn, "epochs")


# ---- the page


def without_scripts(text: str) -> str:
    return re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_has_the_conclusion_and_the_figure_first(tmp_path: Path) -> None:
    runs = finished_cells(tmp_path, ("mine", "random", {}), "popular")
    found = comparison(runs)
    text = without_scripts(page(found, runs, "coterie compare mine=random popular"))
    parts = (
        "<h1>mine, popular on synthetic</h1>",
        "Best by HR@10: popular, 0.8750 ±0.1768.",
        "<figure id=overview>",
        "<strong>0.8750 ±0.1768</strong>",
        "HR@10: difference and 95% interval",
        "mine − popular",
        "HR@10 over users",
        "share of users with a held-out item among the first 10",
        "fingerprint x",
        "coterie compare mine=random popular",
    )
    order = [text.index(part) for part in parts]
    assert order == sorted(order)
    assert ">popular</text>" in text, "the line of popular is in the figure's legend"
    assert ">mine</text>" in text, "figures have the label"


def test_a_difference_in_favour_is_green(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, runs = with_hits(tmp_path, monkeypatch, THREE, all_pairs=True)
    drawn = without_scripts(page(found, runs, ""))
    plot = drawn[drawn.index("<div class=forests>") : drawn.index("All tests")]
    colours = re.findall(r'<circle [^>]*fill="(#\w+)"', plot)
    # base - good is negative, base - same is not significant, good - same is positive.
    assert colours == [forest.WORSE, forest.UNCLEAR, forest.BETTER]
