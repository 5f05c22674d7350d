"""Hand-made rounds: what a server observes of users whose vectors and histories are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.attacks.eavesdropper import Observation
from coterie.attacks.evidence import Attacker, Claims, EvidenceCollector, ServerKnowledge
from coterie.types import SCALE

Row = Sequence[float]
"""Changes of factors, and last the change of the bias where there is one."""


def observed(
    sent: Mapping[int, Mapping[int, Row]], item_rows: np.ndarray, t: int = 0, triples: int = 1
) -> Observation:
    """The observation of a round in which users sent {user: {item: row}}."""
    users = sorted(sent)
    rows = [row for user in users for _, row in sorted(sent[user].items())]
    return Observation(
        t,
        np.array(users, np.int32),
        np.full(len(users), triples),
        np.cumsum([0, *(len(sent[user]) for user in users)]),
        np.array([item for user in users for item in sorted(sent[user])], np.int32),
        np.rint(np.array(rows) * SCALE).astype(np.int32),
        {"item_rows": item_rows.astype(np.float32)},
        np.empty((len(users), 0), np.int32),
    )


def after(attacker: Attacker, server: ServerKnowledge, rounds: Sequence[Observation]) -> Claims:
    """The attacker's claims after some rounds."""
    collector = EvidenceCollector(server, [attacker])
    for observation in rounds:
        collector.add(observation)
    return collector.claims()[attacker.name]


def claimed(claims: Claims, server: ServerKnowledge) -> list[set[int]]:
    """The items that each user is claimed to like."""
    sets = [
        set(range(server.n_items)) if claims.elsewhere[u] > 0 else set()
        for u in range(server.n_users)
    ]
    for key, made in zip(claims.keys.tolist(), claims.made.tolist(), strict=True):
        user, item = divmod(key, server.n_items)
        (sets[user].add if made else sets[user].discard)(item)
    return sets


def claims_of(attacker: Attacker, server: ServerKnowledge, *rounds: Observation) -> list[set[int]]:
    return claimed(after(attacker, server, rounds), server)
