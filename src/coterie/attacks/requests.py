"""What a recommendation server can tell from requests, and from the slopes that come back to what it sent.

An item that somebody asks for again and again is one that they clicked: of items drawn anew every round hardly one comes twice, while
clicks are drawn from a short history (STTFedRec's obfuscation does not hold). Items that a person keeps as decoys come as often as
clicks do. But slopes are summed by item, and where only one person asked for an item their slope is the sum: a click's is the longest
of a request, and points against the others'.
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
    times = np.zeros((n_users, n_items), np.int32)
    rounds = np.zeros(n_users, np.int64)
    asked = np.zeros(n_users, np.int64)
    for request in requests:
        row, items = request.items.take(np.arange(len(request.users)))
        times[request.users[row], items] += 1
        rounds[request.users] += 1
        asked[request.users] += request.items.counts
    limits = [
        not_by_chance(n, m / max(n, 1) / n_items, n_items)
        for n, m in zip(rounds.tolist(), asked.tolist(), strict=True)
    ]
    found: Bools = times >= np.array(limits)[:, None]
    return found


@cache
def not_by_chance(rounds: int, share: float, n_items: int) -> int:
    """In how many rounds an item has to be so that fewer than half an item of the catalogue would be by chance."""
    from scipy.stats import binom

    times = np.arange(2, rounds + 2)
    return (
        int(times[np.argmax(n_items * binom.sf(times - 1, rounds, share) < 0.5)])
        if rounds > 1
        else 1
    )


FEW = 4
"""Slopes of one person alone that are needed to tell one from the others."""


def by_gradients(asked: Ints, slots: Ints, cut: np.ndarray) -> Ints:
    """(n,) the item that each asker clicked, as what came back to the slots that nobody else asked for says; -1 where it does not."""
    askers = np.bincount(slots[slots >= 0], minlength=len(cut))
    claims = np.full(len(asked), -1, np.int32)
    for k, (items, mine) in enumerate(zip(asked, slots, strict=True)):
        only_node = (mine >= 0) & (askers[np.maximum(mine, 0)] == 1)
        gradients = cut[mine[only_node]].astype(np.float64)
        if len(gradients) < FEW:
            continue
        longest = int(np.argmax((gradients * gradients).sum(axis=1)))
        if gradients[longest] @ (gradients.sum(axis=0) - gradients[longest]) < 0:
            claims[k] = items[only_node][longest]
    return claims


def told(claimed: Bools, positives: Rows, users: Ints | Longs) -> Told:
    """How right claims about some users are, all of theirs together."""
    row, items = positives.take(users)
    true = claimed[users[row], items].sum()
    claims = claimed[users].sum()
    return Told(
        float(true / claims) if claims else float("nan"),
        float(true / max(len(items), 1)),
        float(claims / max(len(users), 1)),
    )
