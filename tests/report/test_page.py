"""The HTML page: well-formed, self-contained, safe against any name, with the curve."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from html import escape
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from html_page import EVIL, Page, external_parts

import coterie
from coterie.experiments.finished_run import Run
from coterie.experiments.sample_lists import sample_lists
from coterie.report.figure import panels
from coterie.report.lines import line_plot
from coterie.report.page import page
from coterie.report.run_page import run_page
from coterie.report.users import telling_metric

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def bpr() -> Run:
    return coterie.run("bpr", epochs=4, n_users=60, n_items=90, mean_interactions=9)


@pytest.fixture(scope="module")
def popular() -> Run:
    return coterie.run("popular", n_users=60, n_items=90, mean_interactions=9)


def with_result(finished: Run, **changes: Any) -> Run:
    return replace(finished, result=finished.result | changes)


@pytest.fixture
def without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)


@pytest.mark.usefixtures("without_plotly")
def test_page_is_complete_and_self_contained(bpr: Run, popular: Run) -> None:
    text = page([bpr, popular])
    read = Page(text)
    assert text.startswith("<!doctype html>")
    assert external_parts(read) == []
    assert not re.search(r"@import|url\((?!#)|<script", text)
    tags = [tag for tag, _ in read.elements]
    for once in ("html", "head", "body", "h1"):
        assert tags.count(once) == 1, once
    assert ("meta", {"charset": "utf-8"}) in read.elements


def test_page_shows_the_figures(bpr: Run, popular: Run) -> None:
    read = Page(page([bpr, popular]))
    cells = {cell for row in read.rows for cell in row}
    for run in (bpr, popular):
        for part in (run.metrics, run.full):
            assert f"{part['HR@10']:.4f}" in cells
            assert f"{part['AUC']:.4f}" in cells
    assert "bpr, popular on synthetic" in read.text
    assert coterie.__version__ in read.text
    assert "Global-time leakage" in read.text


@pytest.mark.usefixtures("without_plotly")
def test_names_are_escaped(popular: Run) -> None:
    odd = with_result(popular, dataset=EVIL, algorithm="<b onclick=x>&amp;", version='"><i>')
    read = Page(page([odd]))
    assert external_parts(read) == []
    assert EVIL in read.text
    assert "<b onclick=x>&amp;" in read.text
    assert not {tag for tag, _ in read.elements} & {"b", "i"}


def test_runs_of_one_algorithm_have_distinct_labels(bpr: Run) -> None:
    """Two runs that differ only in a setting have their own column names."""
    other = with_result(bpr, run="runs/bpr-wide")
    header = next(
        row
        for row in Page(page([with_result(bpr, run="runs/bpr-narrow"), other])).rows
        if row[0] == "metric"
    )
    assert len(set(header)) == len(header), header


def test_leak_on_purpose_is_reported(popular: Run) -> None:
    assert "leaky on purpose" in Page(page([with_result(popular, as_published=True)])).text
    assert "as_published" in Page(page([with_result(popular, as_published=True)])).text
    assert "as_published" not in Page(page([popular])).text


@pytest.mark.usefixtures("without_plotly")
def test_caption_names_the_part_of_the_curve(bpr: Run) -> None:
    assert "Measured on the test part, for inspection only" in Page(page([bpr])).text
    checked = replace(bpr, curve=[line | {"part": "validation"} for line in bpr.curve])
    text = Page(page([checked])).text
    assert "Measured on the validation part." in text
    assert "inspection only" not in text


def test_figures_of_several_are_interactive_with_plotly_and_static_without(
    bpr: Run, popular: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("plotly")
    interactive = page([bpr, popular])
    assert interactive.count("FIGURES.push(") == 2
    assert interactive.index("const FIGURES") < interactive.index("FIGURES.push(")
    assert '"label": "by seconds"' in interactive
    monkeypatch.setitem(sys.modules, "plotly", None)
    static = page([bpr, popular])
    assert "<script" not in static
    assert "<title>HR@10 by epochs</title>" in static
    assert "<title>HR@10 by seconds</title>" in static


def test_a_page_without_curves_needs_no_script(popular: Run) -> None:
    assert "<script" not in page([popular])


@pytest.mark.usefixtures("without_plotly")
def test_metrics_are_rows_with_their_meaning(bpr: Run) -> None:
    rows = Page(page([bpr])).rows
    header = next(row for row in rows if row[0] == "metric")
    assert header == ["metric", "meaning", "loo-50", "popular", "full ranking"]
    (first, *_) = [row for row in rows if row[0] == "HR@10"]
    assert first[1] == "share of users with a held-out item among the first 10"
    assert first[2:] == [
        f"{part['HR@10']:.4f}" for part in (bpr.metrics, bpr.result["popular"], bpr.full)
    ]


@pytest.mark.usefixtures("without_plotly")
def test_identical_columns_are_merged(bpr: Run) -> None:
    """Where the protocol ranks all items, full ranking has the same figures."""
    whole = with_result(bpr, metrics=bpr.full, protocol="full")
    header = next(row for row in Page(page([whole])).rows if row[0] == "metric")
    assert header == ["metric", "meaning", "full", "popular"]


@pytest.mark.usefixtures("without_plotly")
def test_several_runs_open_with_the_best_and_the_references(bpr: Run, popular: Run) -> None:
    ahead = with_result(bpr, metrics=bpr.metrics | {"HR@10": 0.9})
    text = page([ahead, popular])
    body = text[text.index("<h1>") :]
    parts = ("Best by HR@10: bpr, 0.9000.", "<figure id=overview>", "<strong>0.9000</strong>")
    order = [body.index(part) for part in parts]
    assert order == sorted(order)
    for name in ("best centralised", "popular"):
        assert f">{name}</text>" in body


@pytest.mark.usefixtures("without_plotly")
def test_unlike_runs_are_flagged_on_the_page(bpr: Run, popular: Run) -> None:
    text = page([bpr, with_result(popular, filters={"core": 5})])
    assert text.count("not comparable with the other groups</span>") == 2
    assert "2 groups of runs that are not comparable with each other" in text
    assert "not comparable" not in page([bpr, popular])


@pytest.mark.usefixtures("without_plotly")
def test_settings_and_conditions_are_on_the_page(bpr: Run) -> None:
    text = page([with_result(bpr, filters={"min_rating": 4.0})])
    assert "<dt>Filters</dt><dd><p>min_rating 4.0</p></dd>" in text
    assert f"fingerprint {bpr.result['data'][:8]}" in text
    assert "<details class=settings><summary>Settings</summary><ul><li>bpr (bpr): " in text
    assert "epochs 4" in text


def test_quantiles_are_those_of_the_users(bpr: Run) -> None:
    """Of sorted values the 0, 50 and 100 % quantiles are the first, the middle and the last."""
    assert bpr.evaluation is not None
    values = sorted(bpr.evaluation.table["NDCG@10"])
    found = bpr.result["quantiles"]["NDCG@10"]
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
    assert [found[0], found[10], found[-1]] == pytest.approx(
        [values[0], middle, values[-1]], abs=1e-4
    )


def test_hits_of_one_item_are_not_the_telling_metric() -> None:
    hits = {"HR@10": [0.0, 0.0, 1.0], "NDCG@10": [0.0, 0.5, 1.0]}
    assert telling_metric(["HR@10", "NDCG@10"], [hits]) == "NDCG@10"
    assert telling_metric(["HR@10"], [hits]) == ""
    assert telling_metric(["NDCG@10"], [hits, {}]) == ""


def test_a_metric_that_is_zero_for_most_users_has_no_figure() -> None:
    assert telling_metric(["P@10"], [{"P@10": [0.0, 0.0, 0.0, 0.1, 0.4]}]) == ""
    assert telling_metric(["P@10"], [{"P@10": [0.0, 0.0, 0.1, 0.2, 0.4]}]) == "P@10"


def test_page_of_a_run_without_measurements(popular: Run) -> None:
    assert external_parts(Page(page([replace(popular, curve=[])]))) == []


# ---- the figure


def test_figure_draws_the_curve_to_scale(bpr: Run) -> None:
    """Points have equal horizontal steps and heights proportional to the values."""
    for figure in panels([bpr]):
        drawn = ElementTree.fromstring(line_plot(figure, "epochs"))
        (curve,) = drawn.iter(f"{SVG}polyline")
        points = [tuple(map(float, place.split(","))) for place in curve.get("points", "").split()]
        values = [line[figure.key] for line in bpr.curve]
        assert len(points) == len(values)
        xs = [x for x, _ in points]
        ys = [y for _, y in points]
        steps = [b - a for a, b in itertools.pairwise(xs)]
        assert max(steps) - min(steps) < 0.3
        low = values.index(min(values))
        high = values.index(max(values))
        scale = (ys[high] - ys[low]) / (values[high] - values[low])
        assert scale < 0, "higher values are further up"
        for value, y in zip(values, ys, strict=True):
            assert y == pytest.approx(ys[low] + scale * (value - values[low]), abs=0.2)


def test_figure_labels_runs_and_metrics(bpr: Run, popular: Run) -> None:
    (first, *_) = panels([bpr, popular])
    text = "".join(ElementTree.fromstring(line_plot(first, "epochs")).itertext())
    for part in ("bpr", "popular", "HR@10", "epochs"):
        assert part in text
    assert [series.level for series in first.series] == [False, True]


@pytest.mark.usefixtures("without_plotly")
def test_the_popular_ranking_stands_beside_the_headline(bpr: Run, popular: Run) -> None:
    value = bpr.result["popular"][bpr.result["headline"][0]]
    assert f'<td data-label="popular">{value:.4f}</td>' in page([bpr])
    assert 'data-label="popular"' not in page([popular])


def test_samples_are_what_new_users_get(bpr: Run) -> None:
    counts = np.bincount(bpr.catalogue.seen.items, minlength=len(bpr.catalogue.item_ids))
    samples = sample_lists(bpr)
    assert len(samples) == 3
    favourite = bpr.catalogue.item_ids[int(counts.argmax())]
    found = bpr.recommend_new_user([favourite], 5)
    assert samples[0].recommended == [one.text or str(one.item) for one in found]
    shown = run_page(bpr, samples)
    assert "<section id=samples>" in shown
    assert all(escape(title) in shown for title in samples[0].recommended)


def test_a_run_that_cannot_serve_new_users_has_no_samples() -> None:
    assert sample_lists(coterie.run("random", n_users=60, n_items=90, mean_interactions=9)) == []


def test_samples_are_texts_and_not_aligned_as_numbers(bpr: Run) -> None:
    assert '<div class="wide texts">' in run_page(bpr, sample_lists(bpr))
