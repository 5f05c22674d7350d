"""Item tables of one's own: what PFedRec, FedRAP and GPFedRec share.

Every client trains item rows of its own and recommends by them, and uploads the changes of the rows
of its samples. Learning rates of item rows are so large that a change may exceed the range of other
algorithms: updates are in units that follow from them (`unit_for`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from pydantic import Field

from coterie.algorithms import fedavg
from coterie.algorithms.local.samples import Samples, draw
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import streams
from coterie.errors import ConfigError
from coterie.federated.federation import AnyWorld, NodeData, Sums, World
from coterie.models.additive_scores import AdditiveScores
from coterie.models.factors import rows
from coterie.models.new_user import NewUser
from coterie.models.personal_scores import PersonalScores
from coterie.types import Floats, Ints, Longs, Message, Updates

NEW_USER_REG = 1e-2
"""Regularisation of the score function that a new user fits."""
STEPS_IN_RANGE = 16
"""An entry of an update may be as large as half the item learning rate: `unit_for`."""


class TableSettings(CohortSettings):
    """Settings of algorithms whose clients train item tables of their own; all users take part."""

    participation: float = Field(1.0, gt=0, le=1)
    """Share of the users in the cohort of a round."""
    embedding_size: int = Field(32, ge=1, le=4096)
    """Length of every item row, and of what a client multiplies it with."""
    local_epochs: int = Field(1, ge=1)
    """Passes of a client over its own data in a round."""
    batch_size: int = Field(256, ge=1)
    """Samples per local step (their mean gradient)."""
    negatives: int = Field(4, ge=1)
    """Negatives drawn per positive."""
    start_scale: float = Field(1.0, ge=0)
    """Standard deviation of the initial rows."""
    max_memory: float = Field(1.0, gt=0)
    """GiB that the tables of all users may take in a simulation; a round needs a few times it."""


def start_rows(world: World[TableSettings], what: str = "items") -> Floats:
    s = world.settings
    return rows(world.n_items, s.embedding_size, world.seed, what, s.start_scale)


def check_memory(world: World[TableSettings], tables: str, per_item: int, remedy: str) -> None:
    """Refuse a run whose tables need too much: `per_item` numbers for every user and item."""
    needed = 4 * world.n_users * world.n_items * per_item / 2**30
    if needed > world.settings.max_memory:
        raise ConfigError(
            f"{tables} of {world.n_items:,} items take {needed:.1f} GiB for "
            f"{world.n_users:,} users; max_memory allows {world.settings.max_memory:g}. "
            f"Raise it with --set max_memory=GIB, or {remedy}."
        )


def start_score_function(d: int, seed: int) -> Floats:
    """(d + 1,) uniform from -1 / sqrt(d) to 1 / sqrt(d), as PyTorch starts a linear layer."""
    uniform = streams.uniform(streams.keys(seed, "score function", last=np.arange(d + 1)))
    return ((2 * uniform - 1) / math.sqrt(d)).astype(np.float32)


def draw_samples(world: AnyWorld, message: Message, node: NodeData) -> Samples:
    """The samples of a cohort. Ratings are not used: what a user rated is a positive."""
    implicit = replace(node, training=replace(node.training, ratings=None))
    return draw(world, message.users, message.round, implicit)


def updates_of(message: Message, samples: Samples, changes: Ints, dense: Ints) -> Updates:
    """The updates of a cohort: changes of the rows of its samples, and `dense` (n, ...)."""
    return Updates(
        users=message.users,
        samples=samples.counts,
        offsets=samples.offsets,
        items=samples.items,
        item_rows=changes,
        user_rows=np.empty((len(message.users), 0), np.int32),
        dense=dense,
    )


def nothing_dense(message: Message) -> Ints:
    return np.empty((len(message.users), 0), np.int32)


def unit_for(item_learning_rate: float) -> float:
    """What 1.0 stands for in an update: a step moves an entry by a share of the learning rate.

    A power of two, so that scaling is exact: updates may be half the item learning rate.
    """
    steps = item_learning_rate / STEPS_IN_RANGE
    return 2.0 ** math.ceil(math.log2(steps)) if steps > 1 else 1.0


def add_up(world: AnyWorld, message: Message, updates: Updates) -> Sums:
    """sum over clients of the changes of item rows, and how many clients have each"""
    one_each: Longs = np.ones(len(updates), np.int64)
    return fedavg.sum_items(
        world.n_items, updates.offsets, updates.items, updates.item_rows, one_each
    )


def score_new_user(
    model: PersonalScores | AdditiveScores, user: NewUser, settings: TableSettings
) -> Floats:
    """A new user fits a score function to the server's item rows, and sends nothing."""
    return model.score_new_user(user.items, settings.negatives, NEW_USER_REG)
