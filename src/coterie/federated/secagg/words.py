"""The words of a ring's vectors: integers modulo 2^32 or 2^64, and the signed integers they encode.

Half the word is half the bytes of masks and uploads. An exchange declares the word and the bound of
a client's entry (`SecureSum`); the sum over a ring is exact while it is below 2^(word - 1) in size.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.types import Longs

Word: TypeAlias = Literal[32, 64]
"""Bits of a word."""
Words: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""A vector of integers modulo 2^word."""
UNSIGNED: dict[Word, type[np.unsignedinteger[Any]]] = {32: np.uint32, 64: np.uint64}
SIGNED: dict[Word, type[np.signedinteger[Any]]] = {32: np.int32, 64: np.int64}
MAX_ENTRY = 1 << 46
"""Bound of an entry of one client's vector: an update times a sample count, or times itself."""


def fits(integers: Longs, bound: int) -> bool:
    """Whether no integer exceeds the bound in size."""
    return int(integers.min(initial=0)) >= -bound and int(integers.max(initial=0)) <= bound


def to_words(integers: Longs, word: Word) -> Words:
    """Signed integers modulo 2^word."""
    return integers.astype(SIGNED[word], copy=False).view(UNSIGNED[word])


def to_integers(words: Words, word: Word) -> Longs:
    """The signed integers that words encode."""
    return words.view(SIGNED[word]).astype(np.int64, copy=False)


def from_bytes(content: bytes, word: Word) -> Words:
    """Words from their little-endian bytes."""
    return np.frombuffer(content, f"<u{word // 8}").astype(UNSIGNED[word], copy=False)


def to_bytes(words: Words, word: Word) -> bytes:
    return words.astype(f"<u{word // 8}", copy=False).tobytes()
