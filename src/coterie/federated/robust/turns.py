"""Turns: with a defence, no client is selected much more often than others.

FedFast and FedBSO select by clusters of what clients sent, so that clients with unusual rows are in
every round. With a defence a client may be selected in some rounds only, drawn by the seed and not
by anything it sends: in MOST_OFTEN times its share of them.
"""

from __future__ import annotations

import math

import numpy as np

from coterie.core import streams
from coterie.federated.federation import AnyWorld
from coterie.federated.robust.defence import is_defended
from coterie.types import Bools

MOST_OFTEN = 2.0


def with_a_turn(world: AnyWorld, participation: float, t: int) -> Bools:
    """(users,) who are present and may be selected in round t."""
    if not is_defended(world) or MOST_OFTEN * participation >= 1:
        return world.present
    users = np.flatnonzero(world.present)
    n = math.ceil(MOST_OFTEN * participation * len(users))
    lots = streams.keys(world.seed, "turn of a client", t, last=users)
    turns = np.zeros(world.n_users, bool)
    turns[users[np.argsort(lots, kind="stable")[:n]]] = True
    return turns
