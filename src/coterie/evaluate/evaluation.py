"""A model judged by a protocol, and beside it by full ranking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.data.interactions import Interactions
from coterie.evaluate.candidates import Candidates
from coterie.evaluate.metrics import overall, per_user
from coterie.evaluate.protocols import Protocol
from coterie.evaluate.ranking import Ranks, rank_all, rank_candidates
from coterie.models.recommender import Recommender
from coterie.progress import SILENT, Watch
from coterie.splits import Split
from coterie.types import Doubles, Ints, Rows


@dataclass(frozen=True, slots=True)
class Evaluation:
    metrics: dict[str, float]
    """By the protocol."""
    full: dict[str, float]
    """By full ranking."""
    users: Ints
    table: dict[str, Doubles]
    """Per user: the protocol's metrics, and `full:` those of full ranking where they differ."""


def evaluate(
    model: Recommender, split: Split, protocol: Protocol, candidates: Candidates | None, watch: Watch = SILENT
) -> Evaluation:
    """Judge on the test part; items of the training and validation parts are not recommended again."""
    k = max(protocol.cutoffs)
    popularity = np.bincount(split.train.items, minlength=split.train.n_items)
    wanted = split.test.rows
    with watch.task("Evaluating", int(np.count_nonzero(wanted.counts))) as advance:
        whole = rank_all(model, split.seen(), wanted, split.test.n_items, k, advance)
    full_table = per_user(whole, protocol.cutoffs)
    full = means(full_table) | overall(whole, protocol.cutoffs, popularity, split.train.n_users)
    if candidates is None:
        return Evaluation(full, full, whole.users, full_table)
    table = per_user(rank_candidates(model, candidates.by_user(), k), protocol.cutoffs)
    both = table | {f"full:{name}": values for name, values in full_table.items()}
    return Evaluation(means(table), full, whole.users, both)


def quick(
    model: Recommender, protocol: Protocol, seen: Rows, held: Interactions, candidates: Candidates | None
) -> dict[str, float]:
    """The protocol's accuracy alone, for a curve while training."""
    k = max(protocol.cutoffs)
    ranks: Ranks = (
        rank_all(model, seen, held.rows, held.n_items, k)
        if candidates is None
        else rank_candidates(model, candidates, k)
    )
    return means(per_user(ranks, protocol.cutoffs))


def means(table: dict[str, Doubles]) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in table.items()}
