"""Seeds, the masks they expand to, and authenticated encryption between two clients.

Secrets come from the operating system's random generator only. `coterie.core.streams` is
reproducible from the run's seed, so a mask drawn from it would hide nothing.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, NewType

import numpy as np
from numpy.typing import NDArray

from coterie.errors import MissingExtra
from coterie.federated.secagg.words import UNSIGNED, Word, Words
from coterie.types import Octets

if TYPE_CHECKING:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.x25519 import (
        X25519PrivateKey,
        X25519PublicKey,
    )
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

Uint64Array = NDArray[np.uint64]
"""A vector of integers modulo 2^64."""
Seed = NewType("Seed", bytes)
SEED_BYTES = 32
KEY_BYTES = 32
TAG_BYTES = 16
"""Length of the authentication tag: a ciphertext is this much longer than its plaintext."""


class Rejected(ValueError):
    """A key, ciphertext or request that a client does not accept."""


class _Primitives(NamedTuple):
    """What is used of `cryptography`, an extra that is imported where it is needed first."""

    HKDF: type[HKDF]
    SHA256: type[SHA256]
    ChaCha20Poly1305: type[ChaCha20Poly1305]
    ChaCha20: type[ChaCha20]
    Cipher: type[Cipher[None]]
    InvalidTag: type[InvalidTag]


@lru_cache(maxsize=1)
def _primitives() -> _Primitives:
    """Thousands of calls a round: an import statement in each would take as long as its work."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return _Primitives(HKDF, SHA256, ChaCha20Poly1305, ChaCha20, Cipher, InvalidTag)


def new_seed() -> Seed:
    return Seed(secrets.token_bytes(SEED_BYTES))


def expand(seed: Seed, n: int, word: Word = 64) -> Words:
    """Expand a seed to n integers modulo 2^word: the key stream of ChaCha20 (RFC 8439).

    Without the seed they cannot be told from uniform integers, and neither can the sum of a vector
    and such a mask. Masks in floating point have no uniform distribution and leak.
    """
    return expand_into(np.empty(n * word // 8, np.uint8), seed, word)


def expand_into(stream: Octets, seed: Seed, word: Word) -> Words:
    """`expand` in memory that is used again: for many long masks, new memory takes its time."""
    use = _primitives()
    # A nonce separates several streams of one key. A seed is expanded to one stream only.
    cipher = use.Cipher(use.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    cipher.update_into(zeros(len(stream)), stream.data)
    return stream.view(f"<u{word // 8}").astype(UNSIGNED[word], copy=False)


@lru_cache(maxsize=2)
def zeros(n: int) -> bytes:
    """What a key stream is added to. The same zeros serve all masks of a length."""
    return bytes(n)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A client's X25519 key pair.

    Clients have no channel to each other, so the server relays what they exchange. Key agreement
    lets two neighbours derive a key from public keys that the server may see. X25519 has short
    keys and is fast on phones. A pair serves one ring or group: a device that is compromised later
    does not hold the keys of earlier ones.

    In a ring, public keys are not signed: a server that lies can substitute its own keys and read
    every share; an honest-but-curious one cannot. In `secagg` they are.
    """

    private: X25519PrivateKey = field(repr=False)
    public: bytes

    @classmethod
    def generate(cls) -> KeyPair:
        try:
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
        except ModuleNotFoundError:
            raise MissingExtra("secure aggregation", "secagg") from None
        private = X25519PrivateKey.generate()
        return cls(private, private.public_key().public_bytes_raw())

    @classmethod
    def from_secret(cls, secret: bytes) -> KeyPair:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        private = X25519PrivateKey.from_private_bytes(secret)
        return cls(private, private.public_key().public_bytes_raw())

    @property
    def secret(self) -> bytes:
        return self.private.private_bytes_raw()

    def accepts(self, public: bytes) -> bool:
        """Whether a key can be agreed on with the owner of a public key."""
        try:
            return bool(self._derive_key(public, b"trial"))
        except Rejected:
            return False

    def exchange(self, public: bytes) -> bytes:
        """The secret that this pair and the owner of a public key share: never a key itself."""
        try:
            return self.private.exchange(_public_key(public))
        except ValueError:
            # Wrong length, or a low-order point: the latter would make the secret known to all.
            raise Rejected("a public key is not a usable X25519 key") from None

    def encrypt(self, plaintext: bytes, public: bytes, context: bytes) -> bytes:
        """Encrypt for the owner of a public key; the ciphertext is valid in one context only."""
        key = self._derive_key(public, self.public + public + context)
        return encrypt(key, plaintext, context)

    def decrypt(self, ciphertext: bytes, public: bytes, context: bytes) -> bytes:
        """Decrypt what the owner of a public key encrypted for this pair in this context."""
        key = self._derive_key(public, public + self.public + context)
        return decrypt(key, ciphertext, context)

    def _derive_key(self, public: bytes, info: bytes) -> bytes:
        """Derive a key from the shared secret, bound to `info`.

        `info` names sender, receiver and context: a server cannot replay a ciphertext in another
        round, ring, attempt or direction, nor return it to its sender.
        """
        return derive_key(self.exchange(public), b"coterie ring" + info)


@lru_cache(maxsize=4096)
def _public_key(public: bytes) -> X25519PublicKey:
    """Parsed once: a node agrees on a key with the same client for several of its users."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return X25519PublicKey.from_public_bytes(public)


def derive_key(secret: bytes, info: bytes) -> bytes:
    """A key from a shared secret, with HKDF-SHA256: X25519's secret is not uniform."""
    use = _primitives()
    return use.HKDF(use.SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


def key_in_one_node(secret: bytes, info: bytes) -> bytes:
    """A key from a uniform secret that never leaves a node, with keyed BLAKE2b (RFC 7693).

    It takes a tenth of the time of HKDF, which has to agree with other nodes.
    """
    return hashlib.blake2b(info, key=secret, digest_size=KEY_BYTES).digest()


def encrypt(key: bytes, plaintext: bytes, context: bytes) -> bytes:
    """Authenticated encryption with a key that is bound to the context, and is used once."""
    # The context is part of the key, so a key encrypts once and the nonce may be constant.
    return _primitives().ChaCha20Poly1305(key).encrypt(bytes(12), plaintext, context)


def decrypt(key: bytes, ciphertext: bytes, context: bytes) -> bytes:
    use = _primitives()
    try:
        return use.ChaCha20Poly1305(key).decrypt(bytes(12), ciphertext, context)
    except use.InvalidTag:
        raise Rejected(
            "a ciphertext fails authentication: it was changed, or made for another context"
        ) from None


@dataclass(frozen=True, slots=True, repr=False)
class PairSecrets:
    """Shared secrets of the clients that one node hosts, each computed once for both sides.

    They are as secret as the private keys, and are discarded with them.
    """

    found: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    keys: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)

    def key(self, own: KeyPair, public: bytes, info: bytes) -> bytes:
        """The key that two clients share for one purpose."""
        secret = self.between(own, public)
        key = self.keys.get((secret, info))
        if key is None:
            key = self.keys[secret, info] = derive_key(secret, info)
        return key

    def between(self, own: KeyPair, public: bytes) -> bytes:
        pair = (own.public, public) if own.public < public else (public, own.public)
        secret = self.found.get(pair)
        if secret is None:
            secret = self.found[pair] = own.exchange(public)
        return secret
