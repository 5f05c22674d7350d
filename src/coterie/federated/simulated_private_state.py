"""Private client state in the simulator, which holds the state of all clients in one place.

In a deployed federation nodes store it themselves: see `coterie.deployment.node_private_store`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from coterie.core.row_versions import next_version
from coterie.federated.costs import NO_USERS
from coterie.federated.federation import PrivateState, State
from coterie.types import Ints


def rows_of(state: State, users: Ints) -> PrivateState:
    """The private state of some clients, a row for each."""
    return {name: getattr(state, name)[users] for name in state.private}


def renewed(after: State, before: State, new: Iterable[tuple[Ints, PrivateState]]) -> State:
    """The next state with private state: new rows of accepted clients, old rows of all others."""
    if not before.private:
        return after
    groups = list(new)
    changed = np.concatenate([users for users, _ in groups]) if groups else NO_USERS
    private = {name: next_version(getattr(before, name), changed) for name in before.private}
    for users, rows_by_name in groups:
        for name, rows in rows_by_name.items():
            private[name][users] = rows
    return replace(after, **private)
