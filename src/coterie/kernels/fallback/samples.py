"""The training samples of a user in a round.

They are drawn by the same rules and from the same random words as in the kernel.
"""

from __future__ import annotations

import numpy as np

from coterie.core import streams
from coterie.core.sampling import Keys
from coterie.types import Bools, Floats, Ints, Longs


class RandomWords:
    """One user's stream of random words, which is consumed in order."""

    def __init__(self, key: np.uint64) -> None:
        self.key = key
        self.drawn = 0

    def take(self, limits: Longs) -> Longs:
        """Consume one word per limit. Returns numbers below the limits."""
        numbers = self.peek(limits)
        self.drawn += len(limits)
        return numbers

    def peek(self, limits: Longs) -> Longs:
        """The numbers that `take` would return; consumes nothing."""
        places = np.arange(self.drawn + 1, self.drawn + 1 + len(limits), dtype=np.uint64)
        words = streams.mix_array(self.key + np.uint64(streams.GOLDEN) * places)
        return streams.below(words, limits)


def draw(
    users: Longs,
    offsets: Longs,
    positives: Ints,
    ratings: Floats,
    seen_offsets: Longs,
    seen: Ints,
    n_items: int,
    negatives: int,
    epochs: int,
    keys: Keys,
    starts: Longs,
    first: int,
    last: int,
    n_rows: Longs,
    rows: Ints,
    samples: Ints,
    targets: Floats,
) -> None:
    """Draw the samples of users first..last, each user's from starts[k] on.

    Writes `rows` (the touched items, ascending), `samples` (positions in rows) and `targets`.
    """
    for k in range(first, last):
        u = users[k]
        words = RandomWords(keys[k])
        begin = starts[k]
        end = starts[k + 1]
        history = slice(offsets[u], offsets[u + 1])
        own = positives[history]
        labels = ratings[history] if len(ratings) else np.ones(len(own), np.float32)
        is_free = np.ones(n_items, bool)
        is_free[seen[seen_offsets[u] : seen_offsets[u + 1]]] = False
        order = list(range(len(own)))
        per_positive = negatives if is_free.any() else 0
        item_parts = []
        target_parts = []
        for _ in range(epochs):
            shuffle(order, words)
            drawn = draw_unseen(is_free, len(own) * per_positive, words)
            drawn = drawn.reshape(len(own), per_positive)
            item_parts.append(np.column_stack([own[order], drawn]))
            target_parts.append(np.column_stack([labels[order], np.zeros_like(drawn)]))
        targets[begin:end] = np.concatenate(target_parts).reshape(-1)
        items = np.concatenate(item_parts).reshape(-1)
        touched, samples[begin:end] = np.unique(items, return_inverse=True)
        n_rows[k] = len(touched)
        rows[begin : begin + len(touched)] = touched


def pack(starts: Longs, offsets: Longs, rows: Ints, out: Ints) -> None:
    """Copy offsets[k + 1] - offsets[k] rows from every starts[k] on, without the gaps between."""
    out[:] = rows[np.arange(offsets[-1]) + np.repeat(starts[:-1] - offsets[:-1], np.diff(offsets))]


def shuffle(order: list[int], words: RandomWords) -> None:
    """Fisher-Yates shuffle from the end. Writes `order`."""
    ends = np.arange(len(order) - 1, 0, -1)
    for i, j in zip(ends.tolist(), words.take(ends + 1).tolist(), strict=True):
        order[i], order[j] = order[j], order[i]


def draw_unseen(is_free: Bools, n: int, words: RandomWords) -> Longs:
    """Draw n free items uniformly: by rank if fewer than a quarter are free, else by rejection.

    Rejection must consume as many words as the kernel does, so it looks ahead with `peek`.
    """
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
