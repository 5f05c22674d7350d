"""What a server would know of users who sent their solved vectors without item ids (FedALS)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from coterie.algorithms.fedals import FedALS
from coterie.attacks.eavesdropper import Observation
from coterie.attacks.evidence import Claims
from coterie.attacks.pursuit import LIKED, basis_pursuit
from coterie.attacks.solved_vectors import Equations, Whitened, equations, whiten
from coterie.core import streams
from coterie.federated.federation import World
from coterie.types import SCALE, Bools, Doubles, Longs

SCORES = "scores"
PURSUIT = "pursuit"
USES = {
    SCORES: "the vector x without the ids: items with a score x . y above 0.5",
    PURSUIT: "the same, and the equations that x solves, of the last two rounds",
}
SAMPLE = 50
"""Users that are attacked: a linear program takes a second."""
LATEST = 2
"""Rounds whose equations are joined."""
DEPTH = 2000
"""Items below the claimed ones that are still told apart."""


class Sent(NamedTuple):
    """A user's vector, and the items that it was solved for."""

    x: Doubles
    items: Whitened


class VectorCollector:
    """Stores the latest vectors of a sample of users."""

    uses: Mapping[str, str] = USES

    def __init__(self, world: World[FedALS]) -> None:
        members = np.flatnonzero(world.members)
        drawn = streams.at(world.seed, "attacked").permutation(members)[:SAMPLE]
        self._n_users = world.n_users
        self._alpha = float(world.settings.alpha)
        self._sent: dict[int, list[Sent]] = {user: [] for user in sorted(drawn.tolist())}

    def add(self, observation: Observation) -> None:
        items = whiten(observation.sent["item_rows"])
        for user, row in zip(observation.users.tolist(), observation.dense, strict=True):
            if user in self._sent:
                sent = Sent(row.astype(np.float64) / SCALE, items)
                self._sent[user] = [*self._sent[user], sent][-LATEST:]

    def claims(self) -> dict[str, Claims]:
        known = {user: sent for user, sent in self._sent.items() if sent}
        scores = {user: sent[-1].items.Y @ sent[-1].x for user, sent in known.items()}
        found = {user: self._pursue(sent, scores[user]) for user, sent in known.items()}
        return {
            SCORES: ranked(scores, scores, self._n_users),
            PURSUIT: ranked(found, scores, self._n_users),
        }

    def _pursue(self, sent: list[Sent], scores: Doubles) -> Doubles:
        systems = [equations(each.items, each.x, self._alpha) for each in sent]
        found = basis_pursuit(Equations.joined(systems), scores)
        return scores if found is None else found

    @property
    def observed(self) -> Bools:
        """(users,) who is in the sample and sent a vector."""
        observed = np.zeros(self._n_users, bool)
        observed[[user for user, sent in self._sent.items() if sent]] = True
        return observed


def ranked(likely: Mapping[int, Doubles], scores: Mapping[int, Doubles], n_users: int) -> Claims:
    """Claims of items that are likely above one half; the others follow by scores."""
    keys: list[Longs] = [np.empty(0, np.int64)]
    ranks: list[Longs] = [np.empty(0, np.int64)]
    for user in sorted(likely):
        claimed = likely[user] > LIKED
        order = np.lexsort((-scores[user], ~claimed))
        rank = np.empty(len(order), np.int64)
        rank[order] = claimed.sum() - np.arange(len(order))
        keys.append(user * len(order) + np.arange(len(order)))
        ranks.append(np.maximum(rank, -DEPTH))
    return Claims(np.concatenate(keys), np.concatenate(ranks), np.zeros(n_users, np.int64))
