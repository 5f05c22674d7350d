"""The registry: names, suggestions and lazy imports."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from coterie.algorithms import registry
from coterie.algorithms.algorithm import Algorithm, stepwise
from coterie.core.progress import SILENT
from coterie.core.settings import Settings
from coterie.data.training_set import TrainingSet
from coterie.errors import UnknownName
from coterie.experiments.training import fit
from coterie.federated.trainer import Context
from coterie.models.recommender import Recommender
from coterie.types import Rows


def test_the_basic_baselines_are_registered():
    assert {"random", "popular", "bpr", "gmf", "als", "ease"} <= set(registry.ALGORITHMS)


@pytest.mark.parametrize(
    ("typed", "meant"), [("popluar", "popular"), ("BPR", "bpr"), ("eas", "ease")]
)
def test_an_almost_known_algorithm_gets_a_suggestion(typed, meant):
    with pytest.raises(
        UnknownName, match=rf"unknown algorithm '{typed}'\. Did you mean '{meant}'\?"
    ):
        registry.algorithm(typed)


def test_an_unknown_algorithm_gets_the_list():
    with pytest.raises(
        UnknownName,
        match=r"unknown algorithm 'zzz'\. Known: fedavg, fedfast, .*fedals, .* and \d+ more",
    ):
        registry.algorithm("zzz")


def test_naming_algorithms_imports_none_of_them():
    code = (
        "import sys, coterie.algorithms.registry; "
        "print([m for m in sys.modules "
        "if m.split('.')[0] in ('numba', 'scipy') or m.startswith('coterie.baselines')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


@dataclass(frozen=True, slots=True)
class Heavy(Recommender):
    kind: ClassVar[str] = "heavy"
    weight: np.ndarray

    def score(self, users, items=None):
        raise NotImplementedError


def test_fit_holds_one_model_in_memory():
    """A thousand rounds of a large model must not need the memory of a thousand models."""

    def another(*_):
        return Heavy(np.zeros(1 << 17))  # 1 MiB

    no_rows = Rows.build(np.empty(0, np.int32), np.empty(0, np.int32), 2)
    heavy = Algorithm(
        "heavy", Settings, stepwise(another, another), state=Heavy, steps=lambda s: 40
    )
    tracemalloc.start()
    fit(heavy, TrainingSet(2, 2, no_rows, no_rows, None), Settings(), Context(0, SILENT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 2**20
