"""The report: verdicts first, one self-contained file, figures that a browser draws."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from reproduce.hand_made import report, sweep, table

from coterie.reproduce import figures
from coterie.reproduce.markdown import markdown
from coterie.reproduce.page import page, rendered, split_prose
from coterie.reproduce.tables import comparison, verdicts

pytest.importorskip("plotly")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def test_verdicts_come_before_tables():
    text = page(report(), "## Decided\n\nThis and that.", "coterie reproduce made-up")
    body = text[text.index("<h1>") :]
    order = [
        body.index(part)
        for part in (
            "id=verdicts",
            "class='badge holds'",
            "id=table2",
            "<table>",
            "id=notes",
            "id=provenance",
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
    assert header[:4] == ["method", "HR@10", "paper", "difference"]
    assert rows[0][:4] == ["good", "0.8500 ±0.0707", "0.9000", "−0.0500"]
    assert rows[1][:4] == ["weak", "0.4500 ±0.0707", "", ""]
    assert header[-2:] == ["MB up", "MB down"]
    assert rows[0][-2:] == ["2.0", "4.0"]


def test_markdown_opens_with_verdicts_and_conclusion():
    prose = "It holds.\n\n## Decided\n"
    text = markdown(report(), prose, "coterie reproduce made-up")
    parts = ("holds 1", "It holds.", "| Table 2 |", "## Evidence", "## Table 2", "## Decided")
    order = [text.index(part) for part in parts]
    assert order == sorted(order)
    assert "figures/table2-made-up-hr10.svg" in text
    assert verdicts(report()["items"]) == {
        "holds": 1,
        "holds in part": 0,
        "does not hold": 0,
        "cannot be tested": 0,
    }


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


def test_a_sweep_is_drawn_over_its_setting():
    item = report()["items"][0] | {"by": "p", "tables": [sweep({3: [0.5], 1: [0.1, 0.3]})]}
    drawn = figures.item_figures(item)[0]
    assert drawn.axes == ["p"]
    assert list(drawn.series[0].xs["p"]) == [1, 3]
    assert list(drawn.series[0].y) == pytest.approx([0.2, 0.5])


def test_dominated_methods_are_not_on_the_front():
    assert figures.dominates((1.0, 0.5), (2.0, 0.5))
    assert not figures.dominates((1.0, 0.4), (2.0, 0.5))
    assert not figures.dominates((1.0, 0.5), (1.0, 0.5))


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_draws_every_figure_and_fetches_nothing(tmp_path: Path, width: int):
    (tmp_path / "report.html").write_text(page(report()))
    log = tmp_path / "net.json"
    done = subprocess.run(
        [
            str(BROWSER),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={width},900",
            "--virtual-time-budget=8000",
            f"--log-net-log={log}",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--disable-background-networking",
            "--dump-dom",
            (tmp_path / "report.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    wanted = done.stdout.count("FIGURES.push(")
    drawn = done.stdout.count('class="figure js-plotly-plot"')
    assert wanted >= 2
    assert drawn == wanted
    assert done.stdout.count('class="js-line"') >= wanted
    widths = [
        float(w) for w in re.findall(r'<svg class="main-svg"[^>]* width="([\d.]+)"', done.stdout)
    ]
    assert 0 < max(widths) <= width
    requested = re.findall(r'"url":"(https?://[^"]+)"', log.read_text())
    assert not [url for url in requested if "plot" in url or "cdn" in url], requested
