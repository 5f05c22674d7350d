"""What a user trains on in a round, drawn by the same rules and from the same random words as the kernel does."""

from __future__ import annotations

import numpy as np

from coterie.core import streams
from coterie.types import Floats, Ints, Longs


class Words:
    """One user's random words, in order."""

    def __init__(self, key: np.uint64) -> None:
        self.key = key
        self.drawn = 0

    def take(self, limits: Longs) -> Longs:
        """The next numbers, each below its limit."""
        found = self.peek(limits)
        self.drawn += len(limits)
        return found

    def peek(self, limits: Longs) -> Longs:
        places = np.arange(self.drawn + 1, self.drawn + 1 + len(limits), dtype=np.uint64)
        return streams.below(
            streams.mix_array(self.key + np.uint64(streams.GOLDEN) * places), limits
        )


def draw(
    people: Longs,
    offsets: Longs,
    positives: Ints,
    ratings: Floats,
    seen_offsets: Longs,
    seen: Ints,
    n_items: int,
    negatives: int,
    epochs: int,
    keys: np.ndarray,
    starts: Longs,
    first: int,
    last: int,
    n_rows: Longs,
    rows: Ints,
    samples: Ints,
    targets: Floats,
) -> None:
    """Fill people first..last: from starts[k] on, `rows` (touched items, ascending), `samples` (places in rows), `targets`."""
    for k in range(first, last):
        u = people[k]
        words = Words(keys[k])
        begin = starts[k]
        end = starts[k + 1]
        mine = positives[offsets[u] : offsets[u + 1]]
        marks = (
            ratings[offsets[u] : offsets[u + 1]] if len(ratings) else np.ones(len(mine), np.float32)
        )
        is_free = np.ones(n_items, bool)
        is_free[seen[seen_offsets[u] : seen_offsets[u + 1]]] = False
        order = list(range(len(mine)))
        each = negatives if is_free.any() else 0
        chosen = []
        wanted = []
        for _ in range(epochs):
            shuffle(order, words)
            others = unseen(is_free, len(mine) * each, words).reshape(len(mine), each)
            chosen.append(np.column_stack([mine[order], others]))
            wanted.append(np.column_stack([marks[order], np.zeros_like(others)]))
        targets[begin:end] = np.concatenate(wanted).reshape(-1)
        touched, samples[begin:end] = np.unique(
            np.concatenate(chosen).reshape(-1), return_inverse=True
        )
        n_rows[k] = len(touched)
        rows[begin : begin + len(touched)] = touched


def pack(starts: Longs, offsets: Longs, rows: Ints, out: Ints) -> None:
    """The first offsets[k + 1] - offsets[k] rows from every starts[k] on, without the gaps between."""
    out[:] = rows[np.arange(offsets[-1]) + np.repeat(starts[:-1] - offsets[:-1], np.diff(offsets))]


def shuffle(order: list[int], words: Words) -> None:
    """Fisher and Yates, from the end; writes order."""
    ends = np.arange(len(order) - 1, 0, -1)
    for i, j in zip(ends.tolist(), words.take(ends + 1).tolist(), strict=True):
        order[i], order[j] = order[j], order[i]


def unseen(is_free: np.ndarray, n: int, words: Words) -> Longs:
    """n free items, uniformly: by rank where most are taken, else by trying again."""
    n_items = len(is_free)
    free = np.flatnonzero(is_free)
    if len(free) * 4 < n_items:
        return free[words.take(np.full(n, len(free)))]
    tries = 2 * n * n_items // max(len(free), 1) + 16
    while True:
        items = words.peek(np.full(tries, n_items))
        good = np.flatnonzero(is_free[items])
        if len(good) >= n:
            words.drawn += int(good[n - 1]) + 1 if n else 0
            return items[good[:n]]
        tries *= 2
