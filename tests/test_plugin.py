"""A package outside the checkout adds an algorithm, and everything follows from its entry point."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from coterie.algorithms import registry
from coterie.core import plugins
from coterie.errors import PluginError

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
NAME = "fedsgd-mf"
SMALL = ("--set", "n_users=60", "--set", "n_items=40", "--set", "rounds=6")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plug-in as pip would install it: the package, and metadata with its entry points."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(PLUGIN / "src", folder, dirs_exist_ok=True)
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    metadata = folder / "coterie_example_plugin-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: 0.1.0\n")
    entries = project["entry-points"]["coterie.algorithms"]
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[coterie.algorithms]", *lines]))
    return folder


class Shell:
    """Commands in a process that has the plug-in, in a folder of its own."""

    def __init__(self, site: Path, folder: Path) -> None:
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
        self.folder = folder

    def python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def coterie(self, *arguments: str) -> str:
        return self.python("-m", "coterie.cli.main", *arguments)

    def run(self, out: str, *arguments: str) -> dict[str, float]:
        """The metrics of a run."""
        self.coterie("run", NAME, "--out", out, *SMALL, *arguments)
        result = json.loads((self.folder / out / "result.json").read_text())
        return dict(result["metrics"])


@pytest.fixture
def shell(site: Path, tmp_path: Path) -> Shell:
    return Shell(site, tmp_path)


def test_its_code_is_short() -> None:
    lines = (PLUGIN / "src" / "fedsgd_mf" / "__init__.py").read_text().splitlines()
    assert len(lines) <= 120


def test_it_is_listed_with_its_settings(shell: Shell) -> None:
    assert NAME in shell.coterie("algorithms")
    assert "Step size of clients and server" in shell.coterie("algorithms", NAME)


@pytest.mark.long
def test_it_runs_on_nodes_and_with_secure_aggregation_to_the_same_metrics(shell: Shell) -> None:
    plain = shell.run("plain")
    assert plain == shell.run("nodes", "--set", "nodes=3")
    assert plain == shell.run("secure", "--secure-aggregation", "ring")


@pytest.mark.long
def test_it_resumes_from_a_checkpoint(shell: Shell) -> None:
    whole = shell.run("whole", "--set", "checkpoint_every=1")
    program = (
        "import sys\n"
        "import coterie.federated.rounds as rounds\n"
        "from coterie.cli.main import main\n"
        "play = rounds.play_round\n"
        "def stopped(federation, world, state, t, engine):\n"
        "    if t == 3: raise KeyboardInterrupt\n"
        "    return play(federation, world, state, t, engine)\n"
        "rounds.play_round = stopped\n"
        f"sys.argv = ['coterie', 'run', '{NAME}', '--out', 'broken', *{SMALL!r},"
        " '--set', 'checkpoint_every=1']\n"
        "main()\n"
    )
    with pytest.raises(AssertionError, match="coterie resume broken"):
        shell.python("-c", program)
    shell.coterie("resume", "broken")
    result = json.loads((shell.folder / "broken" / "result.json").read_text())
    assert result["metrics"] == whole


@pytest.mark.slow
def test_it_tunes_over_its_own_search_space(shell: Shell) -> None:
    out = shell.coterie("tune", NAME, "--trials", "2", "--finalists", "1", *SMALL)
    assert "learning_rate" in out


@pytest.mark.slow
def test_it_passes_the_conformance_suite(shell: Shell) -> None:
    out = shell.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(PLUGIN / "tests"))
    assert out.startswith("......... "), out


@pytest.mark.slow
def test_the_complete_file_of_the_docs_passes_the_conformance_suite(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "own-algorithm.md").read_text()
    (code,) = re.findall(r"```python\n# src/my_package/__init__.py\n(.*?)```", page, re.DOTALL)
    (tmp_path / "my_package.py").write_text(code)
    metadata = tmp_path / "my_package-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: my-package\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[coterie.algorithms]\nmine = my_package:ALGORITHM\n"
    )
    shell = Shell(tmp_path, tmp_path)
    shell.python("-c", "from coterie import testing; testing.check('mine')")


def test_a_cached_cell_depends_on_the_code_of_its_plug_in(shell: Shell, site: Path) -> None:
    """Otherwise `tune` and `compare` would show figures of code that has changed since."""
    program = (
        "from coterie.experiments.plan import Plan, cells\n"
        "from coterie.experiments.cell_cache import folder_name\n"
        f"plan = Plan(datasets=('synthetic',), methods=('{NAME}', 'popular'))\n"
        "print(*[folder_name(cell, 'data') for cell in cells(plan)])\n"
    )
    own, popular = shell.python("-c", program).split()
    code = site / "fedsgd_mf" / "__init__.py"
    before = code.read_text()
    code.write_text(before + "# changed\n")
    try:
        changed, still = shell.python("-c", program).split()
    finally:
        code.write_text(before)
    assert changed != own
    assert still == popular
    assert shell.python("-c", program).split() == [own, popular]


# ---- the hook for the local objective


def test_fedprox_is_a_page_of_code() -> None:
    lines = (PLUGIN / "src" / "fedprox" / "__init__.py").read_text().splitlines()
    assert len(lines) <= 30


DISTANCES = """
import coterie, numpy as np
def rows(name, **settings):
    small = dict(n_users=60, n_items=40, rounds=1, participation=1.0, local_epochs=5)
    small |= dict(average="touched", evaluate_every=100)
    return coterie.run(name, "synthetic", seed=1, **small, **settings).model.item_rows
start = rows("fedavg", learning_rate=1e-9)
plain = rows("fedavg")
distances = [float(abs(rows("fedprox", mu=mu) - start).sum()) for mu in (0, 1, 5)]
print(abs(rows("fedprox", mu=0.0) - plain).max() < 1e-5, *distances)
"""


@pytest.mark.long
def test_the_proximal_term_holds_clients_back(shell: Shell) -> None:
    """Without it FedProx is FedAvg; the larger it is, the less the model moves."""
    pytest.importorskip("torch")
    same, *distances = shell.python("-c", DISTANCES).split()
    assert same == "True"
    near, nearer, nearest = map(float, distances)
    assert near > 1.05 * nearer > 1.1 * nearest > 0


# ---- plug-ins that are wrong


def installed(monkeypatch: pytest.MonkeyPatch, entries: Sequence[tuple[str, str]]) -> None:
    found = [EntryPoint(name, value, plugins.ALGORITHMS) for name, value in entries]
    plugins.plugins.cache_clear()
    monkeypatch.setattr(plugins, "entry_points", lambda group: found)
    monkeypatch.setattr(
        plugins, "plugins", plugins.plugins.__wrapped__
    )  # without the cache, so that nothing of it stays


def test_a_name_of_coterie_cannot_be_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, [("fedavg", "elsewhere:ALGORITHM")])
    with pytest.raises(PluginError, match=r"'fedavg' to coterie.algorithms, which is a name of"):
        registry.names()


def test_two_packages_cannot_claim_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, [("mine", "one:ALGORITHM"), ("mine", "two:ALGORITHM")])
    with pytest.raises(PluginError, match=r"'mine' in coterie.algorithms is claimed by"):
        registry.names()


def test_code_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, [("mine", "no_such_module:ALGORITHM")])
    with pytest.raises(PluginError, match="ModuleNotFoundError: No module named 'no_such_module'"):
        registry.algorithm("mine")


def test_a_value_of_another_type_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, [("mine", "math:pi")])
    with pytest.raises(PluginError, match="a float; expected a value of type Algorithm"):
        registry.algorithm("mine")
