"""Fixtures that several test files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.data.fetch import here
from coterie.data.interactions import Interactions
from coterie.data.synthetic import Synthetic, generate

BESIDE = Path(__file__).parents[2] / "shared" / "datasets"


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch):
    """`real_data("ml-100k")` makes a real dataset loadable by name, or skips the test, saying so."""

    def need(name: str, *signature: str) -> None:
        if (BESIDE / name).is_dir():
            monkeypatch.setenv("COTERIE_DATA", str(BESIDE))
        elif not here(name, signature):
            pytest.skip(f"the dataset {name} is neither in {BESIDE} nor in the data folder")

    return need


@pytest.fixture(scope="session")
def beside() -> Path:
    """Where real data lies beside the checkout, if it does."""
    return BESIDE


@pytest.fixture(scope="session")
def people() -> Interactions:
    """Two hundred made-up people: enough to learn from, small enough for every test."""
    return generate(Synthetic(n_users=200, n_items=120, n_groups=4, mean_interactions=20))
