"""The HTML page: well-formed, self-contained, safe against any name, with the curve."""

from __future__ import annotations

import itertools
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

import pytest

import coterie
from coterie.errors import MissingExtra
from coterie.experiments.finished_run import Run
from coterie.report.figure import convergence
from coterie.report.page import page

VOID = {"meta", "br", "hr", "img", "input", "link"}
SVG = "{http://www.w3.org/2000/svg}"
EVIL = "<script>alert('x')</script><img src=http://evil.example/x.png onerror=alert(1)>&\"'.csv"


class Page(HTMLParser):
    """Parses a page: elements, text and table rows; every element must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    @property
    def text(self) -> str:
        return "".join(self.words)


@pytest.fixture(scope="module")
def bpr() -> Run:
    return coterie.run("bpr", epochs=4, n_users=60, n_items=90, mean_interactions=9)


@pytest.fixture(scope="module")
def popular() -> Run:
    return coterie.run("popular", n_users=60, n_items=90, mean_interactions=9)


def with_result(finished: Run, **changes: Any) -> Run:
    return replace(finished, result=finished.result | changes)


def external_parts(read: Page) -> list[str]:
    """Addresses that a browser would load, active elements and event handlers."""
    addresses = [
        value
        for _, attributes in read.elements
        for name, value in attributes.items()
        if name.split(":")[-1] in ("src", "href", "srcset", "data", "action")
        and not str(value).startswith("#")
    ]
    active = [
        tag
        for tag, _ in read.elements
        if tag in ("script", "link", "iframe", "object", "embed", "img", "form")
    ]
    handlers = [
        name for _, attributes in read.elements for name in attributes if name.startswith("on")
    ]
    return [str(value) for value in addresses] + active + handlers


def test_page_is_complete_and_self_contained(bpr: Run, popular: Run) -> None:
    text = page([bpr, popular])
    read = Page(text)
    assert text.startswith("<!doctype html>")
    assert external_parts(read) == []
    assert not re.search(r"@import|url\((?!#)|<script", text)
    tags = [tag for tag, _ in read.elements]
    for once in ("html", "head", "title", "body", "h1", "svg"):
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


def test_leak_on_purpose_is_reported(popular: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # no figure is needed here
    assert "as_published" in Page(page([with_result(popular, as_published=True)])).text
    assert "as_published" not in Page(page([popular])).text


def test_caption_names_the_part_of_the_curve(bpr: Run) -> None:
    assert "Measured on test. For inspection only" in Page(page([bpr])).text
    checked = replace(bpr, curve=[line | {"part": "validation"} for line in bpr.curve])
    text = Page(page([checked])).text
    assert "Measured on validation." in text
    assert "For inspection only" not in text


def test_page_without_matplotlib_names_the_extra(bpr: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'coterie\[report\]'"):
        convergence([bpr])
    read = Page(page([bpr]))
    assert "pip install 'coterie[report]'" in read.text
    assert "svg" not in {tag for tag, _ in read.elements}
    assert f"{bpr.metrics['HR@10']:.4f}" in {cell for row in read.rows for cell in row}


def test_page_of_a_run_without_measurements(popular: Run) -> None:
    assert external_parts(Page(page([replace(popular, curve=[])]))) == []


# ---- the figure


def curves_of(svg: str, measurements: int) -> list[list[tuple[float, float]]]:
    """Lines with one point per measurement; grid, ticks and legend have two or three points."""
    found = [
        re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path.get("d", ""))
        for path in ElementTree.fromstring(svg).iter(f"{SVG}path")
        if "fill: none" in path.get("style", "")
    ]
    return [
        [(float(x), float(y)) for x, y in points]
        for points in found
        if len(points) == measurements > 3
    ]


def test_figure_draws_the_curve_to_scale(bpr: Run) -> None:
    """Points have equal horizontal steps and heights proportional to the values."""
    curves = curves_of(convergence([bpr]), len(bpr.curve))
    names = [n for n in bpr.result["headline"] if n in bpr.curve[0]]
    assert len(curves) == len(names) > 0
    for points, name in zip(curves, names, strict=True):
        values = [line[name] for line in bpr.curve]
        xs = [x for x, _ in points]
        ys = [y for _, y in points]
        steps = [b - a for a, b in itertools.pairwise(xs)]
        assert max(steps) - min(steps) < 1e-3
        low = values.index(min(values))
        high = values.index(max(values))
        scale = (ys[high] - ys[low]) / (values[high] - values[low])
        assert scale < 0, "higher values are further up"
        for value, y in zip(values, ys, strict=True):
            assert y == pytest.approx(ys[low] + scale * (value - values[low]), abs=1e-3)


def test_figure_is_the_same_text_every_time(bpr: Run) -> None:
    assert convergence([bpr]) == convergence([bpr])


def test_figure_labels_runs_and_metrics(bpr: Run, popular: Run) -> None:
    text = "".join(ElementTree.fromstring(convergence([bpr, popular])).itertext())
    for part in ("bpr", "popular", "HR@10", "NDCG@10", "round"):
        assert part in text
