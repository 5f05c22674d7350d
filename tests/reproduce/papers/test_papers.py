"""The declared papers: every cell is a valid experiment, and every claim is about methods that are run."""

from __future__ import annotations

import json
import re
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from coterie.experiments.plan import cells
from coterie.reproduce.items import Item, Pair, Trial
from coterie.reproduce.markdown import BEGIN, END, markdown, summary
from coterie.reproduce.papers import NAMES, paper, prose
from coterie.reproduce.running import plan_of

pytest.importorskip("torch")
PAPERS = [paper(name) for name in NAMES]
ITEMS = [pytest.param(item, id=f"{one.name} {item.key}") for one in PAPERS for item in one.items]


@pytest.mark.parametrize("item", ITEMS)
def test_every_cell_is_a_valid_experiment(item: Item):
    for trial in item.trials:
        if isinstance(trial, Trial):
            assert len(cells(plan_of(trial))) == len(trial.methods) * trial.seeds


@pytest.mark.parametrize("item", ITEMS)
def test_the_papers_numbers_are_of_methods_that_are_run(item: Item):
    for trial in item.trials:
        if isinstance(trial, Trial):
            assert trial.paper.keys() <= {method.label for method in trial.methods}
        assert all(len(row) <= len(item.metrics) for row in trial.paper.values())


def named(check: Any) -> set[str]:
    """The methods and series that a check is about."""
    if not is_dataclass(check):
        return set()
    found: set[str] = set()
    for field in fields(check):
        value = getattr(check, field.name)
        if field.name in ("first", "other", "method", "series") and value:
            found.add(value)
        elif field.name in ("methods", "others"):
            found |= set(value)
        elif field.name == "checks":
            found |= {name for one in value for name in named(one)}
        elif isinstance(value, Pair):
            found |= {value.first, value.other}
    return found


@pytest.mark.parametrize("item", ITEMS)
def test_claims_are_about_what_is_run(item: Item):
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
def test_names_are_told_apart(one: Any):
    assert len({item.key for item in one.items}) == len(one.items)
    for item in one.items:
        assert len({claim.name for claim in item.claims}) == len(item.claims)
    assert one.quick
    assert "## " in prose(one.name), "what was decided where the paper is silent"


DOCS = Path(__file__).parents[3] / "docs" / "papers"


@pytest.mark.parametrize("name", NAMES)
def test_pages_are_made_of_full_runs(name: str):
    """No figure of a page was typed in: it is what its JSON and its prose give."""
    kept = DOCS / f"{name}.json"
    found = json.loads(kept.read_text()) if kept.exists() else {}
    if "items" not in found:
        pytest.skip(f"{name} has no full run in this form yet")
    assert not found["quick"]
    text = markdown(found, prose(name), f"coterie reproduce {name}", f"figures/{name}")
    assert (DOCS / f"{name}.md").read_text() == text
    for picture in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (DOCS / picture).exists(), picture


def test_the_index_table_is_made_of_them() -> None:
    index = (DOCS / "index.md").read_text()
    runs = {
        name: json.loads((DOCS / f"{name}.json").read_text())
        for name in NAMES
        if (DOCS / f"{name}.json").exists()
    }
    assert (
        BEGIN + summary({name: found for name, found in runs.items() if "items" in found}) + END
        in index
    )
