"""Fixtures shared by several test files."""

from __future__ import annotations

from pathlib import Path

import pytest

from coterie.data.fetch import find_local
from coterie.data.interactions import Interactions
from coterie.data.synthetic import Synthetic, generate

SHARED_DATASETS = Path(__file__).parents[2] / "shared" / "datasets"
SECOND_TOWERS = ("sttfedrec-clsm", "fl-clsm")
"""Algorithms that differ from their DSSM versions in the network alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of rounds and federations take the second network only among the long tests."""
    for item in items:
        in_rounds = item.path.parent.name in ("federated", "secagg", "deployment")
        if in_rounds and any(name in item.name for name in SECOND_TOWERS):
            item.add_marker(pytest.mark.long)


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch):
    """`real_data("ml-100k")` makes a real dataset loadable by name, or skips the test."""

    def need(name: str, *signature: str) -> None:
        if (SHARED_DATASETS / name).is_dir():
            monkeypatch.setenv("COTERIE_DATA", str(SHARED_DATASETS))
        elif not find_local(name, signature):
            pytest.skip(
                f"the dataset {name} is neither in {SHARED_DATASETS} nor in the data folder"
            )

    return need


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The folder of real datasets next to the checkout; it may not exist."""
    return SHARED_DATASETS


@pytest.fixture(scope="session")
def people() -> Interactions:
    """Two hundred synthetic users: enough to learn from, small enough for every test."""
    return generate(Synthetic(n_users=200, n_items=120, n_groups=4, mean_interactions=20))


@pytest.fixture(scope="session")
def few_people() -> Interactions:
    """Forty users: under secure aggregation each exchanges shares with all others."""
    return generate(Synthetic(n_users=40, n_items=30, n_groups=2, mean_interactions=8))
