"""The declared papers: every run is a valid experiment, every claim is about methods that run."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import pytest

from coterie.experiments.plan import cells
from coterie.reproduce.items import Item, MethodPair, Paper, Trial
from coterie.reproduce.markdown import BEGIN, END, markdown, summary
from coterie.reproduce.page import split_prose
from coterie.reproduce.papers import NAMES, fedbso, paper, prose
from coterie.reproduce.running import plan_of

pytest.importorskip("torch")
PAPERS = [paper(name) for name in NAMES]
ITEMS = [pytest.param(item, id=f"{one.name} {item.key}") for one in PAPERS for item in one.items]


@pytest.mark.parametrize("item", ITEMS)
def test_every_run_is_a_valid_experiment(item: Item):
    for trial in item.trials:
        if isinstance(trial, Trial):
            assert len(cells(plan_of(trial))) == len(trial.methods) * trial.seeds


@pytest.mark.parametrize("item", ITEMS)
def test_the_papers_figures_are_of_methods_that_run(item: Item):
    for trial in item.trials:
        if isinstance(trial, Trial):
            assert trial.paper.keys() <= {method.label for method in trial.methods}
        assert all(len(row) <= len(item.metrics) for row in trial.paper.values())


@pytest.mark.parametrize("item", ITEMS)
def test_searches_are_of_methods_that_run(item: Item):
    for trial in item.trials:
        if isinstance(trial, Trial):
            assert trial.searches.keys() <= {method.label for method in trial.methods}


@pytest.mark.parametrize("own", [{}, {"learning_rate": 0.02}], ids=["not searched", "searched"])
def test_fedavg_touched_has_its_own_search_where_there_is_one(own, monkeypatch):
    settings = {fedbso.TOUCHED: own, "fedbso": {"learning_rate": 0.1}}
    monkeypatch.setattr(fedbso, "tuned", lambda dataset, name: settings[name])
    assert fedbso.touched_settings("ml-1m") == (own or {"learning_rate": 0.1})
    search = fedbso.search_of_touched("ml-1m")
    # FedBSO's search had two more trials by hand.
    assert search.trials == (10 if own else 12)
    assert bool(search.note) != bool(own)


def named(check: object) -> set[str]:
    """The methods and series that a check is about."""
    if not is_dataclass(check):
        return set()
    names: set[str] = set()
    for field in fields(check):
        value = getattr(check, field.name)
        if field.name in ("first", "other", "method", "series") and value:
            names.add(value)
        elif field.name in ("methods", "others"):
            names |= set(value)
        elif field.name == "checks":
            names |= {name for one in value for name in named(one)}
        elif isinstance(value, MethodPair):
            names |= {value.first, value.other}
    return names


@pytest.mark.parametrize("item", ITEMS)
def test_claims_are_about_methods_that_run(item: Item):
    known: set[str] = set()
    for trial in item.trials:
        if isinstance(trial, Trial):
            known |= {name for method in trial.methods for name in (method.label, method.algorithm)}
        else:
            assert isinstance(trial.measure, partial)
            known |= set(trial.measure.args[0])
    for claim in item.claims:
        assert named(claim.check) <= known, claim.name
        assert set(claim.datasets) <= {trial.dataset for trial in item.trials}, claim.name


@pytest.mark.parametrize("one", PAPERS, ids=NAMES)
def test_names_are_unique(one: Paper):
    assert len({item.key for item in one.items}) == len(one.items)
    for item in one.items:
        assert len({claim.name for claim in item.claims}) == len(item.claims)
    assert one.quick
    conclusion, details = split_prose(prose(one.name))
    assert conclusion, "a page opens with its conclusion"
    assert details, "decisions where the paper is silent"


DOCS = Path(__file__).parents[3] / "docs" / "papers"


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_made_of_full_runs(name: str):
    """No figure of a page is typed by hand: the page is generated from its JSON and its prose."""
    stored = DOCS / f"{name}.json"
    report = json.loads(stored.read_text()) if stored.exists() else {}
    if "items" not in report:
        pytest.skip(f"{name} has no full run in this form yet")
    assert not report["quick"]
    text = markdown(report, prose(name), f"coterie reproduce {name}", f"figures/{name}")
    assert (DOCS / f"{name}.md").read_text() == text
    for picture in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (DOCS / picture).exists(), picture


def test_the_index_table_is_generated_from_them() -> None:
    index = (DOCS / "index.md").read_text()
    reports = {
        name: json.loads((DOCS / f"{name}.json").read_text())
        for name in NAMES
        if (DOCS / f"{name}.json").exists()
    }
    table = summary({name: report for name, report in reports.items() if "items" in report})
    assert BEGIN + table + END in index
