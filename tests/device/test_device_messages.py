"""A server's message as the page reads it: what is not for this client is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
from javascript import answers, needs_node, packed

from coterie.federated.wire import encode

pytestmark = needs_node
OWN = {"users": np.array([5], np.int32), "accepted": np.array([-1], np.int64)}
COMMON = {"item_rows": np.ones((4, 2), np.float32), "item_bias": np.ones(4, np.float32)}


def message(
    own: dict[str, Any] | None = None, common: dict[str, Any] | None = None, exchange: int = 0
) -> bytes:
    """The message of round 9 with some arrays changed, or left out where None is given."""
    arrays = [
        {name: array for name, array in (given | (changed or {})).items() if array is not None}
        for given, changed in ((OWN, own), (COMMON, common))
    ]
    return encode(9, arrays[0], arrays[1], exchange)


REFUSED = {
    "the message is for user 6": message(own={"users": np.array([6], np.int32)}),
    "column 'users' has dtype": message(own={"users": np.array([5, 6], np.int32)}),
    "column 'users' has dtype <i8": message(own={"users": np.array([5])}),
    "the message has no column 'accepted'": message(own={"accepted": None}),
    "exchange 1 does not exist": message(exchange=1),
    "column 'item_rows' has dtype <f4 and shape [4,3]": message(
        common={"item_rows": np.ones((4, 3), np.float32)}
    ),
    "column 'item_bias' has dtype <f4 and shape [3]": message(
        common={"item_bias": np.ones(3, np.float32)}
    ),
    "the item table has an entry that is not finite": message(
        common={"item_bias": np.array([0, np.nan, 0, 0], np.float32)}
    ),
    "column 'item_rows' has dtype <f8": message(common={"item_rows": np.ones((4, 2))}),
}


def test_messages_are_read_or_refused_with_a_reason():
    cases = [{"kind": "message", "bytes": packed(data), "user": 5} for data in REFUSED.values()]
    sound = {"kind": "message", "bytes": packed(message()), "user": 5}
    first = {**sound, "user": None}
    *refused, read, of_first = answers([*cases, sound, first])
    for reason, answer in zip(REFUSED, refused, strict=True):
        assert answer["malformed"].startswith(reason)
    assert read == of_first
    assert read == {"round": 9, "exchange": 0, "user": 5, "accepted": "-1", "sizes": [8, 4]}
