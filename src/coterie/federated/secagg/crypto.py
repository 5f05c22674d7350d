"""Seeds, the masks they grow into, and boxes that only one neighbour can open. Secrets come from the operating system and from nowhere else."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, NewType

import numpy as np
from numpy.typing import NDArray

from coterie.errors import MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

Words = NDArray[np.uint64]
"""Numbers modulo 2^64."""
Seed = NewType("Seed", bytes)
SEED_BYTES = 32
KEY_BYTES = 32
TAG_BYTES = 16
"""What a box is longer than what is in it."""


class Refused(ValueError):
    """A box that was not made for this purpose, or was changed on its way."""


def fresh() -> Seed:
    return Seed(secrets.token_bytes(SEED_BYTES))


def grown(seed: Seed, n: int) -> Words:
    """n numbers modulo 2^64, each value as likely as any other to whoever does not know the seed: ChaCha20's key stream (RFC 8439)."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    stream = Cipher(
        ChaCha20(seed, bytes(16)), mode=None
    ).encryptor()  # a seed has one stream: the nonce may be nought
    return np.frombuffer(stream.update(bytes(8 * n)), "<u8").astype(np.uint64, copy=False)


@dataclass(frozen=True, slots=True)
class Lock:
    """One member's half of the keys that it shares with others in a round (X25519)."""

    private: X25519PrivateKey

    @classmethod
    def fresh(cls) -> Lock:
        try:
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
        except ModuleNotFoundError:
            raise MissingExtra("secure_aggregation=ring", "secagg") from None
        return cls(X25519PrivateKey.generate())

    @classmethod
    def of(cls, secret: bytes) -> Lock:
        """The one with this secret."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        return cls(X25519PrivateKey.from_private_bytes(secret))

    @property
    def secret(self) -> bytes:
        return self.private.private_bytes_raw()

    def fits(self, public: bytes) -> bool:
        """Whether some bytes are a key that can be used."""
        try:
            return bool(self._key(public, b"trial"))
        except Refused:
            return False

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    def sealed(self, content: bytes, public: bytes, context: bytes) -> bytes:
        """A box for the owner of a public key, and for one purpose."""
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        key = self._key(public, self.public + public + context)
        return ChaCha20Poly1305(key).encrypt(
            bytes(12), content, context
        )  # a key closes one box: the nonce may be nought

    def opened(self, box: bytes, public: bytes, context: bytes) -> bytes:
        """What the owner of a public key put into a box for this purpose."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        try:
            return ChaCha20Poly1305(self._key(public, public + self.public + context)).decrypt(
                bytes(12), box, context
            )
        except InvalidTag:
            raise Refused("a box was changed on its way, or was made for another purpose") from None

    def _key(self, public: bytes, purpose: bytes) -> bytes:
        """HKDF of the shared secret: another key for every purpose, sender and receiver."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        try:
            shared = self.private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise Refused("a public key is none") from None
        return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"coterie ring" + purpose).derive(shared)
