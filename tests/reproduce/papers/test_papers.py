"""The declared papers: every run is a valid experiment, every claim is about methods that run."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from runpy import run_path

import pytest

from coterie.experiments.plan import cells
from coterie.reproduce.items import Item, MethodPair, Paper, Trial
from coterie.reproduce.markdown import BEGIN, END, markdown, summary
from coterie.reproduce.page import split_prose
from coterie.reproduce.papers import NAMES, fedbso, fedfast, paper, prose, tuned_settings
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


# Pinterest's search has not been repeated with equal trials.
@pytest.mark.parametrize("trial", fedbso.TABLE2.trials, ids=lambda trial: str(trial.dataset))
def test_every_tuned_method_of_fedbso_has_as_many_trials(trial: Trial):
    trials = {label: search.trials for label, search in trial.searches.items() if search.trials}
    assert len(set(trials.values())) == 1, trials
    assert set(trials) == {
        "fedbso, tuned", "fedfast, tuned", "fedavg, tuned", "fedavg, touched, tuned",
        "gmf", "als", "ease",
    }  # fmt: skip


@pytest.mark.parametrize("trial", fedfast.TABLE2.trials, ids=lambda trial: str(trial.dataset))
def test_every_method_of_fedfast_has_as_many_trials(trial: Trial):
    trials = {label: search.trials for label, search in trial.searches.items()}
    assert len(set(trials.values())) == 1, trials
    assert set(trials) == {method.label for method in trial.methods} - {"popular"}


def test_fedfast_and_fedavg_are_compared_with_the_same_settings_in_both_directions():
    """All settings are the same but for the number of rounds, which is not below either search."""
    for trial in fedfast.TABLE2.trials:
        assert isinstance(trial, Trial)
        by_label = {method.label: dict(method.settings) for method in trial.methods}
        found = [by_label[fedfast.FAST]["rounds"], by_label[fedfast.AVG]["rounds"]]
        for owner, other in (
            (fedfast.FAST, fedfast.AVG_AS_FAST),
            (fedfast.AVG, fedfast.FAST_AS_AVG),
        ):
            # FedFast has no `average`, and FedAvg is the literal one in both directions.
            shared = {key: v for key, v in by_label[owner].items() if key != "average"}
            reading = {"average": "all"} if other == fedfast.AVG_AS_FAST else {}
            assert by_label[other] == shared | {"rounds": max(found)} | reading
            assert by_label[owner]["final_rate"] == 1.0


def test_fedfasts_bars_are_the_lowest_of_the_papers_own_table():
    """Yelp: 0.62 / 0.71 = 0.873, 0.36 / 0.45 = 0.8 and 0.62 / 0.81 = 0.765."""
    assert (fedfast.GMF_HR, fedfast.GMF_NDCG, fedfast.BPR_HR) == (0.87, 0.80, 0.77)


def test_a_search_that_ends_at_its_limit_has_a_note():
    found = tuned_settings.found_settings("fedfast", "ml-1m", "fedfast")
    at_limit = tuned_settings.found_search("fedfast", "ml-1m", "fedfast", found["rounds"])
    assert at_limit.note == tuned_settings.LAST_ROUND
    below = tuned_settings.found_search("fedfast", "ml-1m", "fedfast", found["rounds"] + 1)
    assert below.note == ""
    assert tuned_settings.found_search("fedfast", "ml-1m", "gmf").note == ""


def test_the_limits_of_rounds_are_those_of_the_search():
    path = Path(__file__).parents[3] / "benchmarks" / "paper_search.py"
    limits = {
        setting.dataset: setting.rounds for setting in run_path(str(path))["PAPERS"]["fedfast"]
    }
    assert limits == fedfast.MOST_ROUNDS


@pytest.mark.parametrize("searched", [True, False])
def test_another_model_has_its_own_search_where_there_is_one(searched: bool, monkeypatch):
    gmf = {"settings": {"reg": 0.1}, "trials": 30, "space": {}}
    ncf = {"settings": {"reg": 0.2}, "trials": 20, "space": {}}
    content = {"fedfast": {"ml-100k": {"fedavg": gmf}}}
    content |= {"ncf": {"ml-100k": {"fedavg": ncf}}} if searched else {}
    monkeypatch.setattr(tuned_settings, "_read", lambda name: content)
    own = {"reg": 0.2} if searched else {"reg": 0.1, "model": "neumf"}
    own |= {"average": "all"}
    assert fedfast.elsewhere("ncf", "fedavg", {"model": "neumf"}) == own
    search = fedfast.search_elsewhere("ncf", "fedavg")
    assert search.trials == (20 if searched else 30)
    assert bool(search.note) != searched


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
