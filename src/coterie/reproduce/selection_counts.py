"""How often each user is selected to train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.core.progress import SILENT
from coterie.federated import trainer
from coterie.federated.trainer import Context
from coterie.reproduce.device_costs import prepared
from coterie.reproduce.items import MeasuredRows
from coterie.types import Ints


def selection_spread(
    names: Sequence[str], dataset: str, settings: Mapping[str, object]
) -> MeasuredRows:
    """Smallest, largest and standard deviation of the users' selection counts, by algorithm."""
    return {name: _spread(selection_counts(name, dataset, settings)) for name in names}


def selection_counts(name: str, dataset: str, settings: Mapping[str, object]) -> Ints:
    """How often each user is selected over a whole run."""
    _, federation, world, engine = prepared(name, dataset, settings)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    counts = np.zeros(world.n_users, np.int32)
    state, _ = work.start()
    for n in range(1, world.settings.rounds + 1):
        state, costs = work.step(state, n)
        np.add.at(counts, costs.users, 1)
    return counts[world.members]


def _spread(counts: Ints) -> dict[str, float]:
    return {
        "minimum": float(counts.min()),
        "maximum": float(counts.max()),
        "deviation": round(float(counts.std()), 2),
    }
