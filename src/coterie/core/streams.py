"""Random streams: each is a pure function of (seed, purpose, indices such as round and user).

All randomness except secrets comes from this module. No generator outlives a call, so no generator
state is saved, and no stream depends on how many numbers another stream drew. Secrets (keys, masks)
come from a cryptographic generator instead.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64 (Steele et al. 2014)


def key(seed: int, purpose: str, *indices: int) -> int:
    """The 64-bit key of one stream; different arguments give unrelated keys."""
    word = mix(seed & WORD)
    for part in (_word(purpose), *indices):
        word = mix(word ^ ((part + GOLDEN) & WORD))
    return word


def keys(seed: int, purpose: str, *indices: int, last: NDArray[np.integer]) -> NDArray[np.uint64]:
    """`key(seed, purpose, *indices, i)` for every i in `last`, in one pass."""
    start = np.uint64(key(seed, purpose, *indices))
    return mix_array(start ^ (last.astype(np.uint64) + np.uint64(GOLDEN)))


def words(keys: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """The n-th number of every stream (SplitMix64). Kernels draw the same numbers."""
    return mix_array(keys + np.uint64((GOLDEN * (n + 1)) & WORD))


def first_words(keys: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """(n, streams) the first n numbers of every stream."""
    steps = np.arange(1, n + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    return mix_array(keys + steps[:, None])


def below(words: NDArray[np.uint64], limits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integers below each limit from random words (multiply-shift, bias at most limit / 2^32)."""
    return (((words >> np.uint64(32)) * limits.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def uniform(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """A number in [0, 1) from each stream."""
    drawn: NDArray[np.float64] = (words(keys, 0) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn


def normal(keys: NDArray[np.uint64], n: int) -> NDArray[np.float64]:
    """(streams, n) standard normal numbers; a row depends on its stream only (Box-Muller 1958)."""
    drawn = np.stack([words(keys, j) for j in range(n + n % 2)], axis=1) >> np.uint64(11)
    uniform = (drawn + 0.5) * 2.0**-53  # in (0, 1)
    radius = np.sqrt(-2 * np.log(uniform[:, 0::2]))
    angle = 2 * np.pi * uniform[:, 1::2]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=2)
    return pairs.reshape(len(keys), n + n % 2)[:, :n]


def at(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """A NumPy generator for one stream."""
    return np.random.Generator(np.random.PCG64(key(seed, purpose, *indices)))


def mix(word: int) -> int:
    """SplitMix64's finaliser: every input bit affects every output bit."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def mix_array(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _word(purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")
