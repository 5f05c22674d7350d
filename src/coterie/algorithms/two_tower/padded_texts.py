"""Collections of texts in rows of one length, for a GPU.

A GPU replays recorded steps, and these need arrays of the same shapes in every round. So rows are
padded, and lengths that differ between rounds are rounded up to one of a few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.data.text import Ragged
from coterie.types import Floats, Ints, Rows

SMALLEST = 8
"""Lengths are rounded up to at least this many."""
_padded = WeakCache()
"""The padded texts of each collection, by the array of its weights."""


@dataclass(frozen=True, slots=True)
class PaddedTexts:
    """All texts of a collection, as `PaddedBatch` has them."""

    entries: Ints  # (texts, longest)
    weights: Floats  # (texts, longest)
    letters: Ints  # (words, longest); empty for bags


def padded_texts(texts: Ragged, content: Content, n_inputs: int) -> PaddedTexts:
    """The texts of a collection, padded. Those of a collection that lives on are cached."""
    cached: PaddedTexts | None = _padded.get(texts.weights)
    if cached is not None:
        return cached
    made = _pad_bags(texts) if content.encoding == "bags" else _pad_words(texts, content, n_inputs)
    _padded.put(texts.weights, made)
    return made


def _pad_bags(texts: Ragged) -> PaddedTexts:
    no_letters = np.empty((0, 0), np.int32)
    return PaddedTexts(
        pad(texts.rows, texts.rows.items, 0), pad(texts.rows, texts.weights, 0), no_letters
    )


def _pad_words(texts: Ragged, content: Content, n_inputs: int) -> PaddedTexts:
    distinct, places = np.unique(texts.rows.items, return_inverse=True)
    # Words are padded with words without letters, of which there is at least one.
    n_words = rounded_up(len(distinct) + 1)
    letters = content.letters.of_users(distinct)
    spelled = pad(letters, letters.items, n_inputs)
    more = np.full((n_words - len(distinct), spelled.shape[1]), n_inputs, np.int32)
    return PaddedTexts(
        pad(texts.rows, places.astype(np.int32), n_words - 1),
        pad(texts.rows, texts.weights, 0),
        np.concatenate([spelled, more]),
    )


def pad(rows: Rows, values: Ints | Floats, padding: int) -> np.ndarray:
    """(rows, longest) values that are aligned with the items of rows of different lengths."""
    counts = rows.counts
    longest = rounded_up(int(counts.max(initial=0)))
    padded = np.full((len(counts), longest), padding, values.dtype)
    padded[np.arange(longest) < counts[:, None]] = values
    return padded


def rounded_up(n: int) -> int:
    """A multiple of an eighth of the next power of two: at most a quarter more than n, or 8."""
    step = max((1 << max(n - 1, 0).bit_length()) // 8, SMALLEST)
    return max(-(-n // step), 1) * step
