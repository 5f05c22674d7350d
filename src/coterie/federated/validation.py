"""Between nodes and aggregation: an update is what was asked for, or it is refused, counted and as if never sent."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from coterie import kernels
from coterie.core import parallel
from coterie.types import Bools, Ints, Longs, Message, Sizes, Updates

MOST_SAMPLES = 1 << 23
"""More could overflow a sum of n_k times an entry over 2^17 users."""
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
"""Refusals of what nobody of the cohort sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back from a node, as it came."""

    asked: Ints
    """The users the node was asked for."""
    round: int = -1
    columns: dict[str, np.ndarray] | None = None
    """None where the bytes were no message."""
    exchange: int = 0
    private_state: dict[str, np.ndarray] = field(default_factory=dict)
    """What the devices of those asked will keep if their update is accepted: it never travels."""


@dataclass(frozen=True, slots=True)
class Expected:
    round: int
    users: Ints  # ascending
    sizes: Sizes
    exchange: int = 0

    @classmethod
    def of(cls, message: Message, sizes: Sizes) -> Expected:
        return cls(message.round, message.users, sizes, message.exchange)


def validate(replies: list[Reply], expected: Expected) -> tuple[Updates, Counter[str]]:
    """The updates that may be aggregated, by user, and how many were refused for what."""
    refused: Counter[str] = Counter()
    parts: list[Updates] = []
    heard = np.zeros(len(expected.users), bool)
    for reply in replies:
        if fault := _fault_of_whole(reply, expected):
            refused[fault] += len(reply.asked)
            continue
        assert reply.columns is not None
        updates = Updates(**reply.columns)
        faults = _faults(updates, reply.asked, heard, expected)
        refused.update(FAULTS[fault] for fault in faults[faults > 0].tolist())
        fine = np.flatnonzero(faults == 0)
        heard[np.searchsorted(expected.users, updates.users[fine])] = (
            True  # no other reply in this user's name counts
        )
        parts.append(updates if len(fine) == len(updates) else updates.take(fine))
    if not any(len(part) for part in parts):
        return nothing(expected), refused
    return Updates.joined(parts), refused


def _fault_of_whole(reply: Reply, expected: Expected) -> str:
    """What is wrong with a reply as such; "" if nothing."""
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
    if (
        offsets[0] != 0 or offsets[-1] != rows or (offsets[1:] < offsets[:-1]).any()
    ):  # a difference could overflow
        return "wrong shape"
    return ""


def _faults(updates: Updates, asked: Ints, heard: Bools, expected: Expected) -> np.ndarray:
    """What is wrong with each update, 0 if nothing. `heard` marks users of the cohort with an accepted update."""
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
        )

    parallel.over(part, updates.offsets)
    faults[(updates.samples < 1) | (updates.samples > MOST_SAMPLES)] = BAD_COUNT
    places = np.minimum(np.searchsorted(expected.users, updates.users), len(expected.users) - 1)
    again = heard[places]
    again[np.setdiff1d(np.arange(len(updates)), np.unique(updates.users, return_index=True)[1])] = (
        True
    )
    faults[again] = DUPLICATE
    faults[(expected.users[places] != updates.users) | ~np.isin(updates.users, asked)] = UNKNOWN
    return faults


def nothing(expected: Expected) -> Updates:
    """The updates of nobody."""
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
