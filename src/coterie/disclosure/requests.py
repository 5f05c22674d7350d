"""What a recommendation server can tell from requests alone: an item that somebody asks for again and again is one that they clicked.

Of items drawn anew every round hardly one comes twice, while clicks are drawn from a short history: intersecting two requests of one
person finds clicks (STTFedRec's obfuscation does not hold). Items that a person keeps as decoys come as often as clicks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from coterie.types import Bools, Ints, Longs, Rows


class Request(NamedTuple):
    """Who asked for what in one round."""

    users: Ints | Longs
    items: Rows  # a row for each of the users


class Told(NamedTuple):
    precision: float
    """Share of the claims that are true; not a number where nothing is claimed."""
    recall: float
    """Share of what people did that is claimed, over people who asked."""
    claims: float
    """A person who asked."""


def repeated(requests: Sequence[Request], n_users: int, n_items: int) -> Bools:
    """(users, items) what was asked for in more rounds than chance would have it; of one round, all."""
    times, rounds, asked = (
        np.zeros((n_users, n_items), np.int32),
        np.zeros(n_users, np.int64),
        np.zeros(n_users, np.int64),
    )
    for request in requests:
        row, items = request.items.take(np.arange(len(request.users)))
        times[request.users[row], items] += 1
        rounds[request.users] += 1
        asked[request.users] += request.items.counts
    limits = [
        not_by_chance(n, m / max(n, 1) / n_items, n_items) for n, m in zip(rounds.tolist(), asked.tolist(), strict=True)
    ]
    found: Bools = times >= np.array(limits)[:, None]
    return found


@cache
def not_by_chance(rounds: int, share: float, n_items: int) -> int:
    """In how many rounds an item has to be so that fewer than half an item of the catalogue would be by chance."""
    from scipy.stats import binom

    times = np.arange(2, rounds + 2)
    return int(times[np.argmax(n_items * binom.sf(times - 1, rounds, share) < 0.5)]) if rounds > 1 else 1


def told(claimed: Bools, positives: Rows, users: Ints | Longs) -> Told:
    """How right claims about some users are, all of theirs together."""
    row, items = positives.take(users)
    true, claims = claimed[users[row], items].sum(), claimed[users].sum()
    return Told(
        float(true / claims) if claims else float("nan"),
        float(true / max(len(items), 1)),
        float(claims / max(len(users), 1)),
    )
