"""How often each user is asked to train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie.core.progress import SILENT
from coterie.federated import trainer
from coterie.federated.trainer import Context
from coterie.reproduce.device_costs import prepared
from coterie.reproduce.items import Rows
from coterie.types import Ints


def how_often(names: Sequence[str], dataset: str, values: Mapping[str, Any]) -> Rows:
    return {name: _told(times_asked(name, dataset, values)) for name in names}


def times_asked(name: str, dataset: str, values: Mapping[str, Any]) -> Ints:
    """By user, over a whole run."""
    _, federation, world, engine = prepared(name, dataset, values)
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    times = np.zeros(world.n_users, np.int32)
    state, _ = work.start()
    for n in range(1, world.settings.rounds + 1):
        state, costs = work.step(state, n)
        np.add.at(times, costs.users, 1)
    return times[world.members]


def _told(times: Ints) -> dict[str, float]:
    return {
        "least": float(times.min()),
        "most": float(times.max()),
        "deviation": round(float(times.std()), 2),
    }
