"""Noise on a node's sums of metrics, if the owner of the node wants it.

A metric of a user lies between 0 and 1, so that noise with a standard deviation of several users
hides what one of them adds. It follows from the message and from a secret of the node: the same
message gets the same noise, and a server cannot average it out by asking again.
"""

from __future__ import annotations

import hmac
import secrets
from statistics import NormalDist

from coterie.deployment.node_private_store import NodeStore

NOISE_SECRET = "evaluation_noise_secret"
"""Metadata key of the secret."""
STEPS = 1 << 52
"""Values of a draw; a double holds each of them and a half."""


def with_noise(
    sums: dict[str, float], users: int, deviation: float, data: bytes, store: NodeStore
) -> dict[str, float]:
    """The sums over so many users with Gaussian noise, within what sums of metrics can be."""
    if not deviation:
        return sums
    secret = _secret(store)
    noise = NormalDist(0.0, deviation)
    return {
        name: min(max(total + noise.inv_cdf(_draw(secret, name, data)), 0.0), float(users))
        for name, total in sums.items()
    }


def _draw(secret: bytes, name: str, data: bytes) -> float:
    """A number between 0 and 1 that nobody without the secret can repeat."""
    digest = hmac.digest(secret, name.encode() + b"\0" + data, "sha256")
    bits = int.from_bytes(digest) % STEPS
    return (bits + 0.5) / STEPS


def _secret(store: NodeStore) -> bytes:
    known = store.meta(NOISE_SECRET)
    if known is None:
        known = secrets.token_hex(32)
        store.put_meta(**{NOISE_SECRET: known})
    return bytes.fromhex(known)
