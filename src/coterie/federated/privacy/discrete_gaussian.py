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
from coterie.federated.privacy.staircase import MOST_COLUMNS, Staircase, exact_sample, staircase
from coterie.federated.secagg.crypto import KEY_BYTES, Uint64Array, new_seed, zeros
from coterie.federated.secagg.words import from_bytes
from coterie.types import Longs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import CipherContext

WordSource: TypeAlias = Callable[[int], Uint64Array]
"""Gives the next n words of a random stream."""
MAX_LOG2_SIGMA = 22
"""A place in a column takes 17 bits then, what half a word has left."""
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
    samples: Longs = np.empty(size, np.int64)
    stairs = staircase(min(1 << log2_sigma, MOST_COLUMNS))
    halves = _Halves(random_words)
    done = 0
    while done < size:
        halves.request(size - done)
        done, is_exact = _draw(stairs, log2_sigma, halves, samples, done)
        if is_exact:
            sample = exact_sample(stairs, log2_sigma, halves.next)
            if sample is not None:
                samples[done] = sample
                done += 1
    return samples


class _Halves:
    """The halves of a stream's words, the low one of each first."""

    def __init__(self, random_words: WordSource) -> None:
        self.random_words = random_words
        self.words: Uint64Array = np.empty(0, np.uint64)
        self.at = 0

    def request(self, n_samples: int) -> None:
        """Have words for one of some samples at least, which takes two halves at most."""
        if 2 * len(self.words) - self.at < 2:
            self._append(min(1 + n_samples * 9 // 16, MAX_WORDS))

    def next(self) -> int:
        if self.at == 2 * len(self.words):
            self._append(1)
        word = int(self.words[self.at // 2])
        half = word >> 32 if self.at % 2 else word & 0xFFFFFFFF
        self.at += 1
        return half

    def _append(self, n: int) -> None:
        unused = self.words[self.at // 2 :]
        self.words = np.concatenate([unused, self.random_words(n)])
        self.at %= 2


def _draw(
    stairs: Staircase, log2_sigma: int, halves: _Halves, samples: Longs, done: int
) -> tuple[int, bool]:
    """(samples that are done, whether the next one takes exact arithmetic)."""
    counts: Longs = np.array([0, halves.at, 0], np.int64)
    kernels.load("discrete_gaussian").draw(
        halves.words,
        stairs.column,
        stairs.level,
        stairs.left,
        stairs.n_sure,
        stairs.n_columns,
        stairs.n_bricks,
        stairs.height,
        log2_sigma,
        samples[done:],
        counts,
    )
    n, halves.at, is_exact = counts.tolist()
    return done + n, bool(is_exact)


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
