"""What a node checks of a server's message before it trains on it or evaluates it.

These are checks of form. A server can craft models that pass them: docs/federation.md says what it
learns then, and what limits it.
"""

from __future__ import annotations

import numpy as np

from coterie.deployment.enrolment import FederationTerms
from coterie.deployment.node_policy import NodePolicy
from coterie.errors import PolicyError
from coterie.federated.federation import AnyWorld
from coterie.federated.trainer import n_rounds
from coterie.types import Message

LARGEST = 2.0**20
"""Largest number of a model. Training keeps embeddings and weights below 100."""
FEWEST_ROWS = 3
"""Rows of a table for which it matters that all but one are zero."""


def refuse_crafted(message: Message, policy: NodePolicy) -> None:
    """Reject arrays that are not numbers, or whose rows are made to isolate an item or a user."""
    for name, array in (message.common | message.own).items():
        _refuse_extreme(name, array)
    for name, array in message.common.items():
        _refuse_isolating(name, array, 2, "item")
    for name, array in message.own.items():
        _refuse_isolating(name, array, policy.smallest_evaluation_group, "user")


def refuse_beyond_terms(message: Message, world: AnyWorld, terms: FederationTerms) -> None:
    """Reject a round that the terms do not have."""
    total = n_rounds(terms.federation, world)
    if message.round >= total:
        raise PolicyError(
            f"the server of run {terms.run} sends round {message.round + 1:,}; its terms have "
            f"{total:,} rounds. Ask its owner why."
        )


def refuse_unannounced_evaluation(t: int, world: AnyWorld, terms: FederationTerms) -> None:
    """Reject an evaluation during training after a round for which the terms have none."""
    course = terms.experiment.course
    every = course.evaluate_every
    is_last = bool(course.patience) and t == n_rounds(terms.federation, world)
    if is_last or (every and t % every == 0):
        return
    raise PolicyError(
        f"the server of run {terms.run} asks for metrics after round {t:,}; its terms have "
        f"evaluate_every: {every}. Ask its owner why."
    )


def _refuse_extreme(name: str, array: np.ndarray) -> None:
    if array.dtype.kind != "f" or not array.size:
        return
    # NaN is in no order, so that this also finds arrays that are not finite.
    largest = float(np.abs(array).max())
    if not largest <= LARGEST:
        raise PolicyError(
            f"the array {name} of a model holds {largest:g}; expected numbers up to {LARGEST:g}. "
            "The server's training diverges, or the server made the model up: ask its owner."
        )


def _refuse_isolating(name: str, array: np.ndarray, least: int, what: str) -> None:
    """Reject tables in which most rows are zero and a few are not: the others drop out of sums."""
    if array.dtype.kind != "f" or array.ndim < 2 or len(array) < FEWEST_ROWS:
        return
    filled = int(np.count_nonzero(array.reshape(len(array), -1).any(axis=1)))
    if 0 < filled < min(least, len(array)):
        raise PolicyError(
            f"the table {name} of a model has {len(array):,} rows, all zero but {filled}, so that "
            f"replies are about one {what}; expected rows for all. Ask the server's owner why."
        )
