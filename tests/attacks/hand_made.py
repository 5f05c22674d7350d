"""Rounds written down by hand: what a server would see of users whose vectors and histories the test knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from coterie.attacks.eavesdropper import Overheard
from coterie.attacks.evidence import Attacker, Claims, Dossier, Server
from coterie.types import SCALE

Row = Sequence[float]
"""Changes of factors; the change of the bias comes last where there is one."""


def heard(
    sent: Mapping[int, Mapping[int, Row]], item_rows: np.ndarray, t: int = 0, triples: int = 1
) -> Overheard:
    """What users sent, {user: {item: row}}, in fixed point."""
    users = sorted(sent)
    rows = [row for user in users for _, row in sorted(sent[user].items())]
    return Overheard(
        t,
        np.array(users, np.int32),
        np.full(len(users), triples),
        np.cumsum([0, *(len(sent[user]) for user in users)]),
        np.array([item for user in users for item in sorted(sent[user])], np.int32),
        np.rint(np.array(rows) * SCALE).astype(np.int32),
        {"item_rows": item_rows.astype(np.float32)},
    )


def after(attacker: Attacker, server: Server, rounds: Sequence[Overheard]) -> Claims:
    dossier = Dossier(server, [attacker])
    for one in rounds:
        dossier.hear(one)
    return dossier.claims()[attacker.name]


def claimed(claims: Claims, server: Server) -> list[set[int]]:
    """The items that each user is said to like."""
    sets = [
        set(range(server.n_items)) if claims.elsewhere[u] > 0 else set()
        for u in range(server.n_users)
    ]
    for key, made in zip(claims.keys.tolist(), claims.made.tolist(), strict=True):
        user, item = divmod(key, server.n_items)
        (sets[user].add if made else sets[user].discard)(item)
    return sets


def claims_of(attacker: Attacker, server: Server, *rounds: Overheard) -> list[set[int]]:
    return claimed(after(attacker, server, rounds), server)
