"""Long-term signing keys of clients (Ed25519), which other clients know since they joined."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

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
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ModuleNotFoundError:
            raise MissingExtra("secure_aggregation=secagg", "secagg") from None
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_secret(cls, secret: bytes) -> Identity:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.from_private_bytes(secret))

    @property
    def secret(self) -> bytes:
        return self.private.private_bytes_raw()

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        return self.private.sign(text)


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
