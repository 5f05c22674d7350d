"""Local training on a client, one file per model."""

from __future__ import annotations

import importlib

from coterie.algorithms.local.learner import Learner
from coterie.errors import UnknownName

LEARNERS: dict[str, str] = {
    "gmf": "coterie.algorithms.local.gmf",
    "mlp": "coterie.algorithms.local.neumf",
    "neumf": "coterie.algorithms.local.neumf",
}


def learner(model: str) -> Learner:
    """The learner of a model. Its file is imported now and not before."""
    if model not in LEARNERS:
        raise UnknownName("model", model, LEARNERS)
    chosen = importlib.import_module(LEARNERS[model]).LEARNER
    assert isinstance(chosen, Learner)
    return chosen
