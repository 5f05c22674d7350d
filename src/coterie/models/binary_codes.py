"""Users and items as codes of bits: y = a (k - 2 h) + c, h being the bits in which they differ.

A code of k bits stands for a vector of k entries +1 and -1, so that k - 2 h is an inner product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints, Longs, Octets, Signs

WORD = 8
"""Bytes that are compared at a time."""
BLOCK = 1 << 14
"""Codes that are compared at a time, so that what is in between stays in the processor's cache."""


@dataclass(frozen=True, slots=True)
class BinaryCodes(Recommender):
    kind: ClassVar[str] = "binary-codes"
    of_users: ClassVar[tuple[str, ...]] = ("user_codes",)
    private: ClassVar[tuple[str, ...]] = ("user_codes",)
    trained: ClassVar[tuple[str, ...]] = ("user_codes", "item_codes")
    user_codes: Octets  # (users, bytes) eight bits in each; those after the last are zero
    item_codes: Octets  # (items, bytes)
    bits: Longs  # (1,) k
    scale: Floats  # (1,) a
    offset: Floats  # (1,) c

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return self._scores(self.user_codes[users], items)

    def score_signs(self, code: Signs) -> Floats:
        """Scores of all items for the code of a user who was not in training."""
        scores: Floats = self._scores(packed(code[None, :]), None)[0]
        return scores

    def similar_items(self, item: int) -> Floats:
        """Cosines of codes."""
        different = distances(self.item_codes[item : item + 1], self.item_codes)[0]
        similar: Floats = (1 - 2 * different / np.float32(self.bits[0])).astype(np.float32)
        return similar

    def _scores(self, codes: Octets, items: Ints | None) -> Floats:
        if items is None:
            different = distances(codes, self.item_codes)
        else:
            different = np.bitwise_count(codes[:, None, :] ^ self.item_codes[items]).sum(axis=2)
        # a (k - 2 h) + c, in place: with many items the passes over memory are most of the time.
        scores: Floats = different.astype(np.float32)
        scores *= -2 * self.scale
        scores += self.scale * np.float32(self.bits[0]) + self.offset
        return scores


def packed(signs: Signs) -> Octets:
    """(n, k) vectors of +1 and -1 as codes; a bit is set for +1."""
    return np.packbits(signs > 0, axis=1)


def unpacked(codes: Octets, bits: int) -> Signs:
    """The inverse of `packed`."""
    found = np.unpackbits(codes, axis=1, count=bits).astype(np.int8)
    return 2 * found - 1


def distances(left: Octets, right: Octets) -> NDArray[np.uint16]:
    """(n, m) the number of bits in which every code on the left differs from every other."""
    a = _words(left)
    b = _words(right)
    found = np.zeros((len(left), len(right)), np.uint16)
    for first in range(0, len(right), BLOCK):
        part = slice(first, first + BLOCK)
        for w in range(a.shape[1]):
            found[:, part] += np.bitwise_count(a[:, None, w] ^ b[None, part, w])
    return found


def _words(codes: Octets) -> NDArray[np.uint64]:
    """Eight bytes at a time, the last word filled up with zeros."""
    n, width = codes.shape
    if width % WORD == 0 and codes.flags.c_contiguous:
        return codes.view(np.uint64)
    whole = np.zeros((n, -(-width // WORD) * WORD), np.uint8)
    whole[:, :width] = codes
    return whole.view(np.uint64)
