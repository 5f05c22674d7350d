"""Promises about the package: imports go one way, starting is quick, names are pinned."""

from __future__ import annotations

import ast
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import coterie
from coterie import errors
from coterie.algorithms.registry import ALGORITHMS
from coterie.data.datasets import DATASETS

SOURCE = Path(coterie.__file__).parent
DOCS = Path(__file__).parents[1] / "docs"

# Every package and loose module has a floor; an import may only go to a lower floor, or stay within
# the package. The order of this list is the order in which a new reader should read the code.
FLOORS = [
    {"errors", "types", "version"},
    {"core"},
    {"data", "models", "kernels", "report", "device"},
    {"evaluation", "federated"},
    {"algorithms", "engines"},
    {"baselines"},
    {"experiments"},
    {"deployment", "attacks", "reproduce", "api", "testing"},
    {"serving"},
    {"console"},
    {"cli", ""},
]
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
LOOSE = {"errors", "types", "version", "api", "testing"}
SCREEN = {"typer", "rich", "click"}
HEAVY = {"torch", "ray", "flwr"}


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name without `coterie.`"""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


@cache
def known(name: str) -> set[str]:
    """Modules of the package that a module names in any import, also one for types alone."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(modules()[name].read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("coterie"):
            base = str(node.module).removeprefix("coterie").removeprefix(".")
            deeper = {".".join(filter(None, [base, alias.name])) for alias in node.names}
            found |= {each if each in modules() else base for each in deeper}
    return (found - {name}) & modules().keys()


def import_nodes(tree: ast.AST, inside_functions: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    for node in ast.iter_child_nodes(tree):
        if type_checking(node):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif inside_functions or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from import_nodes(node, inside_functions)


@cache
def imported(name: str, inside_functions: bool = True) -> set[str]:
    """Dotted names that a module imports; `from coterie import x` is `coterie.x`."""
    found: set[str] = set()
    for node in import_nodes(ast.parse(modules()[name].read_text()), inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif node.module == "coterie":
            found |= {f"coterie.{alias.name}" for alias in node.names}
        else:
            deeper = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {
                d if d.removeprefix("coterie.") in modules() else str(node.module) for d in deeper
            }
    return found


def own(names: set[str]) -> set[str]:
    """Those of the package, without `coterie.`"""
    return {n.removeprefix("coterie.") for n in names if n.startswith("coterie.")}


def outside(names: set[str]) -> set[str]:
    return {n.split(".")[0] for n in names if not n.startswith("coterie")}


# ---- imports go one way


def test_the_check_sees_imports() -> None:
    """Known ones, of each kind: were these missed, the checks below would prove nothing."""
    assert {"errors", "types", "core.streams"} <= own(imported("data.interactions"))
    assert "data.interactions" in own(imported("data.splits"))
    assert "matplotlib" in outside(imported("report.static"))
    assert "matplotlib" not in outside(imported("report.static", inside_functions=False))
    assert "pandas" not in outside(imported("data.interactions", inside_functions=False))
    assert len(modules()) > 40


def room(name: str) -> str:
    """The package that a module belongs to; a loose module is a room of its own."""
    return name.split(".")[0]


def reached(name: str) -> set[str]:
    """Every module of the package that a module imports, directly or through others."""
    found: set[str] = set()
    todo = [name]
    while todo:
        for other in known(todo.pop()) - found:
            found.add(other)
            todo.append(other)
    return found


def test_every_package_has_a_floor() -> None:
    assert {room(name) for name in modules()} == FLOOR.keys()
    assert len(FLOORS) <= 11


def test_loose_modules_are_these() -> None:
    loose = {name for name, path in modules().items() if path.parent == SOURCE and name}
    assert loose == LOOSE


@pytest.mark.parametrize("part", sorted(FLOOR))
def test_imports_go_down(part: str) -> None:
    """Also through other modules, and inside functions: what a package reaches lies below it."""
    for name in (n for n in modules() if room(n) == part):
        up = {n for n in reached(name) if room(n) != part and FLOOR[room(n)] >= FLOOR[part]}
        assert not up, f"{name} (floor {FLOOR[part]}) reaches {sorted(up)}"


def test_only_the_command_line_draws() -> None:
    for name in (n for n in modules() if n.split(".")[0] != "cli"):
        assert not outside(imported(name)) & SCREEN, name


def test_only_the_command_line_prints() -> None:
    for name in (n for n in modules() if n.split(".")[0] != "cli"):
        calls = [
            n for n in ast.walk(ast.parse(modules()[name].read_text())) if isinstance(n, ast.Call)
        ]
        assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], name


CONNECTIONS = (
    "deployment.fleet",
    "deployment.devices",
    "serving.app",
    "serving.connection",
    "console.app",
    "console.pages",
)
"""Connections of servers, nodes and devices, the HTTP API and the console's pages. Commands import
them inside functions."""


def without_connections() -> list[str]:
    return [name for name in modules() if not name.startswith(CONNECTIONS)]


def test_connections_are_imported_by_their_commands_only() -> None:
    for name in without_connections():
        found = own(imported(name, inside_functions=False))
        assert not {other for other in found if other.startswith(CONNECTIONS)}, name


def test_heavy_frameworks_are_never_imported_at_module_level() -> None:
    for name in without_connections():
        assert not outside(imported(name, inside_functions=False)) & HEAVY, name


def test_optional_packages_are_never_imported_at_module_level() -> None:
    optional = {
        "matplotlib",
        "plotly",
        "pyarrow",
        "cryptography",
        "fastapi",
        "starlette",
        "uvicorn",
        "dp_accounting",
    }
    for name in without_connections():
        assert not outside(imported(name, inside_functions=False)) & optional, name


def test_command_line_starts_without_the_library() -> None:
    """`coterie --help` reads these modules: their module-level imports delay every command."""
    light = {
        "cli.main",
        "cli.runs",
        "cli.recommend",
        "cli.record",
        "cli.api",
        "cli.data",
        "cli.algorithms",
        "cli.options",
        "cli.choose",
        "cli.compare",
        "cli.console",
        "cli.leaderboard",
        "cli.tune",
        "cli.attack",
        "cli.audit",
        "cli.disclosure",
        "cli.reproduce",
        "cli.federation",
        "cli.federation_keys",
        "cli.node",
        "cli.device",
        "cli.say",
        "core.printable",
    }
    for name in light:
        allowed = {"typer", *sys.stdlib_module_names}
        assert outside(imported(name, inside_functions=False)) <= allowed, name
        assert own(imported(name, inside_functions=False)) - {"cli"} <= light, name


def test_no_import_goes_round_in_a_circle() -> None:
    graph = {name: known(name) for name in modules()}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(modules())


def test_randomness_comes_through_one_door() -> None:
    for name, path in modules().items():
        if name != "core.streams":
            assert not re.search(
                r"default_rng|np\.random\.(?!Generator\b)|import random\b", path.read_text()
            ), name


def test_nothing_is_pickled() -> None:
    for name, path in modules().items():
        assert not outside(imported(name)) & {"pickle", "joblib", "dill", "cloudpickle"}, name
        assert "allow_pickle=True" not in path.read_text(), name


# ---- the shape of the code


def syntax_trees() -> Iterator[tuple[str, ast.Module]]:
    for name, path in modules().items():
        yield name, ast.parse(path.read_text())


def type_names(tree: ast.Module) -> Iterator[str]:
    """Classes, type aliases and type variables at module level."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z]\w*[a-z]\w*", target.id):
                yield target.id


def test_no_two_types_share_a_name() -> None:
    """Except exported scorers: an application has one of them, under one name."""
    homes: dict[str, list[str]] = {}
    for name, tree in syntax_trees():
        if name.startswith("serving.scorers."):
            continue
        for defined in type_names(tree):
            homes.setdefault(defined, []).append(name)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


def test_parallel_assignments_are_swaps() -> None:
    """`a, b = x, y` is two statements on one line, unless it swaps."""
    packed = []
    for name, tree in syntax_trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                left = sorted(ast.unparse(target) for target in node.targets[0].elts)
                if isinstance(node.value, ast.Tuple):
                    right = sorted(ast.unparse(value) for value in node.value.elts)
                    packed += [f"{name}:{node.lineno}"] if left != right else []
    assert packed == []


def test_types_are_known() -> None:
    """`Any` and `type: ignore` may only become fewer."""
    texts = [path.read_text() for path in modules().values()]
    assert sum(len(re.findall(r"\bAny\b", text)) for text in texts) < 200
    assert sum(text.count("type: ignore") for text in texts) < 10


def test_a_round_fits_on_a_page() -> None:
    assert len(modules()["federated.rounds"].read_text().splitlines()) < 150


# ---- names


def test_public_names_are_pinned() -> None:
    pinned = [
        "CoterieError",
        "Interactions",
        "Metric",
        "RankedLists",
        "Reason",
        "Recommendation",
        "Run",
        "__version__",
        "choose",
        "compare",
        "load",
        "quantise",
        "run",
    ]
    assert sorted(coterie.__all__) == pinned
    public = {name for name in vars(coterie) if not name.startswith("_")}
    submodules = {name.split(".")[0] for name in modules()}
    assert public - submodules - set(pinned) <= {"annotations", "TYPE_CHECKING", "Any"}


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert coterie.__version__ == version("coterie")


def test_tree_of_errors_is_the_one_drawn() -> None:
    """Every class stands in the drawing at the top of errors.py, below its parent."""
    drawn: dict[str, str | None] = {}
    trail: list[tuple[int, str]] = []
    for line in str(errors.__doc__).splitlines():
        if found := re.match(r"([ │├└─]*)([A-Z]\w+)(?:\s|$)", line):
            depth = len(found[1])
            name = found[2]
            if name.endswith(
                ("Error", "Name", "Extra", "Diverged", "Interrupted", "Quorum", "Spent")
            ):
                trail = [t for t in trail if t[0] < depth]
                drawn[name] = trail[-1][1] if trail else None
                trail.append((depth, name))
    classes = {
        n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception)
    }
    assert drawn == {
        n: None if c.__base__ is Exception else c.__base__.__name__ for n, c in classes.items()
    }


def test_mistakes_of_users_end_with_code_2() -> None:
    classes = [
        c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.UserError)
    ]
    assert {c.exit_code for c in classes} == {2}
    assert errors.CoterieError.exit_code == 1


# ---- quick to start


def seconds(*arguments: str) -> float:
    """Processor time of a command: the time it takes on an idle machine, also on a busy one."""

    def used() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    def once() -> float:
        start = used()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=30)
        return used() - start

    return min(once() for _ in range(5))


def test_import_takes_under_half_a_second() -> None:
    assert seconds("-c", "import coterie") < 0.5


def test_help_takes_under_half_a_second() -> None:
    assert seconds("-m", "coterie.cli.main", "--help") < 0.5


def test_the_front_page_cuts_no_sentence_short() -> None:
    call = [sys.executable, "-m", "coterie.cli.main", "--help"]
    done = subprocess.run(
        call,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert "Start with" in done.stdout
    assert "..." not in done.stdout.replace("COMMAND [ARGS]...", "")


@pytest.mark.parametrize("statement", ["import coterie", "import coterie.cli.main"])
def test_import_brings_nothing_heavy(statement: str) -> None:
    heavy = "numpy", "pandas", "numba", "scipy", "torch", "pydantic", "yaml", "matplotlib"
    program = f"{statement}; import sys; print(*[m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout.split() == []


# ---- docs


def names_in_table_rows(page: str) -> set[str]:
    """Every `name` in the first column of a table on a page of the docs."""
    rows = re.findall(r"^\|([^|]*)\|", (DOCS / page).read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_docs_name_every_algorithm(name: str) -> None:
    assert name in names_in_table_rows("algorithms.md")


@pytest.mark.parametrize("name", DATASETS)
def test_docs_name_every_dataset(name: str) -> None:
    assert name in names_in_table_rows("datasets.md")


def test_every_module_says_what_it_is() -> None:
    for name, path in modules().items():
        assert ast.get_docstring(ast.parse(path.read_text())), name
