"""Norms of updates by node, where updates are in the clear.

A node's norm in a round is the mean over its clients of the length of their updates: item rows, own
row and dense part together, also of updates that are refused. It is compared with the median node.
Under secure aggregation no server can know it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from coterie.federated.validation import DTYPES, Reply
from coterie.types import Doubles

FEWEST_NODES = 5
"""Nodes of a round without which a median says little."""
ROWS = ("item_rows", "user_rows", "dense")


@dataclass(slots=True)
class NodeNorms:
    """The lengths of the updates of one round."""

    lengths: dict[int, list[float]] = field(default_factory=dict)
    """Node index -> the length of each update, over all exchanges of the round."""

    def clear(self) -> None:
        self.lengths.clear()

    def add(self, node: int, reply: Reply) -> None:
        """Add a node's reply, which is not validated yet."""
        if reply.columns is not None and is_readable(reply.columns):
            lengths = update_lengths(reply.columns).tolist()
            self.lengths.setdefault(node, []).extend(lengths)

    def relative(self) -> dict[int, float]:
        """Node index -> its mean length in median nodes; empty where there are too few nodes."""
        means = {node: float(np.mean(one)) for node, one in self.lengths.items() if one}
        middle = median(means.values()) if len(means) >= FEWEST_NODES else 0.0
        return {node: mean / middle for node, mean in means.items()} if middle > 0 else {}


def is_readable(columns: Mapping[str, np.ndarray]) -> bool:
    """Whether an untrusted reply has updates with a length."""
    if columns.keys() != DTYPES.keys():
        return False
    if any(columns[name].dtype != dtype for name, dtype in DTYPES.items()):
        return False
    if columns["users"].ndim != 1 or any(columns[name].ndim != 2 for name in ROWS):
        return False
    n = len(columns["users"])
    offsets = columns["offsets"]
    if offsets.shape != (n + 1,) or offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
        return False
    return [len(columns[name]) for name in ROWS] == [offsets[-1], n, n]


def update_lengths(columns: Mapping[str, np.ndarray]) -> Doubles:
    """(clients,) the length of each update."""
    offsets = columns["offsets"]
    of_items, of_user, of_dense = (squared(columns[name]) for name in ROWS)
    client = np.repeat(np.arange(len(of_user)), np.diff(offsets))
    total = np.bincount(client, of_items, len(of_user)) + of_user + of_dense
    lengths: Doubles = np.sqrt(total)
    return lengths


def squared(rows: np.ndarray) -> Doubles:
    """(n,) the squared length of each row. Products of fixed-point entries do not fit in int32."""
    as_floats = rows.astype(np.float32)
    lengths: Doubles = np.einsum("ij,ij->i", as_floats, as_floats).astype(np.float64)
    return lengths
