"""Long-term signing keys of clients (Ed25519), which other clients know since they joined."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from coterie.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """The key by which a client proves that a message is its own."""

    private: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> Identity:
        return cls(_ed25519().generate())

    @classmethod
    def from_secret(cls, secret: bytes) -> Identity:
        return cls(_ed25519().from_private_bytes(secret))

    @property
    def secret(self) -> bytes:
        return self.private.private_bytes_raw()

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        return self.private.sign(text)


def _ed25519() -> type[Ed25519PrivateKey]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError:
        raise MissingExtra("secure aggregation", "secagg") from None
    return Ed25519PrivateKey


@lru_cache(maxsize=4096)
def is_signed(public: bytes, text: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key signed a text.

    A node whose users are in one group sees the same signatures again and again.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


class Identities(Protocol):
    """The signing keys that a node knows: those of its own users, and the public ones of all."""

    def own(self, user: int) -> Identity:
        """The key of one of the node's users."""
        ...

    def public(self, user: int) -> bytes | None:
        """The public key of a user of any node; None if it is not known."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class StoredIdentities:
    """Keys of a node in a federation: those of its users, and the pinned ones of all by index."""

    secret: Mapping[int, Identity]
    pinned: Sequence[bytes]

    def own(self, user: int) -> Identity:
        return self.secret[user]

    def public(self, user: int) -> bytes | None:
        return self.pinned[user] or None if 0 <= user < len(self.pinned) else None


@dataclass(frozen=True, slots=True)
class SimulatedIdentities:
    """Keys of a simulation: derived from its seed, so that every node knows the public ones."""

    seed: int

    def own(self, user: int) -> Identity:
        return _simulated(self.seed, user)

    def public(self, user: int) -> bytes | None:
        return _simulated_public(self.seed, user)


@lru_cache(maxsize=1 << 14)
def _simulated(seed: int, user: int) -> Identity:
    return Identity.from_secret(hashlib.sha256(b"identity %d %d" % (seed, user)).digest())


@lru_cache(maxsize=1 << 14)
def _simulated_public(seed: int, user: int) -> bytes:
    return _simulated(seed, user).public
