"""Hand-made plots: marks stand where their values are."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from coterie.report.bars import Bar, BarGroup, bar_plot
from coterie.report.dots import DotPanel, DotRow, dot_plot
from coterie.report.figures import Figure, Series
from coterie.report.forest import Interval, forest
from coterie.report.lines import line_plot
from coterie.report.svg import Axis, round_step, shortened

SVG = "{http://www.w3.org/2000/svg}"


def test_an_axis_is_linear_or_logarithmic():
    linear = Axis(low=0, high=10, left=100, right=200)
    assert linear.at(2.5) == 125
    assert Axis(low=2, high=6, left=0, right=100).at(3) == 25
    assert linear.at(99) == 200, "a value outside is drawn at the edge"
    assert linear.ticks(5) == [0, 2, 4, 6, 8, 10]
    logarithmic = Axis(low=1, high=100, left=0, right=100, log=True)
    assert logarithmic.at(10) == 50
    assert logarithmic.ticks(5) == [1, 10, 100]


@pytest.mark.parametrize(("least", "step"), [(0.013, 0.02), (0.3, 0.5), (0.7, 1), (20, 20)])
def test_steps_are_round(least: float, step: float):
    assert round_step(least) == pytest.approx(step)


def test_long_labels_are_cut():
    assert shortened("abcdef", 1000, 10) == "abcdef"
    assert shortened("abcdef", 4 * 5.4, 10) == "abc…"


def forest_of(*intervals: Interval) -> ElementTree.Element:
    return ElementTree.fromstring(forest(intervals, [0.0, 0.2], 0.0, "a < b"))


def test_a_forest_plot_shows_value_interval_zero_and_threshold():
    drawn = forest_of(
        Interval(group="d1", label="HR", colour="#0a0", value=0.4, low=0.2, high=0.6),
        Interval(group="d2", label="HR", colour="#a00", value=-0.2, low=-0.4, high=0.0),
        Interval(group="d3", label="", colour="", note="cannot be tested"),
    )
    points = {c.get("fill"): float(c.get("cx", "")) for c in drawn.iter(f"{SVG}circle")}
    lines = list(drawn.iter(f"{SVG}line"))
    intervals = {one.get("stroke"): one for one in lines if one.get("stroke-width") == "2"}
    (threshold,) = [one for one in lines if one.get("stroke-dasharray")]
    (zero,) = [one for one in lines if one.get("stroke") == "#5c677d"]
    # 0 is half-way between -0.2 and 0.2; 0.4 is as far from 0.2 as 0.2 is from 0.
    x = {0.0: float(zero.get("x1", "")), 0.2: float(threshold.get("x1", ""))}
    step = x[0.2] - x[0.0]
    assert step > 0
    assert points["#0a0"] == pytest.approx(x[0.2] + step, abs=0.5)
    assert points["#a00"] == pytest.approx(x[0.0] - step, abs=0.5)
    assert float(intervals["#0a0"].get("x1", "")) == pytest.approx(x[0.2], abs=0.5)
    assert float(intervals["#0a0"].get("x2", "")) == pytest.approx(x[0.2] + 2 * step, abs=0.5)
    assert "cannot be tested" in "".join(drawn.itertext())


def test_a_dot_plot_shows_ours_the_papers_and_levels():
    row = DotRow(label="good", ours=0.4, low=0.3, high=0.5, tuned=0.6, printed=0.8)
    panels = [DotPanel(title="d1", rows=(row,), chance=0.2, central=0.7, central_name="als")]
    text = dot_plot(panels, "HR@10", "title")
    drawn = ElementTree.fromstring(text)
    ours = [float(c.get("cx", "")) for c in drawn.iter(f"{SVG}circle")][-1]
    tuned = next(r for r in reversed(list(drawn.iter(f"{SVG}rect"))))
    printed = [p.get("points", "") for p in drawn.iter(f"{SVG}polygon")][-1]
    x_tuned = float(tuned.get("x", "")) + float(tuned.get("width", "")) / 2
    x_printed = float(re.split("[ ,]", printed)[2])
    assert ours < x_tuned < x_printed
    assert x_tuned - ours == pytest.approx(x_printed - x_tuned, abs=0.3)
    for name in ("good", "d1", "als", "paper", "chance level", "best centralised"):
        assert name in "".join(drawn.itertext())


def test_values_of_many_sizes_get_a_logarithmic_axis():
    rows = (
        DotRow(label="a", ours=1.0),
        DotRow(label="b", ours=10.0),
        DotRow(label="c", ours=100.0),
    )
    drawn = ElementTree.fromstring(dot_plot([DotPanel(title="d", rows=rows)], "ms", "title"))
    _, a, b, c = [float(one.get("cx", "")) for one in drawn.iter(f"{SVG}circle")]
    assert b - a == pytest.approx(c - b, abs=0.3)


def test_bars_are_proportional_to_their_values_in_each_group():
    """A bar of half the value is half as long, whatever other groups have."""
    first = BarGroup("HR", [Bar("a", 0.8, "0.8", "#111"), Bar("b", 0.4, "0.4", "#222")])
    second = BarGroup("IC", [Bar("a", 100.0, "100", "#333"), Bar("b", 0.0, "0", "#444")])
    drawn = ElementTree.fromstring(bar_plot([first, second], "a < b"))
    widths = {r.get("fill"): float(r.get("width", "")) for r in drawn.iter(f"{SVG}rect")}
    assert widths["#222"] == pytest.approx(widths["#111"] / 2, abs=0.1)
    assert widths["#333"] == widths["#111"], "the largest of each group has the whole width"
    assert widths["#444"] == 1, "zero is still seen"


def test_a_long_legend_and_the_last_tick_stay_in_the_picture():
    series = Series(200 * "m", [0.1, 0.2], {"updates": [0, 50_000]})
    drawn = ElementTree.fromstring(line_plot(Figure("k", "t", "y", [series]), "updates"))
    width = float(drawn.get("width", ""))
    texts = {"".join(one.itertext()): one for one in drawn.iter(f"{SVG}text")}
    assert "50,000" in texts
    last = texts["50,000"]
    assert float(last.get("x", "")) + 0.6 * 10 * len("50,000") / 2 <= width
    (legend,) = [words for words in texts if words.startswith("mm")]
    assert legend.endswith("…")
