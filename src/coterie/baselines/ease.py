"""EASE: a linear item-to-item model in closed form, and one of the strongest simple baselines.

Steck. Embarrassingly shallow autoencoders for sparse data. WWW 2019.

With G = X^T X + reg I and P = G^-1, the weights are B = -P / diag(P), zero on the diagonal; scores
are X B. LAPACK computes the inverse, so bits repeat on one machine with one number of threads.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm, at_once, score_history
from coterie.core.settings import SearchSpace, Settings
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.federated.trainer import Context
from coterie.models.linear import ItemWeights
from coterie.types import Floats


class EASE(Settings):
    search_space: ClassVar[SearchSpace] = {"reg": (30.0, 5000.0)}

    reg: float = Field(500.0, gt=0)
    """Regularisation of the item-to-item weights."""
    max_memory: float = Field(8.0, gt=0)
    """GiB that the item-by-item matrices may take."""


def train(training: TrainingSet, settings: EASE, context: Context) -> ItemWeights:
    # G, P and B, in double precision.
    needed = 3 * 8 * training.n_items**2 / 2**30
    if needed > settings.max_memory:
        raise ConfigError(
            f"EASE needs about {needed:.1f} GiB for {training.n_items:,} items; "
            f"max_memory allows {settings.max_memory:g}. "
            "Raise it with --set max_memory=GIB, or filter items with --set core=5."
        )
    return ItemWeights(
        solve(training, settings.reg), training.positives.offsets, training.positives.items
    )


def solve(training: TrainingSet, reg: float) -> Floats:
    """(items, items) the weights B."""
    from scipy import linalg, sparse

    X = sparse.csr_matrix(
        (np.ones(len(training)), training.positives.items, training.positives.offsets),
        shape=(training.n_users, training.n_items),
    )
    G = (X.T @ X).toarray()
    G[np.diag_indices_from(G)] += reg
    P = linalg.inv(G, overwrite_a=True, check_finite=False)
    B = P / -np.diag(P)
    B[np.diag_indices_from(B)] = 0
    return np.ascontiguousarray(B, np.float32)


ALGORITHM = Algorithm(
    "closed-form linear item-to-item model",
    EASE,
    at_once(train),
    state=ItemWeights,
    steps=lambda settings: 1,
    paper="Steck 2019",
    score_new_user=score_history,
)
