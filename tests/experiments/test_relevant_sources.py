"""Which source files a run depends on: what is edited elsewhere keeps its figures."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import coterie
from coterie.algorithms.registry import ALGORITHMS, algorithm, module_of
from coterie.experiments.cell_cache import source_hash
from coterie.experiments.relevant_sources import DISPLAY_PACKAGES, TABLES, relevant_sources

PACKAGE = Path(coterie.__file__).parent
FEDAVG = "coterie.algorithms.fedavg"


def copy_of_package(place: Path) -> Path:
    return Path(shutil.copytree(PACKAGE, place, ignore=shutil.ignore_patterns("__pycache__")))


def append(path: Path) -> None:
    path.write_text(path.read_text() + "\n# edited\n")


@pytest.mark.parametrize(
    ("edit", "counts"),
    [
        (lambda package: append(package / "kernels" / "gmf.py"), True),
        (lambda package: append(package / "kernels" / "fallback" / "sums.py"), True),
        (lambda package: append(package / "algorithms" / "fedavg.py"), True),
        (lambda package: append(package / "algorithms" / "local" / "neumf.py"), True),
        (lambda package: append(package / "federated" / "__init__.py"), True),
        (lambda package: (package / "core" / "streams.py").rename(package / "st.py"), True),
        (lambda package: (package / "evaluation" / "ranking.py").unlink(), True),
        (lambda package: append(package / "algorithms" / "fedfast.py"), False),
        (lambda package: append(package / "algorithms" / "registry.py"), False),
        (lambda package: append(package / "kernels" / "fpl.py"), False),
        (lambda package: append(package / "deployment" / "node.py"), False),
        (lambda package: (package / "new.py").write_text(""), False),
        (lambda package: append(package / "cli" / "runs.py"), False),
        (lambda package: append(package / "report" / "page.py"), False),
        # Tuned settings are part of the cell's config.
        (lambda package: append(package / "experiments" / "tuned.yaml"), False),
    ],
)
def test_an_edit_of_the_source_counts_where_it_can_change_a_figure(
    tmp_path: Path, edit: Callable[[Path], None], counts: bool
) -> None:
    edited = copy_of_package(tmp_path / "coterie")
    edit(edited)
    assert (source_hash(edited, FEDAVG) != source_hash(PACKAGE, FEDAVG)) == counts


def test_the_folder_of_the_package_does_not_count(tmp_path: Path) -> None:
    elsewhere = copy_of_package(tmp_path / "coterie")
    assert source_hash(elsewhere, FEDAVG) == source_hash(PACKAGE, FEDAVG)
    assert source_hash(elsewhere) == source_hash(PACKAGE)


def test_without_an_algorithm_everything_but_what_shows_figures_counts(tmp_path: Path) -> None:
    edited = copy_of_package(tmp_path / "coterie")
    append(edited / "report" / "page.py")
    assert source_hash(edited) == source_hash(PACKAGE)
    other = copy_of_package(tmp_path / "other" / "coterie")
    append(other / "algorithms" / "fedfast.py")
    assert source_hash(other) != source_hash(PACKAGE)


RUN = """
import json
import sys
from pathlib import Path
from coterie.experiments.plan import Plan
from coterie.experiments.plan_runner import run_plan
name, settings, folder = sys.argv[1:]
run_plan(Plan(("synthetic",), (name,), json.loads(settings)), Path(folder))
print(*(module for module in sys.modules if module.partition(".")[0] == "coterie"))
"""
"""Runs a cell and prints the modules that were imported."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_imports_nothing_that_does_not_count(name: str, tmp_path: Path) -> None:
    steps = {"epochs", "rounds"} & algorithm(name).settings.model_fields.keys()
    settings = json.dumps(
        {"n_users": 30, "n_items": 20, "mean_interactions": 6} | dict.fromkeys(steps, 1)
    )
    command = [sys.executable, "-c", RUN, name, settings, str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    counted = relevant_sources(PACKAGE, module_of(name))
    for module in printed.split():
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin)
        place = path.relative_to(PACKAGE)
        shows = place.parts[0] in DISPLAY_PACKAGES or place.as_posix() in TABLES
        assert shows or path in counted, module
