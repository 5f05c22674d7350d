"""What attackers infer of each user from what the server received, after some rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from coterie.attacks.evidence import Claims, Collector
from coterie.attacks.scores import AttackScore, score
from coterie.core.npz import packed_texts, unpacked_texts
from coterie.types import Bools, Doubles, Floats, Ids, Ints, Longs, Rows

BEST = 10
"""Claims of each attacker that are kept by name; all are counted."""
NO_ITEM = -1
"""Stands where an attacker has fewer claims."""


@dataclass(frozen=True, slots=True)
class InferredItems:
    """Claims of attackers by user. A hit is a claim that is true."""

    attackers: Ids  # (attackers,)
    uses: Ids  # (attackers,) what each of them uses
    after: Ints  # (times,) the rounds after which they claim
    liked: Longs  # (users,) the lengths of histories
    claims: Ints  # (times, attackers, users)
    hits: Ints  # (times, attackers, users)
    popular_hits: Floats  # (times, attackers, users) of as many claims by popularity
    observed: Bools  # (attackers, users) whom the attacker had something of, in the end
    best: Ints  # (attackers, users, BEST) items claimed with the highest scores, then NO_ITEM
    rates: Floats  # (users,) the mean disclosure rate; no entries where there is none

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "attackers": packed_texts(self.attackers),
            "uses": packed_texts(self.uses),
            "after": self.after,
            "liked": self.liked,
            "claims": self.claims,
            "hits": self.hits,
            "popular_hits": self.popular_hits,
            "observed": self.observed,
            "best": self.best,
            "rates": self.rates,
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> InferredItems:
        texts = {name: unpacked_texts(arrays[name]) for name in ("attackers", "uses")}
        return cls(**arrays | texts)


def times_of(last: int) -> list[int]:
    """1, 3, 10, 30 and so on, and the last round."""
    steps = [int(step * 10**power) for power in range(7) for step in (1, 3)]
    return [*(step for step in steps if step < last), last]


@dataclass(slots=True)
class InferenceRecorder:
    """Asks the attackers of a replay for their claims now and then."""

    collectors: Sequence[Collector]
    histories: Rows
    n_items: int
    after: list[int] = field(default_factory=list)
    scores: list[list[AttackScore]] = field(default_factory=list)
    last: dict[str, Claims] = field(default_factory=dict)

    def add(self, n: int) -> None:
        """After round n."""
        self.last = {}
        for collector in self.collectors:
            self.last |= collector.claims()
        self.after.append(n)
        self.scores.append(
            [score(claims, self.histories, self.n_items) for claims in self.last.values()]
        )

    def finish(self, rates: Doubles | None) -> InferredItems:
        uses = {name: text for each in self.collectors for name, text in each.uses.items()}
        observed = {name: each.observed for each in self.collectors for name in each.uses}
        names = list(self.last)
        n_users = len(self.histories.counts)
        return InferredItems(
            np.array(names, dtype=object),
            np.array([uses[name] for name in names], dtype=object),
            np.array(self.after, np.int32),
            self.histories.counts,
            _stacked([[one.claims for one in row] for row in self.scores]).astype(np.int32),
            _stacked([[one.hits for one in row] for row in self.scores]).astype(np.int32),
            _stacked([[one.popular_hits for one in row] for row in self.scores]).astype(np.float32),
            np.stack([observed[name] for name in names]),
            np.stack([best_claims(each, n_users, self.n_items) for each in self.last.values()]),
            np.empty(0, np.float32) if rates is None else rates.astype(np.float32),
        )


def _stacked(values: list[list[np.ndarray]]) -> np.ndarray:
    """(times, attackers, users)"""
    return np.stack([np.stack(row) for row in values])


def best_claims(claims: Claims, n_users: int, n_items: int) -> Ints:
    """(users, BEST) the items that were sent and are claimed, highest score first, then by item."""
    keys = claims.keys[claims.made]
    scores = claims.scores[claims.made]
    order = np.lexsort((keys, -scores, keys // n_items))
    users = keys[order] // n_items
    ranks = np.arange(len(users)) - np.searchsorted(users, users)
    is_best = ranks < BEST
    best = np.full((n_users, BEST), NO_ITEM, np.int32)
    best[users[is_best], ranks[is_best]] = (keys[order] % n_items)[is_best]
    return best
