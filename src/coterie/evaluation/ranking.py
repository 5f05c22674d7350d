"""Where the relevant items stand, a block of users at a time. Ties are kept as ties, never broken in a model's favour."""

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

BLOCK_CELLS = 1 << 20  # scores in a block
WAVE = 4  # blocks held at a time; with eight their memory comes anew from the system every time
GATHERED = 16  # numbers a model gathers for a candidate's score, about
MANY = 512  # candidates
UNNAMED: Ints = np.empty((0, 0), np.int32)


@dataclass(frozen=True, slots=True)
class Ranks:
    """For every relevant item: how many candidates score higher, and how many the same (itself included)."""

    users: Ints  # (tested,)
    candidates: Longs  # (tested,) 0 for somebody whom the model does not serve
    relevant: Longs  # (tested,)
    owner: Longs  # (relevant items,) place in `users`
    above: Longs  # (relevant items,)
    tied: Longs  # (relevant items,)
    top: (
        Ints  # (tested, k) the recommended items, -1 where the list is shorter; ties by item number
    )

    @property
    def served(self) -> Bools:
        return self.candidates > 0


@dataclass(frozen=True, slots=True)
class Scored:
    """A block of users with the scores of columns: which of them are no candidates, and which are relevant."""

    users: Ints
    served: Bools
    scores: Floats
    out: Rows
    wanted: Rows
    items: Ints | None = None
    """Which item stands in which column; without it a column is an item."""


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

    many = (
        candidates.items.shape[1] > MANY
    )  # then scoring everything, in one product, is quicker than to gather
    return _in_blocks(
        scored,
        np.arange(len(candidates.users), dtype=np.int32),
        candidates.items.shape[1] * GATHERED,
        k,
    )


def best_items(scores: Floats, seen: Ints, k: int) -> Ints:
    """The k best of all items that one user has not seen, best first, ties by item number; fewer where there are fewer.

    One row is sorted: loading the kernel takes a second, which somebody who asks for a recommendation would wait for.
    """
    free = np.delete(np.arange(len(scores), dtype=np.int32), seen)
    of_free = finite(scores)[free]
    if k < len(free):  # of many items only those that can be among the best are sorted
        enough = of_free >= np.partition(of_free, len(free) - k)[len(free) - k]
        free = free[enough]
        of_free = of_free[enough]
    return free[np.argsort(-of_free, kind="stable")[:k]]


def finite(scores: Floats) -> Floats:
    """The scores; or an error: a model that says NaN must never score a hit."""
    if not np.isfinite(scores).all():
        bad = scores[~np.isfinite(scores)][0]
        raise Diverged(
            f"training diverged: the model scores {bad}; expected finite numbers. Lower learning_rate or raise reg."
        )
    return scores


def _rank_block(block: Scored, k: int) -> Ranks:
    n = len(block.users)
    out = block.out
    wanted = block.wanted
    scores = np.ascontiguousarray(block.scores, np.float32)
    names = UNNAMED if block.items is None else block.items
    above = np.empty(len(wanted.items), np.int64)
    tied = np.empty(len(wanted.items), np.int64)
    top = np.empty((n, k), np.int32)
    sound = np.empty(n, np.bool_)
    kernels.load("ranking").rank(
        scores,
        names,
        out.offsets,
        out.items,
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
        candidates=np.where(block.served, scores.shape[1] - out.counts, 0),
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
    """Score a wave of blocks, then rank them on all cores.

    In turns, because BLAS brings threads of its own that keep spinning for a while; and in few turns, because where the
    machine is busy each of them waits for threads to wake up.
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
    found: dict[int, Ranks] = {}

    def work(first: int, last: int) -> None:
        found.update({place: _rank_block(wave[place], k) for place in range(first, last)})

    parallel.over(work, len(wave))
    return [found[place] for place in range(len(wave))]


def _joined(parts: list[Ranks]) -> Ranks:
    if not parts:
        raise DataError(
            "there is nobody to test; expected at least one user with something held out. Use another split."
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
