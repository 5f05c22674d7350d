"""Histories with one bit per item, as clients hold their own: rows of equal length."""

from __future__ import annotations

import numpy as np

from coterie.types import Rows


def packed(histories: Rows, n_items: int) -> np.ndarray:
    """(users, bytes) histories with one bit per item."""
    bits = np.zeros((len(histories.counts), -(-n_items // 8)), np.uint8)
    user = np.repeat(np.arange(len(bits)), histories.counts)
    bit = (0x80 >> (histories.items & 7)).astype(np.uint8)
    np.bitwise_or.at(bits, (user, histories.items >> 3), bit)
    return bits


def unpacked(bits: np.ndarray, n_items: int) -> Rows:
    """The histories that were packed."""
    users, items = np.nonzero(np.unpackbits(bits, axis=1, count=n_items))
    counts = np.bincount(users, minlength=len(bits))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Rows(offsets, items.astype(np.int32))
