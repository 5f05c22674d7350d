"""What STTFedRec's recommendation server infers from requests and returned gradients.

An item that a user requests again and again was clicked: of items drawn anew every round hardly one
repeats, while clicks come from a short history. So the paper's obfuscation does not hold. Sticky
decoys repeat as often as clicks and hide them. But gradients are summed by item, and the sum over
one user is that user's gradient: the gradient of a click is the longest of a request and points
against the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from coterie.types import Bools, Ints, Longs, Rows


class Request(NamedTuple):
    """The requests of one round."""

    users: Ints | Longs
    items: Rows  # a row for each of the users


class RequestAttackScore(NamedTuple):
    precision: float
    """Share of the claims that are true; NaN if nothing is claimed."""
    recall: float
    """Share of the users' histories that is claimed."""
    claims: float
    """Claims per user."""


def repeated(requests: Sequence[Request], n_users: int, n_items: int) -> Bools:
    """(users, items) what was requested in more rounds than chance allows; of one round, all."""
    times = np.zeros((n_users, n_items), np.int32)
    rounds = np.zeros(n_users, np.int64)
    requested = np.zeros(n_users, np.int64)
    for request in requests:
        row, items = request.items.take(np.arange(len(request.users)))
        times[request.users[row], items] += 1
        rounds[request.users] += 1
        requested[request.users] += request.items.counts
    thresholds = [
        rounds_beyond_chance(n, m / max(n, 1) / n_items, n_items)
        for n, m in zip(rounds.tolist(), requested.tolist(), strict=True)
    ]
    claimed: Bools = times >= np.array(thresholds)[:, None]
    return claimed


@cache
def rounds_beyond_chance(rounds: int, share: float, n_items: int) -> int:
    """The least number of rounds that fewer than half an item of the catalogue reaches by chance.

    `share`: the chance of an item to be requested in a round.
    """
    from scipy.stats import binom

    if rounds <= 1:
        return 1
    times = np.arange(2, rounds + 2)
    expected = n_items * binom.sf(times - 1, rounds, share)
    return int(times[np.argmax(expected < 0.5)])


MIN_GRADIENTS = 4
"""Gradients of one user alone that are needed to single one out."""


def by_gradients(requested: Ints, slots: Ints, cut: np.ndarray) -> Ints:
    """(n,) the item that each user clicked, from the gradients of slots with a single user.

    `cut` holds the gradient of each slot. -1 where the gradients do not single out an item.
    """
    n_users_of_slot = np.bincount(slots[slots >= 0], minlength=len(cut))
    claims = np.full(len(requested), -1, np.int32)
    for k, (items, own) in enumerate(zip(requested, slots, strict=True)):
        only_node = (own >= 0) & (n_users_of_slot[np.maximum(own, 0)] == 1)
        gradients = cut[own[only_node]].astype(np.float64)
        if len(gradients) < MIN_GRADIENTS:
            continue
        longest = int(np.argmax((gradients * gradients).sum(axis=1)))
        if gradients[longest] @ (gradients.sum(axis=0) - gradients[longest]) < 0:
            claims[k] = items[only_node][longest]
    return claims


def score_claims(claimed: Bools, positives: Rows, users: Ints | Longs) -> RequestAttackScore:
    """Precision and recall of the claims about some users, over all of them together."""
    row, items = positives.take(users)
    true = claimed[users[row], items].sum()
    claims = claimed[users].sum()
    return RequestAttackScore(
        float(true / claims) if claims else float("nan"),
        float(true / max(len(items), 1)),
        float(claims / max(len(users), 1)),
    )
