"""Pages of runs and comparisons in a browser: nothing is cut or scrolls sideways."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from browser import BROWSER, browse, measured

import coterie
from coterie.experiments.comparison import comparison
from coterie.experiments.comparison_page import page as comparison_page
from coterie.experiments.finished_run import Run
from coterie.experiments.plan import Plan
from coterie.experiments.plan_runner import run_plan
from coterie.report.page import page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no browser is installed"),
]
SMALL = {"n_users": 60, "n_items": 90, "mean_interactions": 9}
LONG = "/home/a-researcher/data/reviews-of-restaurants-2024/without_any_space_to_break_at_all.tsv"


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """Four runs, one of them unlike, with long names and many settings."""
    found = [coterie.run(name, **SMALL) for name in ("fedavg", "bpr", "popular", "random")]
    long = [replace(run, result=run.result | {"dataset": LONG, "run": LONG}) for run in found[:3]]
    other = found[3].result | {"protocol": "loo-50 (candidates=99, cutoffs=5,10,20)"}
    return [*long, replace(found[3], result=other)]


@pytest.mark.parametrize("width", [1200, 500])
def test_a_page_of_runs_fits(
    tmp_path: Path, runs: list[Run], width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    for shown in (runs, runs[:1]):
        found = measured(tmp_path, page(shown), width)
        assert found["inner"] == width
        assert found["wide"] <= width
        assert (found["scrolls"], found["cut"]) == ([], [])
        if width == 500:
            assert len(found["left"]) == 1, "figures are below each other"


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of seven methods with long labels."""
    labels = [f"popularity_of_items_number_{number}" for number in range(6)]
    methods = tuple((label, "popular", {}) for label in labels)
    plan = Plan(("synthetic",), (*methods, "bpr"), settings=SMALL, seeds=(0, 1))
    results = run_plan(plan, tmp_path_factory.mktemp("cells"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "plotly", None)
        return comparison_page(comparison(results), results, "coterie compare")


@pytest.mark.parametrize("width", [1200, 690, 500])
def test_a_page_of_a_comparison_fits(tmp_path: Path, compared: str, width: int) -> None:
    found = measured(tmp_path, compared, width)
    assert found["wide"] <= width
    assert (found["scrolls"], found["cut"]) == ([], [])
    if width < 700:
        assert len(found["left"]) == 1, "figures are below each other"


def test_a_browser_draws_the_curves(tmp_path: Path, runs: list[Run]) -> None:
    pytest.importorskip("plotly")
    found = browse(tmp_path, page(runs), 500)
    wanted = found.count("FIGURES.push(")
    assert wanted == 2
    assert found.count('class="figure js-plotly-plot"') == wanted
