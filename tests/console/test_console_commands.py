"""Command lines on a page make what is on the page."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from coterie.cli.compare import split_settings
from coterie.console.commands import (
    assignment,
    changes,
    compare_options,
    run_options,
    shown_command,
)
from coterie.experiments.config import Experiment, parse_assignments


def parsed(options: list[str]) -> Experiment:
    """The experiment that `coterie run` makes of its arguments."""
    algorithm, *rest = options
    values: dict[str, object] = {"algorithm": algorithm}
    pairs = [rest[n + 1] for n, option in enumerate(rest) if option == "--set"]
    for option in rest:
        for name in ("dataset", "protocol", "seed"):
            if option.startswith(f"--{name}="):
                text = option.partition("=")[2]
                values[name] = int(text) if name == "seed" else text
    return Experiment.of(values | parse_assignments(pairs))


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm": "fedfast"},
        {"algorithm": "fedfast", "seed": 3, "protocol": "holdout"},
        {"algorithm": "fedfast", "layers": [8, 4], "discount": "inverse"},
        {"algorithm": "fedfast", "n_users": 300, "learning_rate": 0.5},
        {"algorithm": "bpr", "cutoffs": [5, 10], "validation": True, "patience": 3},
        {"algorithm": "fcf", "epsilon": 2.0, "secure_aggregation": "secagg"},
        {"algorithm": "popular", "dataset": "a b;rm -rf.csv", "columns": {"user_id": "a,b=c"}},
        {"algorithm": "popular", "dataset": "x.csv", "encoding": "utf-16", "delimiter": "tab"},
        {"algorithm": "popular", "dataset": "x.csv", "dataset_name": "<b>'\"$(id)"},
        {"algorithm": "popular", "dataset": "x.csv", "columns": {"user_id": "12", "item_id": "no"}},
    ],
)
def test_a_command_repeats_its_experiment(values: dict[str, object]) -> None:
    experiment = Experiment.of(values)
    options = run_options(experiment)
    assert shlex.split(shown_command(options)) == ["coterie", *options]
    assert parsed(options) == experiment


def test_a_command_has_no_defaults() -> None:
    assert run_options(Experiment.of({"algorithm": "fedfast"})) == [
        "fedfast",
        "--dataset=synthetic",
    ]
    small = Experiment.of({"algorithm": "fedfast", "n_users": 300})
    # The settings tuned for 1,000 users do not count for 300: only the number is told.
    assert changes(small) == {"n_users": 300}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "k=5"),
        (0.5, "k=0.5"),
        (True, "k=true"),
        (None, "k="),
        ("exp", "k=exp"),
        ("12", 'k="12"'),
        ("no", 'k="no"'),
        ("", 'k=""'),
        ("a: b", 'k="a: b"'),
        ([1, 2], "k=[1, 2]"),
        ({"a": "b"}, 'k={"a": "b"}'),
        (["😀"], 'k=["😀"]'),
    ],
)
def test_an_assignment_reads_back(value: object, text: str) -> None:
    assert assignment("k", value) == text
    assert parse_assignments([text]) == {"k": value}


def test_a_comparison_is_repeated_with_labels() -> None:
    few = Experiment.of({"algorithm": "fedfast", "clusters": 5, "cutoffs": [5]})
    other = Experiment.of({"algorithm": "fedavg", "cutoffs": [5]})
    options = compare_options({"fedfast, clusters 5": few, "fedavg": other}, [1, 0])
    assert options == [
        "compare",
        "fedfast, clusters 5=fedfast",
        "fedavg",
        "--dataset=synthetic",
        "--seeds=2",
        "--set",
        "cutoffs=[5]",
        "--set",
        "fedfast, clusters 5.clusters=5",
    ]
    common, own = split_settings(options[6::2], ["fedfast, clusters 5", "fedavg"])
    assert common == {"cutoffs": [5]}
    assert own == {"fedfast, clusters 5": {"clusters": 5}, "fedavg": {}}


def test_other_seeds_have_no_command_of_compare() -> None:
    experiment = Experiment.of({"algorithm": "fedavg"})
    assert compare_options({"fedavg": experiment}, [0, 2]) is None


def test_a_run_of_a_file_is_repeated_from_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "my data.csv"
    path.write_text("user_id,item_id\n1,2\n")
    options = run_options(Experiment.of({"algorithm": "popular", "dataset": str(path)}))
    assert options == ["popular", f"--dataset={path}"]
