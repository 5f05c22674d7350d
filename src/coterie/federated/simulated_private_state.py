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
    """The private state of some clients, a row for each. For reading alone: rows of all clients
    are the state's own arrays."""
    return {name: _rows(getattr(state, name), users) for name in state.private}


def _rows(table: np.ndarray, users: Ints) -> np.ndarray:
    if not _are_all(users, table):
        rows: np.ndarray = table[users]
        return rows
    whole = table.view()
    whole.flags.writeable = False
    return whole


def _are_all(users: Ints, table: np.ndarray) -> bool:
    """Whether these are all clients, in order: then a copy of the table would be waste."""
    return len(users) == len(table) and np.array_equal(users, np.arange(len(table)))


def renewed(after: State, before: State, new: Iterable[tuple[Ints, PrivateState]]) -> State:
    """The next state with private state: new rows of accepted clients, old rows of all others."""
    if not before.private:
        return after
    groups = list(new)
    if len(groups) == 1 and _replaces_all(before, *groups[0]):
        return replace(after, **groups[0][1])
    changed = np.concatenate([users for users, _ in groups]) if groups else NO_USERS
    private = {name: next_version(getattr(before, name), changed) for name in before.private}
    for users, rows_by_name in groups:
        for name, rows in rows_by_name.items():
            private[name][users] = rows
    return replace(after, **private)


def _replaces_all(before: State, users: Ints, rows_by_name: PrivateState) -> bool:
    """Whether new rows are whole tables: of all clients and all names, alike in type and shape."""
    if rows_by_name.keys() != set(before.private):
        return False
    tables = [(getattr(before, name), rows) for name, rows in rows_by_name.items()]
    return all(
        _are_all(users, table) and table.shape == rows.shape and table.dtype == rows.dtype
        for table, rows in tables
    )
