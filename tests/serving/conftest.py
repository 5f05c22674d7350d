"""Small runs that are served and exported."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from every_algorithm import two_steps

import coterie

pytest.importorskip("fastapi")


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`trained("fedals", seed=2)`: the folder of a run, which no test may change."""
    known: dict[str, Path] = {}

    def train(name: str, **settings: object) -> Path:
        key = f"{name} {settings}"
        if key not in known:
            known[key] = tmp_path_factory.mktemp("run") / "run"
            small = {"n_users": 60, "n_items": 80, "mean_interactions": 9}
            coterie.run(name, out=known[key], **two_steps(name) | small | settings)
        return known[key]

    return train


@pytest.fixture
def fedals(trained: Callable[..., Path], tmp_path: Path) -> Path:
    """A run folder of a test's own."""
    return Path(shutil.copytree(trained("fedals"), tmp_path / "fedals"))
