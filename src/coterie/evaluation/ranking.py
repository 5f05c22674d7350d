"""Ranks of the relevant items, one block of users at a time.

Ties are recorded as ties and never broken in a model's favour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from coterie import kernels
from coterie.core import parallel
from coterie.core.progress import Advance
from coterie.errors import DataError, Diverged
from coterie.evaluation.candidates import Candidates
from coterie.models.recommender import Recommender, pick
from coterie.types import Bools, Floats, Ints, Longs, Rows

BLOCK_CELLS = 1 << 20
"""Scores in a block."""
WAVE = 4
"""Blocks held at a time; with eight the allocator returns their memory to the system every time."""
GATHERED = 16
"""About how many values a model gathers for one candidate's score."""
MANY = 512
"""Above this number of candidates, scoring all items in one product is faster than gathering."""
COLUMN_IS_ITEM: Ints = np.empty((0, 0), np.int32)
"""Tells the kernel that column j of the scores is item j."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """For every relevant item, the candidates that score higher and equal (itself included)."""

    users: Ints  # (tested,)
    candidates: Longs  # (tested,) 0 for a user whom the model does not serve
    relevant: Longs  # (tested,)
    owner: Longs  # (relevant items,) index into `users`
    above: Longs  # (relevant items,)
    tied: Longs  # (relevant items,)
    top: Ints
    """(tested, k) recommended items, ties in item order; -1 pads shorter lists."""

    @property
    def served(self) -> Bools:
        return self.candidates > 0


@dataclass(frozen=True, slots=True)
class Scored:
    """Scores of a block of users: one row per user, one column per item or candidate."""

    users: Ints
    served: Bools
    scores: Floats
    excluded: Rows
    """Columns that are not candidates."""
    wanted: Rows
    """Columns of the relevant items."""
    items: Ints | None = None
    """The item of every column; None if column j is item j."""


def rank_all(
    model: Recommender,
    seen: Rows,
    wanted: Rows,
    n_items: int,
    k: int,
    advance: Advance | None = None,
) -> Ranks:
    """Rank every user's relevant items among all items that the user has not seen."""

    def scored(users: Ints) -> Scored:
        return Scored(
            users,
            model.serves(users),
            model.score(users),
            seen.of_users(users),
            wanted.of_users(users),
        )

    return _in_blocks(scored, np.flatnonzero(wanted.counts).astype(np.int32), n_items, k, advance)


def rank_candidates(model: Recommender, candidates: Candidates, k: int) -> Ranks:
    """Rank every user's relevant items among the user's own candidates."""

    def scored(block: Ints) -> Scored:
        users = candidates.users[block]
        items = candidates.items[block]
        relevant = candidates.relevant[block]
        rows, columns = np.nonzero(items < 0)
        padding = Rows.build(rows.astype(np.int32), columns.astype(np.int32), len(users))
        first = np.flatnonzero(np.arange(items.shape[1]) < relevant[:, None]) % items.shape[1]
        wanted = Rows(np.concatenate([[0], np.cumsum(relevant)]), first.astype(np.int32))
        scores = pick(model.score(users), items) if many else model.score(users, items)
        return Scored(users, model.serves(users), scores, padding, wanted, items)

    many = candidates.items.shape[1] > MANY
    rows = np.arange(len(candidates.users), dtype=np.int32)
    return _in_blocks(scored, rows, candidates.items.shape[1] * GATHERED, k)


def best_lists(model: Recommender, users: Ints, seen: Rows, k: int) -> tuple[Ints, Floats]:
    """The k best unseen items of every given user, best first, and their scores.

    Shorter lists are padded with -1; a user whom the model does not serve has an empty one. For
    many users this is faster than `best_items`.
    """
    kernels.load("ranking")
    nothing = Rows(np.zeros(len(users) + 1, np.int64), np.empty(0, np.int32))
    scores = model.score(users)
    block = Scored(users, model.serves(users), scores, seen.of_users(users), nothing)
    top = _rank_block(block, k).top
    return top, np.take_along_axis(scores, np.maximum(top, 0), axis=1)


def best_items(scores: Floats, seen: Ints, k: int) -> Ints:
    """The k best unseen items of one user, best first, ties in item order; fewer if fewer are left.

    NumPy sorts the single row: loading the ranking kernel takes a second, too long for one
    recommendation.
    """
    # Seen items are lowered, not taken out: building the list of the others takes longer.
    unseen_scores = finite(scores).astype(np.result_type(scores, np.float32))
    unseen_scores[seen] = -np.inf
    n_items = len(unseen_scores)
    enough = np.arange(n_items)
    if k < n_items:
        # Sort only the items that can be among the k best.
        threshold = np.partition(unseen_scores, n_items - k)[n_items - k]
        enough = np.flatnonzero(unseen_scores >= threshold)
    best = enough[np.argsort(-unseen_scores[enough], kind="stable")[:k]]
    return best[unseen_scores[best] > -np.inf].astype(np.int32)


def finite(scores: Floats) -> Floats:
    """The scores, or an error: a NaN score must never count as a hit."""
    if not np.isfinite(scores).all():
        bad = scores[~np.isfinite(scores)][0]
        raise Diverged(
            f"training diverged: a score is {bad}; expected finite scores. "
            "Lower learning_rate or raise reg."
        )
    return scores


def _rank_block(block: Scored, k: int) -> Ranks:
    n = len(block.users)
    excluded = block.excluded
    wanted = block.wanted
    scores = np.ascontiguousarray(block.scores, np.float32)
    items = COLUMN_IS_ITEM if block.items is None else block.items
    above = np.empty(len(wanted.items), np.int64)
    tied = np.empty(len(wanted.items), np.int64)
    top = np.empty((n, k), np.int32)
    sound = np.empty(n, np.bool_)
    kernels.load("ranking").rank(
        scores,
        items,
        excluded.offsets,
        excluded.items,
        wanted.offsets,
        wanted.items,
        0,
        n,
        above,
        tied,
        top,
        sound,
    )
    finite(scores[~sound])
    top[~block.served] = -1
    return Ranks(
        users=block.users,
        candidates=np.where(block.served, scores.shape[1] - excluded.counts, 0),
        relevant=wanted.counts,
        owner=np.repeat(np.arange(n), wanted.counts),
        above=above,
        tied=tied,
        top=top,
    )


def _in_blocks(
    scored: Callable[[Ints], Scored],
    users: Ints,
    width: int,
    k: int,
    advance: Advance | None = None,
) -> Ranks:
    """Score a wave of blocks, then rank the wave on all cores.

    Scoring and ranking alternate because BLAS threads keep spinning for a while after a product.
    Waves hold several blocks because on a busy machine every switch waits for threads to wake up.
    """
    kernels.load("ranking")
    step = max(1, BLOCK_CELLS // max(width, 1))
    blocks = [users[i : i + step] for i in range(0, len(users), step)]
    parts: list[Ranks] = []
    for i in range(0, len(blocks), WAVE):
        parts += _rank_wave([scored(block) for block in blocks[i : i + WAVE]], k)
        if advance is not None:
            advance(sum(map(len, blocks[i : i + WAVE])))
    return _joined(parts)


def _rank_wave(wave: list[Scored], k: int) -> list[Ranks]:
    ranks: dict[int, Ranks] = {}

    def work(first: int, last: int) -> None:
        ranks.update({n: _rank_block(wave[n], k) for n in range(first, last)})

    parallel.over(work, len(wave))
    return [ranks[n] for n in range(len(wave))]


def _joined(parts: list[Ranks]) -> Ranks:
    if not parts:
        raise DataError(
            "the test part is empty; expected at least one user with a held-out interaction. "
            "Use another split."
        )
    starts = np.cumsum([0] + [len(p.users) for p in parts])
    return Ranks(
        users=np.concatenate([p.users for p in parts]),
        candidates=np.concatenate([p.candidates for p in parts]),
        relevant=np.concatenate([p.relevant for p in parts]),
        owner=np.concatenate([p.owner + s for p, s in zip(parts, starts, strict=False)]),
        above=np.concatenate([p.above for p in parts]),
        tied=np.concatenate([p.tied for p in parts]),
        top=np.concatenate([p.top for p in parts]),
    )
