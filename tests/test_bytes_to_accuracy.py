"""The scripts behind docs/sums.md: bytes of a client, costs to a target, and the page."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from coterie.core.progress import SILENT
from coterie.experiments.config import Experiment
from coterie.experiments.experiment import run
from coterie.experiments.preparation import prepare

ROOT = Path(__file__).parents[1]
SMALL = {"n_users": 60, "n_items": 40, "mean_interactions": 10, "n_groups": 3}
METRIC = "NDCG@10"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import bytes_to_accuracy  # type: ignore[import-not-found]
    import sums_page  # type: ignore[import-not-found]

    return bytes_to_accuracy, sums_page


# ---- bytes under secure aggregation


RUNS = [
    ("fedals", {"embedding_size": 8, "rounds": 2}),
    ("fedals", {"embedding_size": 8, "block_size": 4, "rounds": 4}),
    ("fedals", {"embedding_size": 8, "block_size": 2, "rounds": 3}),
    ("fedease", {}),
    ("fedslim", {}),
    ("fedfast", {"embedding_size": 4, "rounds": 3, "participation": 0.5}),
    ("fedavg", {"embedding_size": 4, "rounds": 3, "participation": 0.5}),
]


# Clients of `secagg` draw their holders, so that its bytes depend on chance.
@pytest.mark.parametrize(("protocol", "tolerance"), [("ring", 1e-6), ("secagg", 0.03)])
@pytest.mark.parametrize(("name", "settings"), RUNS)
def test_bytes_are_those_that_a_run_counts(
    scripts: tuple[ModuleType, ModuleType],
    name: str,
    settings: dict[str, Any],
    protocol: str,
    tolerance: float,
) -> None:
    pytest.importorskip("cryptography")
    bytes_to_accuracy, _ = scripts
    keys = SMALL | settings | {"algorithm": name, "evaluate_every": 1, "curve_users": 0}
    keys |= {"popularity_prior": 0.0, "secure_aggregation": protocol}
    experiment = Experiment.of(keys)
    training = prepare(experiment, None, SILENT).training
    clients = training.n_users
    traffic = bytes_to_accuracy.secure_traffic(experiment, training)
    for line in run(experiment).curve:
        replies = line["updates"] / clients
        up = traffic.before.up + replies * traffic.message.up
        down = traffic.before.down + replies * traffic.message.down
        assert up * clients == pytest.approx(line["bytes_up"], rel=tolerance)
        assert down * clients == pytest.approx(line["bytes_down"], rel=tolerance)


def test_a_block_sends_fewer_numbers_of_an_item(scripts: tuple[ModuleType, ModuleType]) -> None:
    """k (k + 1) / 2 + k + 1 numbers an item, and those of all users, of 8 bytes."""
    bytes_to_accuracy, _ = scripts

    def up(block_size: int) -> float:
        keys = SMALL | {"algorithm": "fedals", "embedding_size": 8, "block_size": block_size}
        experiment = Experiment.of(keys)
        training = prepare(experiment, None, SILENT).training
        return float(bytes_to_accuracy.secure_traffic(experiment, training).message.up)

    items = prepare(Experiment.of(SMALL | {"algorithm": "fedals"}), None, SILENT).training.n_items
    assert up(0) - up(4) == 8 * items * ((36 + 8) - (10 + 4))


# ---- costs to a target


def line(round_: int, value: float, up: float) -> dict[str, float]:
    costs = {"up": up, "down": 10 * up, "secure up": 4 * up, "secure down": 10 * up}
    return {"round": round_, METRIC: value, "messages": round_, **costs}


def runs_of(name: str, *curves: list[dict[str, float]]) -> list[dict[str, Any]]:
    same = {"dataset": "d", "protocol": "p", "part": "test", "clients": 2}
    same |= {"model bytes": 8, "changed settings": {}}
    return [
        {"name": name, "seed": seed, "curve": curve} | same for seed, curve in enumerate(curves)
    ]


def test_costs_to_the_target_are_of_the_mean_curve(
    scripts: tuple[ModuleType, ModuleType],
) -> None:
    _, sums_page = scripts
    first = [line(1, 0.50, 100), line(2, 0.56, 200), line(3, 0.57, 300)]
    second = [line(1, 0.51, 100), line(2, 0.53, 200), line(3, 0.57, 300)]
    slow = [line(1, 0.40, 1000), line(2, 0.52, 3000)]
    found = sums_page.summary([*runs_of("fedals 64", first, second), *runs_of("fedfast", slow)])
    fedals, fedfast = found
    assert fedals["rounds to the target, by seed"] == [2, 3]
    # The mean of the second round is 0.545.
    assert fedals["to the target"]["round"] == 3
    assert fedals["of fedfast"]["up"] == 0.1
    assert fedals["of fedfast"]["messages"] == 1.5
    assert fedfast["to the target"] is None
    assert fedfast["of fedfast"] is None
    assert fedfast["best"] == 0.52


def test_methods_without_a_run_keep_their_stored_entry(
    scripts: tuple[ModuleType, ModuleType],
) -> None:
    _, sums_page = scripts
    slow = runs_of("fedfast", [line(1, 0.50, 1000)])
    stored = sums_page.summary([*runs_of("fedals 64", [line(1, 0.56, 100)]), *slow])
    assert sums_page.summary([], stored) == stored
    again = runs_of("fedals 64", [line(1, 0.57, 200)])
    new = runs_of("fedslim", [line(1, 0.58, 50)])
    found = sums_page.summary([*again, *new], stored)
    # In the order of the runs of bytes_to_accuracy.py.
    assert [one["name"] for one in found] == ["fedslim", "fedals 64", "fedfast"]
    assert [one["best"] for one in found] == [0.58, 0.57, 0.50]
    assert found[1]["of fedfast"]["up"] == 0.2
    assert found[2] == stored[1]


def test_a_line_with_blocks_has_the_colour_of_the_one_without(
    scripts: tuple[ModuleType, ModuleType],
) -> None:
    _, sums_page = scripts
    curve = [line(1, 0.50, 100), line(2, 0.56, 200)]
    names = ("fedals 64", "fedals 64/16", "fedfast")
    runs = [one for name in names for one in runs_of(name, curve)]
    drawn = sums_page.figure(sums_page.summary(runs))
    whole, blocks, fedfast, _ = range(4)
    assert drawn.series[blocks].name == "fedals 64/16"
    assert drawn.colour(blocks) == drawn.colour(whole) != drawn.colour(fedfast)
    legend = sums_page.pictures(sums_page.summary(runs))["bytes-legend.svg"]
    assert legend.count('stroke-dasharray="6 3"') == 1


# ---- the page


def test_the_page_shows_what_is_stored(scripts: tuple[ModuleType, ModuleType]) -> None:
    """Repair: python benchmarks/sums_page.py."""
    _, sums_page = scripts
    methods = json.loads(sums_page.STORED.read_text())
    page = sums_page.PAGE.read_text()
    assert sums_page.with_tables(page, sums_page.tables(methods)) == page
    for file, svg in sums_page.pictures(methods).items():
        assert (sums_page.STORED.parent / file).read_text() == svg
        assert f"assets/{file}" in page
