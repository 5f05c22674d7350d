"""Validation between nodes and aggregation: a malformed update is refused and counted.

A refused update has no effect: its client is as if it had dropped out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie import kernels
from coterie.core import parallel
from coterie.types import Bools, Doubles, Ints, Longs, Message, Sizes, Updates, closed_up, runs_of

MOST_SAMPLES = 1 << 23
"""More could overflow a sum of n_k times an entry over 2^17 users."""
FEW_ENTRIES = 1 << 16
"""As many entries one thread checks faster than it wakes another."""
DTYPES = {"users": np.int32, "samples": np.int64, "offsets": np.int64} | dict.fromkeys(
    ("items", "item_rows", "user_rows", "dense"), np.int32
)
FAULTS = (
    "",
    "unknown item",
    "repeated item",
    "out of range",
    "not finite",  # as the kernel numbers them
    "bad sample count",
    "duplicate user",
    "unknown user",
)
BAD_COUNT = 5
DUPLICATE = 6
UNKNOWN = 7
NOT_OF_THE_COHORT = FAULTS[DUPLICATE], FAULTS[UNKNOWN]
"""Faults of updates that no client of the cohort sent."""
OF_TRAINING = ("out of range", "not finite")
"""Faults of training that diverges. All others are mistakes in the algorithm's code."""
REMEDIES = {
    "malformed": "Return Updates from client_update.",
    "stale round": "Reply to the message of this round.",
    "wrong dtype": "Return rows from coterie.quantise, and users and items as int32.",
    "wrong shape": "Return rows of the widths that the exchange's `sizes` declares.",
    "unknown item": "Return item indices from 0 to world.n_items - 1.",
    "repeated item": "Return every client's items in ascending order, each once.",
    "bad sample count": f"Return from 0 to {MOST_SAMPLES:,} samples per client.",
    "duplicate user": "Return one update for each of message.users.",
    "unknown user": "Return updates for message.users only.",
} | dict.fromkeys(OF_TRAINING, "Lower learning_rate or raise reg.")


@dataclass(frozen=True, slots=True)
class Reply:
    """A node's reply, as received."""

    selected: Ints
    """The clients whose updates the message requested."""
    round: int = -1
    columns: dict[str, np.ndarray] | None = None
    """None where the bytes could not be decoded."""
    exchange: int = 0
    private_state: dict[str, np.ndarray] = field(default_factory=dict)
    """The clients' next private state, if their updates are accepted. It never travels."""

    def protect(self) -> None:
        """Make the columns read-only: who records a reply keeps it as it was received."""
        for column in (self.columns or {}).values():
            column.flags.writeable = False


@dataclass(frozen=True, slots=True)
class Expected:
    """What a valid reply to a message holds."""

    round: int
    users: Ints  # ascending
    sizes: Sizes
    exchange: int = 0

    @classmethod
    def of(cls, message: Message, sizes: Sizes) -> Expected:
        return cls(message.round, message.users, sizes, message.exchange)


class SquaredNorms(NamedTuple):
    """Squared norms of item rows, and their sums over the rows of each client."""

    by_row: Doubles
    by_client: Doubles

    def only(self, offsets: Longs, which: Bools) -> SquaredNorms:
        """Those of the marked clients. Those of rows move up in place."""
        return SquaredNorms(closed_up(self.by_row, offsets[runs_of(which)]), self.by_client[which])


NOT_MEASURED = SquaredNorms(np.empty(0), np.empty(0))


class Validated(NamedTuple):
    """The updates that may be aggregated, ordered by user, and the number refused by reason."""

    updates: Updates
    refused: Counter[str]
    norms: SquaredNorms | None = None
    """Of the item rows, where they were to be measured and all updates are those of one reply."""


def validate(replies: list[Reply], expected: Expected, measure: bool = False) -> Validated:
    """The valid updates; `measure` asks for the norms of their rows, which then take no time."""
    refused: Counter[str] = Counter()
    parts: list[Updates] = []
    norms = NOT_MEASURED
    received = np.zeros(len(expected.users), bool)
    for reply in replies:
        if fault := _fault_of_whole(reply, expected):
            refused[fault] += len(reply.selected)
            continue
        assert reply.columns is not None
        updates = Updates(**reply.columns)
        if measure:
            norms = SquaredNorms(np.empty(len(updates.items)), np.empty(len(updates)))
        faults = _faults(updates, reply.selected, received, expected, norms)
        refused.update(FAULTS[fault] for fault in faults[faults > 0].tolist())
        fine = faults == 0
        # A later reply in the name of the same user is a duplicate.
        received[np.searchsorted(expected.users, updates.users[fine])] = True
        if not fine.all():
            norms = norms.only(updates.offsets, fine) if measure else norms
            updates = updates.only(fine)
        parts.append(updates)
    if not any(len(part) for part in parts):
        return Validated(no_updates(expected), refused)
    whole = Updates.joined(parts)
    as_sent = measure and len(parts) == 1 and whole is parts[0]
    return Validated(whole, refused, norms if as_sent else None)


def _fault_of_whole(reply: Reply, expected: Expected) -> str:
    """The fault of a reply as a whole; "" if there is none."""
    columns = reply.columns
    if columns is None or set(columns) != set(DTYPES):
        return "malformed"
    if (reply.round, reply.exchange) != (expected.round, expected.exchange):
        return "stale round"
    if any(columns[name].dtype != dtype for name, dtype in DTYPES.items()):
        return "wrong dtype"
    if any(column.ndim == 0 for column in columns.values()):
        return "wrong shape"
    n = len(columns["users"])
    rows = len(columns["items"])
    offsets = columns["offsets"]
    _, item_width, user_width, dense_size = expected.sizes
    shapes = {
        "users": (n,),
        "samples": (n,),
        "offsets": (n + 1,),
        "items": (rows,),
        "item_rows": (rows, item_width),
        "user_rows": (n, user_width),
        "dense": (n, dense_size),
    }
    if any(columns[name].shape != shape for name, shape in shapes.items()):
        return "wrong shape"
    # Compare neighbours instead of subtracting them: a difference could overflow.
    ascending = not (offsets[1:] < offsets[:-1]).any()
    if offsets[0] != 0 or offsets[-1] != rows or not ascending:
        return "wrong shape"
    return ""


def _faults(
    updates: Updates,
    selected: Ints,
    received: Bools,
    expected: Expected,
    norms: SquaredNorms,
) -> np.ndarray:
    """(n,) the fault of each update, 0 if none. `received` marks users with an accepted update.

    Unless they are empty, norms are written.
    """
    faults = np.zeros(len(updates), np.int8)
    check = kernels.load("sums").check

    def part(first: int, last: int) -> None:
        check(
            updates.offsets,
            updates.items,
            updates.item_rows,
            updates.user_rows,
            updates.dense,
            expected.sizes.items,
            first,
            last,
            faults,
            *norms,
        )

    columns = (updates.items, updates.item_rows, updates.user_rows, updates.dense)
    few = sum(column.size for column in columns) <= FEW_ENTRIES
    parallel.over(part, updates.offsets, alone=few)
    faults[(updates.samples < 1) | (updates.samples > MOST_SAMPLES)] = BAD_COUNT
    places = np.minimum(np.searchsorted(expected.users, updates.users), len(expected.users) - 1)
    duplicate = received[places]
    if (updates.users[1:] <= updates.users[:-1]).any():
        first = np.unique(updates.users, return_index=True)[1]
        duplicate[np.setdiff1d(np.arange(len(updates)), first)] = True
    faults[duplicate] = DUPLICATE
    fine = (expected.users[places] == updates.users) & are_among(updates.users, selected)
    faults[~fine] = UNKNOWN
    return faults


def are_among(users: Ints, others: Ints) -> Bools:
    """Which users are among the others: all at once where every client has replied."""
    if np.array_equal(users, others):
        return np.ones(len(users), bool)
    return np.isin(users, others)


def no_updates(expected: Expected) -> Updates:
    """Updates of no clients."""
    _, item_width, user_width, dense_size = expected.sizes
    none = np.empty(0, np.int32)
    zero: Longs = np.zeros(1, np.int64)
    return Updates(
        none,
        np.empty(0, np.int64),
        zero,
        none,
        none.reshape(0, item_width),
        none.reshape(0, user_width),
        none.reshape(0, dense_size),
    )
