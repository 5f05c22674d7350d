"""The page of one run: conclusion, baselines, costs, server, and nothing that leaves the page."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import BROWSER, browse, measured
from html_page import EVIL, Page, external_parts

import coterie
from coterie.experiments.finished_run import Run
from coterie.experiments.run_report import run_report
from coterie.report.references import RunBeside
from coterie.report.run_page import run_page
from coterie.report.samples import SampleList

SMALL: dict[str, Any] = {"n_users": 60, "n_items": 90, "mean_interactions": 9}
MOST_BYTES = 5_000_000
EARLIER = {
    "below_popular",
    "by_disclosure",
    "convergence",
    "evaluation",
    "filters",
    "popular",
    "quantiles",
    "reading",
    "server_receives",
    "server_view",
    "settings",
    "without_popularity",
}
"""Keys that results of earlier versions lack."""


@pytest.fixture(scope="module")
def fedavg() -> Run:
    return coterie.run("fedavg", rounds=8, **SMALL)


@pytest.fixture(scope="module")
def private() -> Run:
    pytest.importorskip("dp_accounting")
    return coterie.run("fedease", epsilon=8.0, **SMALL)


def with_result(of: Run, **changes: Any) -> Run:
    return replace(of, result=of.result | changes)


def neighbour(run: Run, algorithm: str, value: float, folder: str = "") -> RunBeside:
    """A centralised run on the same data with this HR@10."""
    metrics = run.result["metrics"] | {"HR@10": value}
    changes = {"algorithm": algorithm, "metrics": metrics, "bytes_up": 0, "bytes_down": 0}
    return RunBeside(folder or f"{algorithm}-1", run.result | changes)


# ---- the conclusion


def test_the_conclusion_has_the_differences_from_the_baselines(fedavg: Run) -> None:
    """0.6 is 0.2 above 0.4, which is 150 % of it, and 0.15 below 0.75, which is 80 % of it."""
    metrics = fedavg.metrics | {"HR@10": 0.6}
    run = with_result(fedavg, metrics=metrics, popular={"HR@10": 0.4}, below_popular=[])
    text = Page(run_page(run, (), [neighbour(run, "als", 0.75)])).text
    assert "HR@10 is 0.2000 better than that of popular (0.4000): 150% of it." in text
    assert "HR@10 is 0.1500 worse than that of als (0.7500): 80% of it." in text
    assert "als: the best centralised run in the same folder (als-1)." in text


def test_of_errors_the_lower_one_is_better(fedavg: Run) -> None:
    changes = {
        "headline": ["RMSE"],
        "metrics": {"RMSE": 0.9},
        "full": {},
        "popular": {"RMSE": 1.1},
        "below_popular": [],
        "convergence": {},
    }
    text = Page(run_page(with_result(fedavg, **changes))).text
    assert "RMSE is 0.2000 better than that of popular (1.1000)" in text


def test_the_best_centralised_run_is_taken_and_trivial_ones_are_not(fedavg: Run) -> None:
    others = [("als", 0.5), ("bpr", 0.7), ("random", 0.9), ("popular", 0.8)]
    known = [neighbour(fedavg, name, value) for name, value in others]
    rows = Page(run_page(fedavg, (), known)).rows
    header = next(row for row in rows if row[0] == "metric")
    assert header == ["metric", "meaning", "loo-50", "popular", "bpr, centralised", "full ranking"]
    (first, *_) = [row for row in rows if row[0] == "HR@10"]
    assert first[4] == "0.7000"


def test_missing_baselines_are_named(fedavg: Run) -> None:
    known = Page(run_page(fedavg)).text
    assert "A centralised run to compare with is missing" in known
    assert "is missing: the version that made the run" not in known
    old = with_result(fedavg, popular={}, below_popular=[])
    assert "Popular, the same list for all users, is missing" in Page(run_page(old)).text
    beside = Page(run_page(old, (), [neighbour(fedavg, "popular", 0.3)])).text
    assert "Popular, the same list for all users, is missing" not in beside


def test_runs_that_were_not_read_are_counted(fedavg: Run) -> None:
    """A reader who trusts "the best centralised run" must know that some were left out."""
    text = Page(run_page(fedavg, (), [neighbour(fedavg, "als", 0.75)], 1234)).text
    assert "that were not read, since there are many: 1,234." in text
    assert "were not read" not in Page(run_page(fedavg)).text


def test_a_centralised_run_needs_no_centralised_baseline_and_has_no_server() -> None:
    text = run_page(coterie.run("popular", **SMALL))
    assert "to compare with is missing" not in text
    for section in ("costs", "server", "defence", "budget"):
        assert f"<section id={section}>" not in text


# ---- sections


def test_links_lead_to_sections(fedavg: Run, private: Run) -> None:
    for run in (fedavg, private):
        elements = Page(run_page(run)).elements
        links = [str(a["href"]) for tag, a in elements if tag == "a"]
        places = [f"#{a['id']}" for tag, a in elements if tag == "section"]
        assert links == places


def test_the_curve_is_drawn_against_updates_and_bytes(fedavg: Run) -> None:
    text = run_page(fedavg)
    opened = text[: text.index("Other axes and metrics")]
    for axis in ("updates", "megabytes"):
        assert f"<title>HR@10 by {axis}</title>" in opened
    for axis in ("rounds", "seconds"):
        assert f"<title>HR@10 by {axis}</title>" in text[len(opened) :]
    last = fedavg.curve[-1]
    assert [f"{last[name]:,}" for name in ("updates", "bytes_up", "bytes_down")] in [
        row[3:6] for row in Page(text).rows
    ]


def test_costs_of_a_client_are_totals_over_clients(fedavg: Run) -> None:
    """6 MB up in 300 updates of 60 clients: 100 kB a client and 20 kB a message."""
    run = with_result(
        fedavg, users=60, bytes_up=6_000_000, bytes_down=12_000_000, updates=300, asked=400
    )
    rows = Page(run_page(run)).rows
    assert ["clients sent", "6.0 MB", "100.0 kB", "20.0 kB"] in rows
    assert ["clients received", "12.0 MB", "200.0 kB", "30.0 kB"] in rows
    assert ["updates accepted", "300", "75.0%"] in rows


def test_refused_updates_are_listed_by_reason(fedavg: Run) -> None:
    run = with_result(fedavg, asked=100, updates=90, dropped=3, refused={"too large": 7})
    page = Page(run_page(run))
    assert ["refused: too large", "7", "7.0%"] in page.rows
    assert "7 of 97 were refused" in page.text


def test_selections_have_their_quantiles(fedavg: Run) -> None:
    found = fedavg.result["selections"]
    assert found["quantiles"][0] == found["least"]
    assert found["quantiles"][-1] == found["most"]
    assert "<title>How often clients were selected</title>" in run_page(fedavg)


def test_coverage_is_a_share_of_the_catalogue(fedavg: Run) -> None:
    run = with_result(fedavg, items=200, full=fedavg.full | {"IC@10": 50.0, "Pop@10": 0.125})
    text = Page(run_page(run)).text
    assert "have 50 distinct items, 25.0% of the catalogue." in text
    assert "12.5% of the users have a recommended item" in text


def test_the_defence_is_named(fedavg: Run) -> None:
    assert "None: the server aggregates updates as they are." in run_page(fedavg)
    settings = fedavg.result["settings"] | {"robust": "trimmed"}
    assert "robust=trimmed: bounds, and extremes" in run_page(
        with_result(fedavg, settings=settings)
    )


def test_a_privacy_budget_has_its_own_section(private: Run, fedavg: Run) -> None:
    half = private.result["privacy"] | {"epsilon_spent": 4.0}
    text = run_page(with_result(private, privacy=half))
    assert "<dt>Budget</dt><dd><p>epsilon 8, delta " in text
    assert "<dt>Spent</dt><dd><p>epsilon 4 (50% of the budget)</p></dd>" in text
    assert "<section id=budget>" not in run_page(fedavg)


def test_noise_of_the_seed_is_not_shown_as_protection(private: Run) -> None:
    assert private.result["privacy"]["noise_source"] == "seeded"
    assert '<span class="badge part">epsilon 8, simulated</span>' in run_page(private)
    real = private.result["privacy"] | {"noise_source": "system"}
    shown = run_page(with_result(private, privacy=real))
    assert '<span class="badge holds">epsilon 8</span>' in shown


def test_secure_aggregation_that_exposes_something_is_not_green(fedavg: Run) -> None:
    hidden = {key: value for key, value in fedavg.result.items() if key != "server_receives"}
    hidden |= {"in_the_clear": [], "in_sums": []}
    green = '<span class="badge holds">secure aggregation</span>'
    assert green in run_page(replace(fedavg, result=hidden))
    for exposed in ({"in_the_clear": ["a row"]}, {"in_sums": ["histories"]}):
        assert green not in run_page(replace(fedavg, result=hidden | exposed))


# ---- hostile and old results


def hostile(run: Run) -> str:
    """The page of a run in which every text is hostile."""
    row = dict.fromkeys(("columns", "whose", "when", "protection"), EVIL)
    with_curve = replace(run, curve=[line | {EVIL: 0.5} for line in run.curve])
    odd = with_result(
        with_curve,
        headline=[EVIL, "HR@10"],
        metrics=run.metrics | {EVIL: 0.5},
        full=run.full | {EVIL: 0.5},
        popular={EVIL: 0.4},
        below_popular=[EVIL],
        without_popularity={EVIL: 0.5},
        quantiles={EVIL: [n / 20 for n in range(21)]},
        convergence={"metric": EVIL, "part": "test", "target": 0.7, "rounds_to_target": None},
        dataset=EVIL,
        algorithm=EVIL,
        version=EVIL,
        run=EVIL,
        protocol=EVIL,
        refused={EVIL: 1},
        server_view=[row],
        server_receives=[EVIL],
        reading=[EVIL],
        settings={EVIL: EVIL},
        filters={EVIL: EVIL},
        bias={"k": 10, "categories": {EVIL: {"source": 1.0}}},
        privacy={
            "epsilon": 1.0,
            "delta": 1e-5,
            "noise": EVIL,
            "noise_multiplier": 1.0,
            "noise_source": "seeded",
            "unit": EVIL,
            "adversary": EVIL,
            "mechanism": EVIL,
            "stopped": EVIL,
            "epsilon_spent": 1.0,
            "randomness": EVIL,
            "not_covered": [EVIL],
        },
    )
    samples = [SampleList(EVIL, [EVIL, EVIL])]
    return run_page(odd, samples, [neighbour(run, EVIL, 0.9, folder=EVIL)])


def test_all_text_is_escaped(fedavg: Run) -> None:
    text = hostile(fedavg)
    read = Page(text)
    assert external_parts(read) == []
    assert text.count("<style>") == 1
    assert read.text.count(EVIL) > 20


def test_results_of_earlier_versions_have_a_page(fedavg: Run, private: Run) -> None:
    for run in (fedavg, private):
        kept = {key: value for key, value in run.result.items() if key not in EARLIER}
        kept["selections"] = {k: v for k, v in kept["selections"].items() if k != "quantiles"}
        read = Page(run_page(replace(run, result=kept)))
        assert external_parts(read) == []
        assert "Not recorded by the version that made the run." in read.text


def test_a_run_without_measurements_has_a_page(fedavg: Run) -> None:
    assert external_parts(Page(run_page(replace(fedavg, curve=[])))) == []


# ---- self-contained


def test_the_page_forbids_requests_and_scripts(fedavg: Run) -> None:
    elements = Page(run_page(fedavg)).elements
    (policy,) = [
        str(a["content"])
        for tag, a in elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy


@contextmanager
def counting_server() -> Iterator[tuple[str, list[str]]]:
    """(address, paths that were requested) of a server on this machine."""
    paths: list[str] = []

    class Counting(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(404)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", paths
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")


@pytest.mark.slow
@needs_browser
def test_no_request_leaves_the_page(tmp_path: Path, fedavg: Run) -> None:
    """Not even for markup that was not escaped: the browser enforces the page's policy."""
    with counting_server() as (address, paths):
        raw = f"<img src={address}/raw><script>fetch('{address}/script')</script></body>"
        browse(tmp_path, f"<!doctype html><body>{raw}", 500)
        assert {"/raw", "/script"} <= set(paths), "the server counts"
        paths.clear()
        text = hostile(fedavg).replace("http://evil.example", address)
        assert address in text
        browse(tmp_path, text.replace("</body>", raw), 500)
        assert paths == []


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [1200, 500])
def test_the_page_fits(tmp_path: Path, fedavg: Run, width: int) -> None:
    long = with_result(fedavg, dataset=100 * "x", algorithm=60 * "y")
    for text in (run_page(long, (), [neighbour(fedavg, 40 * "z", 0.5)]), hostile(fedavg)):
        found = measured(tmp_path, text, width)
        assert found["inner"] == width
        assert found["wide"] <= width
        assert (found["scrolls"], found["cut"]) == ([], [])
        if width == 500:
            assert len(found["left"]) == 1, "figures are below each other"


def test_the_page_of_a_real_run_is_small(tmp_path: Path, real_data: Callable[[str], None]) -> None:
    real_data("ml-100k")
    run = coterie.run("fedavg", "ml-100k", rounds=5, out=tmp_path / "run")
    size = (tmp_path / "run" / "report.html").stat().st_size
    assert size < MOST_BYTES
    assert len(run_report(run, tmp_path / "run").encode()) == size
