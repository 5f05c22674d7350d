"""Discrete Gaussian noise from a stream of random words.

The noise protects users only while its words are secret and never repeat: `system_words`, or
`words_from_key` with a key that is secret and used once. `seeded_words` is for simulations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coterie import kernels
from coterie.errors import MissingExtra
from coterie.federated.secagg.crypto import KEY_BYTES, Uint64Array, new_seed, zeros
from coterie.federated.secagg.words import from_bytes
from coterie.types import Longs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

WordSource: TypeAlias = Callable[[int], Uint64Array]
"""Gives the next n words of a random stream."""
MAX_LOG2_SIGMA = 24
"""With more, the exponents of the kernel would not fit in 64 bits."""
WORDS_PER_SAMPLE = 4
"""A little more than the mean: 3.8 words for sigma >= 2^3, and 4.6 for sigma = 1."""
MAX_WORDS = 1 << 15
"""Words requested at once. They stay in the processor's cache."""


def discrete_gaussian(size: int, log2_sigma: int, random_words: WordSource) -> Longs:
    """Independent integers y with P(y) proportional to exp(-y^2 / (2 sigma^2)), exactly.

    sigma = 2^log2_sigma. The result depends on the words of the stream alone, not on how many are
    requested at once. Words are requested in blocks, so a few more are taken than are used.
    """
    if size < 0:
        raise ValueError(f"size is {size}; it must not be negative")
    if not 0 <= log2_sigma <= MAX_LOG2_SIGMA:
        raise ValueError(
            f"log2_sigma is {log2_sigma}; it must be an integer from 0 to {MAX_LOG2_SIGMA}"
        )
    draw = kernels.load("discrete_gaussian").draw
    samples: Longs = np.empty(size, np.int64)
    counts: Longs = np.empty(2, np.int64)
    done = 0
    unused: Uint64Array = np.empty(0, np.uint64)
    while done < size:
        wanted = min(WORDS_PER_SAMPLE * (size - done), MAX_WORDS)
        words = np.concatenate([unused, random_words(wanted)])
        draw(words, log2_sigma, samples[done:], counts)
        done += int(counts[0])
        unused = words[counts[1] :]
    return samples


def system_words() -> WordSource:
    """Words that nobody can predict: every request has a key of the operating system's generator.

    A stream with a single key would repeat in a forked process.
    """
    _need_cryptography()
    return lambda n: _key_stream(_cipher(new_seed()), n)


def words_from_key(key: bytes) -> WordSource:
    """The same words for everyone who has the key."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"the key has {len(key)} bytes; it must have {KEY_BYTES}")
    _need_cryptography()
    stream = _cipher(key)
    return lambda n: _key_stream(stream, n)


def _cipher(key: bytes) -> CipherContext:
    """AES-256 in counter mode.

    Its key stream takes 0.4 ns a byte where the processor has instructions for AES, ChaCha20 1.2
    and the operating system's generator 3.4 (Neoverse N1).
    """
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CTR

    return Cipher(AES(key), CTR(bytes(16))).encryptor()


def seeded_words(generator: np.random.Generator) -> WordSource:
    """Reproducible words for simulations. Whoever knows the seed can subtract the noise."""
    largest = np.iinfo(np.uint64).max
    return lambda n: generator.integers(0, largest, n, np.uint64, endpoint=True)


def _key_stream(stream: CipherContext, n: int) -> Uint64Array:
    return from_bytes(stream.update(zeros(8 * n)), 64).astype(np.uint64, copy=False)


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("secret noise", "privacy") from None
