"""The stages of secure aggregation: their names, and what members of a ring receive at each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie.federated.secagg.crypto import KEY_BYTES
from coterie.types import Ints

StageArrays = dict[str, np.ndarray]
"""Arrays of one stage by their name on the wire; a row for every client, or those of one client."""
SendStage = Callable[[str, Ints, StageArrays], dict[int, StageArrays]]
"""(stage, users, what each is sent) -> the replies, by user, of the clients that replied."""
ReplySpec = dict[str, tuple[type[np.generic], tuple[int, ...]]]
"""What a client's reply has to hold: (dtype, shape) by name."""
ANY_LENGTH = 0
"""The size of a byte string whose length the receiver checks when it decrypts."""

RECEIVED: dict[str, dict[str, tuple[type[np.generic], int | None]]] = {
    "advertise_keys": {},
    "distribute_shares": {
        "attempt": (np.int32, None),
        "predecessor": (np.int32, None),
        "predecessor_key": (np.uint8, KEY_BYTES),
        "successor": (np.int32, None),
        "successor_key": (np.uint8, KEY_BYTES),
    },
    "upload": {
        "share_ciphertext": (np.uint8, ANY_LENGTH),
        "self_mask_ciphertext": (np.uint8, ANY_LENGTH),
    },
    "unmask": {
        "predecessor_uploaded": (np.uint8, None),
        "successor_uploaded": (np.uint8, None),
        "successor": (np.int32, None),
        "successor_key": (np.uint8, KEY_BYTES),
    },
    "reveal_self_mask_of_predecessor": {},
    "reveal_self_mask_of_successor": {},
    "recover": {
        "predecessor": (np.int32, None),
        "predecessor_key": (np.uint8, KEY_BYTES),
        "share_ciphertext": (np.uint8, ANY_LENGTH),
    },
}
"""What a member of a ring is sent at each stage: dtype, and the number of bytes; None is a single
number."""
RING_STAGES = tuple(RECEIVED)
"""The stages of a ring, in the order of the protocol."""
ADVERTISE = "secagg advertise"
SHARE = "secagg share"
UPLOAD = "secagg upload"
AGREE = "secagg agree"
UNMASK = "secagg unmask"
GROUP_STAGES = (ADVERTISE, SHARE, UPLOAD, AGREE, UNMASK)
"""The stages of a `secagg` group, in the order of the protocol."""
FIRST_STAGES = (RING_STAGES[0], ADVERTISE)
"""The stages that carry an exchange's message."""
ORDER = (*RING_STAGES, *GROUP_STAGES)
"""All stages. A stage's place is its number on the wire: append only."""
NO_REPLY: StageArrays = {"users": np.empty(0, np.int32)}


class Aborted(Exception):
    """The server aborts a ring or group: too few clients are left, or a secret is missing."""


def request(
    send: SendStage, stage: str, users: Ints, own: StageArrays, expected: ReplySpec
) -> dict[int, StageArrays]:
    """Run one stage. Replies come in the order of `users`; a malformed one counts as a dropout."""
    replies = send(stage, users, own)
    return {
        user: replies[user]
        for user in users.tolist()
        if user in replies and matches(replies[user], expected)
    }


def received_as_expected(stage: str, n: int, own: StageArrays) -> bool:
    """Whether arrays are what n clients are sent at a stage."""
    expected = RECEIVED[stage]
    return set(own) == set(expected) and all(
        has_rows(own[name], n, dtype, size) for name, (dtype, size) in expected.items()
    )


def has_rows(array: np.ndarray, n: int, dtype: type[np.generic], size: int | None) -> bool:
    """Whether an array has n rows of a dtype: single numbers, or byte strings of a size."""
    if array.dtype != dtype:
        return False
    if size is None:
        return array.shape == (n,)
    if array.ndim == 0:
        return False
    return array.shape == (n, size or array.shape[-1])


def require_clients(n: int, minimum: int, did: str) -> None:
    if n < minimum:
        raise Aborted(f"{n} clients {did}; the ring needs {minimum}")


def key_rows(keys: dict[int, bytes], users: Ints) -> np.ndarray:
    """(n, bytes) the public keys of some users."""
    joined = b"".join(keys[user] for user in users.tolist())
    return np.frombuffer(joined, np.uint8).reshape(len(users), -1)


def stacked(replies: dict[int, StageArrays], users: Ints, name: str) -> np.ndarray:
    """One array of some users' replies, a row for each user."""
    return np.stack([replies[user][name] for user in users.tolist()])


def matches(arrays: StageArrays, expected: ReplySpec) -> bool:
    """Whether a client's reply holds what it has to hold, and nothing else."""
    return set(arrays) == set(expected) and all(
        arrays[name].dtype == dtype and arrays[name].shape == shape
        for name, (dtype, shape) in expected.items()
    )
