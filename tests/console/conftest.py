"""Finished runs for the console: two methods with two seeds each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from consoles import Console, serving

import coterie

SMALL = {"n_users": 60, "n_items": 40, "n_groups": 2, "mean_interactions": 10}


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("console") / "runs"
    for seed in (0, 1):
        coterie.run("fedavg", rounds=4, seed=seed, out=folder / f"fedavg-{seed}", **SMALL)
        coterie.run("popular", seed=seed, out=folder / f"popular-{seed}", **SMALL)
    return folder


@pytest.fixture(scope="module")
def console(folder: Path) -> Iterator[Console]:
    """The server over the folder of a file of tests."""
    with serving(folder) as found:
        yield found
