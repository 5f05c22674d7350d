"""The report: verdicts first, one self-contained file, figures that a browser draws."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from browser import BROWSER, browse
from reproduce.hand_made import report, row, sweep, table

from coterie.report.figures import GREY
from coterie.reproduce import figures
from coterie.reproduce.items import ClaimPart, Effect, Holds, Verdict
from coterie.reproduce.markdown import markdown
from coterie.reproduce.page import page, rendered, split_prose
from coterie.reproduce.papers import NAMES, prose
from coterie.reproduce.pictures import all_pictures, fits_a_row, thresholds
from coterie.reproduce.references import levels_elsewhere
from coterie.reproduce.tables import comparison, costs, narrow
from coterie.reproduce.tables import tests as paired_tests

pytest.importorskip("plotly")
DOCS = Path(__file__).parents[2] / "docs" / "papers"


def test_verdicts_come_before_tables():
    text = page(report(), "## Decided\n\nThis and that.", "coterie reproduce made-up")
    body = text[text.index("<h1>") :]
    order = [
        body.index(part)
        for part in (
            "id=summary",
            'class="badge holds"',
            "id=overview",
            "id=claims",
            "id=methods",
            "id=table2",
            "<table>",
            "id=notes",
        )
    ]
    assert order == sorted(order)
    assert "coterie reproduce made-up" in body


def test_nothing_is_fetched_and_html_is_escaped():
    text = page(report())
    own = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"(src|href)\s*=\s*['\"]?(https?:)?//", own)
    assert "<b>ahead</b>" not in own
    assert "&lt;b&gt;ahead" in own
    assert rendered("<script>alert(1)</script>").count("<script") == 0


def test_comparison_with_the_paper():
    header, rows = comparison(table())
    assert header == ["method", "HR@10", "paper (difference)"]
    assert rows[0] == ["good", "0.8500 ±0.0707", "0.9000 (−0.0500)"]
    assert rows[1] == ["weak", "0.4500 ±0.0707", ""]
    found = costs(table())
    assert found is not None
    assert found[0] == ["method", "HR@10, full ranking", "rounds", "seconds", "MB up", "MB down"]
    assert found[1][0] == ["good", "0.0850 ±0.0071", "30", "1.5", "2.0", "4.0"]


def test_wide_tables_are_split():
    header = ["method", "a", "b", "c", "d", "e"]
    assert narrow((header, [["m", "1", "2", "3", "4", "5"]])) == [
        (["method", "a", "b", "c", "d"], [["m", "1", "2", "3", "4"]]),
        (["method", "e"], [["m", "5"]]),
    ]


def test_markdown_opens_with_summary_scoreboard_and_figure():
    prose = "It holds.\n\n## Decided\n"
    text = markdown(report(), prose, "coterie reproduce made-up")
    parts = (
        "It holds.",
        "**The paper's claims:**",
        "✓ 1 holds",
        "**Our additional claims:**",
        "✗ 1 does not hold",
        "dots-table2-hr10.svg",
        "## Claims",
        "figures/claim-table2-ahead.svg",
        "## Methods",
        "\n## Table 2",
        "## Decided",
    )
    order = [text.index(part) for part in parts]
    assert order == sorted(order)
    assert "figures/table2-made-up-hr10.svg" in text
    assert "Good is \\<b\\>ahead" in text, "no claim is read as HTML"


def test_every_linked_picture_is_written():
    text = markdown(report())
    linked = set(re.findall(r"\]\(figures/([^)]+)\.svg\)", text))
    drawn = {f.key for f in figures.all_figures(report()["items"])}
    assert linked == drawn | all_pictures(report()).keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_with_the_paper_in_two_sentences_and_three_findings(name: str):
    opening, _ = split_prose(prose(name))
    paragraph, *findings = re.split(r"\n- ", opening.strip())
    assert re.match(r"\*\*The (paper|thesis|question):\*\* ", paragraph)
    assert len(re.findall(r"[.?](\s|$)", paragraph)) <= 2
    assert len(findings) == 3
    assert all(len(finding) < 240 for finding in findings), "a bullet is read at a glance"


@pytest.mark.parametrize("name", NAMES)
def test_no_cell_of_a_generated_table_is_long(name: str):
    stored = json.loads((DOCS / f"{name}.json").read_text())
    for item in stored["items"]:
        for found in item["tables"]:
            for made in (comparison(found), costs(found), paired_tests(found)):
                cells = [cell for line in made[1] for cell in line] if made else []
                assert max(map(len, cells), default=0) <= 120


def test_the_conclusion_ends_at_the_first_heading():
    assert split_prose("It holds.\n\n## Decided\n") == ("It holds.\n", "## Decided\n")
    assert split_prose("## Decided\n") == ("", "## Decided\n")
    assert split_prose("") == ("", "")


def test_a_curve_has_three_axes_and_a_band():
    (drawn,) = [f for f in figures.item_figures(report()["items"][0]) if f.key.endswith("hr10")]
    assert drawn.axes == ["rounds", "megabytes", "seconds"]
    good = drawn.series[0]
    assert list(good.y) == [0.55, 0.85, 0.85]
    assert good.low[0] == pytest.approx(0.55 - 0.0707, abs=1e-4)


def test_references_are_drawn_as_levels():
    central = table(rows={"als": row([0.95]), "popular": row([0.99])}, tests=[], paper={})
    elsewhere = report()["items"][0] | {"tables": [central]}
    items = [report()["items"][0], elsewhere]
    drawn = figures.item_figures(items[0], items)[0]
    levels = {series.name: series.y[0] for series in drawn.series if series.level}
    # One of 51 candidates is the held-out one; ten are recommended.
    assert levels == {
        "good, paper": 0.9,
        "als (centralised)": 0.95,
        "chance level": pytest.approx(10 / 51),
    }
    names = [series.name for series in drawn.series]
    assert drawn.colour(names.index("good, paper")) == drawn.colour(names.index("good"))
    assert drawn.colour(names.index("chance level")) == GREY
    other = table(rows={"als": row([0.95])}, protocol="loo-99")
    assert levels_elsewhere([elsewhere | {"tables": [other]}], table(), "HR@10") == []


@pytest.mark.parametrize("value", [0.001, -0.05])
@pytest.mark.parametrize("verdict", ["holds", "does not hold"])
def test_a_tolerance_is_marked_on_both_sides(value: float, verdict: Holds):
    effect = Effect("HR: a − b", "difference", value, -0.06, 0.01, 0.02, tolerance=True)
    claim = {"by": {"d": Verdict.of(verdict, "", effect).to_json()}}
    assert thresholds(claim, "difference") == [-0.02, 0.02]
    at_least = effect._replace(tolerance=False)
    claim = {"by": {"d": Verdict.of(verdict, "", at_least).to_json()}}
    assert thresholds(claim, "difference") == [0.02]


def test_many_effects_are_folded():
    effect = Effect("HR: a − b", "difference", 0.1, 0.0, 0.2, 0.0)
    parts = tuple(ClaimPart("holds", "", effect) for _ in range(9))
    many = {"by": {"d": Verdict("holds", parts).to_json()}}
    few = {"by": {"d": Verdict("holds", parts[:8]).to_json()}}
    assert not fits_a_row(many)
    assert fits_a_row(few)


def test_a_sweep_is_drawn_over_its_setting():
    item = report()["items"][0] | {"by": "p", "tables": [sweep({3: [0.5], 1: [0.1, 0.3]})]}
    drawn = figures.item_figures(item)[0]
    assert drawn.axes == ["p"]
    assert list(drawn.series[0].xs["p"]) == [1, 3]
    assert list(drawn.series[0].y) == pytest.approx([0.2, 0.5])


def test_a_method_without_the_setting_of_a_sweep_is_drawn_as_a_level():
    findings = sweep({5: [30.0], 10: [20.0]})
    findings["rows"]["base"] = row([24.0, 26.0])
    series = figures.over_setting("name", "clusters", findings, "HR@10").series
    assert [(one.name, one.level, list(one.y)) for one in series] == [
        ("ours", False, [30.0, 20.0]),
        ("base", True, [25.0]),
    ]


def test_dominated_methods_are_not_on_the_front():
    assert figures.dominates((1.0, 0.5), (2.0, 0.5))
    assert not figures.dominates((1.0, 0.4), (2.0, 0.5))
    assert not figures.dominates((1.0, 0.5), (1.0, 0.5))


MEASURE = """
<script>addEventListener('load', () => {
  const bottom = (id) => document.getElementById(id).getBoundingClientRect().bottom
  const scrolls = [...document.querySelectorAll('*')].some(
    (one) => one.scrollWidth > one.clientWidth + 1 &&
      ['auto', 'scroll'].includes(getComputedStyle(one).overflowX))
  document.title = JSON.stringify({
    inner: innerWidth, wide: document.documentElement.scrollWidth, scrolls,
    summary: bottom('summary'), scoreboard: bottom('scoreboard'), overview: bottom('overview') })
})</script>
"""


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_draws_every_figure_and_fetches_nothing(tmp_path: Path, width: int):
    log = tmp_path / "net.json"
    found = browse(tmp_path, page(report()), width, f"--log-net-log={log}")
    wanted = found.count("FIGURES.push(")
    drawn = found.count('class="figure js-plotly-plot"')
    assert wanted >= 2
    assert drawn == wanted
    assert found.count('class="js-line"') >= wanted
    widths = [float(w) for w in re.findall(r'<svg class="main-svg"[^>]* width="([\d.]+)"', found)]
    assert 0 < max(widths) <= width
    requested = re.findall(r'"url":"(https?://[^"]+)"', log.read_text())
    assert not [url for url in requested if "plot" in url or "cdn" in url], requested


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [1200, 500])
@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_has_summary_scoreboard_and_figure(tmp_path: Path, name: str, width: int):
    stored = json.loads((DOCS / f"{name}.json").read_text())
    text = page(stored, prose(name), f"coterie reproduce {name}")
    # The layout does not need plotly's script, which takes seconds.
    still = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    measured = json.loads(
        re.findall(r"<title>(.*?)</title>", browse(tmp_path, still + MEASURE, width))[0]
    )
    assert measured["inner"] == width
    assert measured["wide"] <= width
    assert not measured["scrolls"], "nothing scrolls sideways"
    assert max(measured[part] for part in ("summary", "scoreboard", "overview")) <= 900
