"""A round costs memory for its cohort, not for the population."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coterie.algorithms.registry import algorithm
from coterie.core import row_versions
from coterie.core.progress import SILENT
from coterie.data import mapped_histories
from coterie.engines.local import LocalEngine
from coterie.experiments.history import TrainingHistory
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context
from coterie.types import Rows

COHORT = 50
N_ITEMS = 400
BYTES_PER_USER = 3
"""Whether a user is present, and whether its lot is low. A user's row alone has 64 bytes."""


def peak_of_a_round(name: str, settings: dict[str, Any], n_users: int, folder: Path) -> int:
    """Most bytes that a round allocates at a time, beyond those that were allocated before."""
    starts = np.arange(n_users, dtype=np.int32) % (N_ITEMS // 2)
    items = (starts[:, None] + np.array([0, 7, 90], np.int32)).reshape(-1)
    mapped_histories.write(folder, N_ITEMS, [Rows(np.arange(n_users + 1) * 3, items)])
    training = mapped_histories.training_set(folder)
    chosen = algorithm(name)
    assert isinstance(chosen.train, Federation)
    chosen_settings = federation_settings(chosen.settings.of(settings))
    world = trainer.world_of(training, chosen_settings, 0, chosen.train)
    engine = LocalEngine.over(world, training, 1)
    context = Context(0, SILENT)
    work = trainer.federated_trainer(chosen.train, world, engine, context, by_round=True)
    tracemalloc.start()
    try:
        state, costs = work.start()
        history = TrainingHistory.begin(n_users, costs)
        peaks = []
        for n in range(1, 6):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            state, costs = work.step(state, n)
            history = history.after(costs, 0.0)
            peaks.append(tracemalloc.get_traced_memory()[1] - before)
            assert costs.accepted == COHORT
    finally:
        tracemalloc.stop()
    assert int(history.selections.sum()) == 5 * COHORT
    # The first rounds allocate the second version of every table.
    return min(peaks[2:])


@pytest.mark.parametrize("name", ["fedavg", "pfpl+"])
def test_memory_of_a_round_follows_the_cohort(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_versions, "SMALL", 0)
    few, many = 20_000, 120_000
    peaks = {}
    for n_users in (few, many):
        settings: dict[str, Any] = {"users_per_round": COHORT}
        if name == "fedavg":
            settings = {"participation": COHORT / n_users}
        peaks[n_users] = peak_of_a_round(name, settings, n_users, tmp_path / str(n_users))
    assert peaks[many] - peaks[few] < BYTES_PER_USER * (many - few)
