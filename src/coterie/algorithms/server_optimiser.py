"""Optimisers of a server that take the mean change of a round as a negative gradient (FedOpt).

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive federated optimization.
ICLR 2021, Algorithm 2, with delta the mean change of the clients' copies:

    sgd     x <- x + eta delta
    adam    m <- beta1 m + (1 - beta1) delta;    v <- beta2 v + (1 - beta2) delta^2
            x <- x + eta m / (sqrt(v) + tau),    without bias correction
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from pydantic import Field

from coterie.algorithms.local.settings import CohortSettings
from coterie.types import Doubles, Floats

BETA1 = 0.9
BETA2 = 0.99
TAU = 1e-3


class ServerOptimiser(CohortSettings):
    server_optimizer: Literal["sgd", "adam"] = "sgd"
    """Optimiser of the server, which takes the mean change of a round as its direction."""
    server_learning_rate: float = Field(1.0, gt=0)
    """Learning rate of the server; 1 with sgd is plain averaging."""


class Optimised(NamedTuple):
    """Parameters that the server moves, with Adam's moments; those of SGD stay zero."""

    values: Floats
    first_moment: Floats
    second_moment: Floats

    @classmethod
    def begin(cls, values: Floats) -> Optimised:
        return cls(values, np.zeros_like(values), np.zeros_like(values))


def server_step(settings: ServerOptimiser, before: Optimised, change: Doubles) -> Optimised:
    """The parameters after a step along `change`, computed in double precision."""
    eta = settings.server_learning_rate
    if settings.server_optimizer == "sgd":
        return before._replace(values=(before.values + eta * change).astype(np.float32))
    m = BETA1 * before.first_moment + (1 - BETA1) * change
    v = BETA2 * before.second_moment + (1 - BETA2) * change**2
    values = before.values + eta * m / (np.sqrt(v) + TAU)
    return Optimised(*(part.astype(np.float32) for part in (values, m, v)))
