"""Texts that a tower reads together, as tensors, and dropout masks.

Dropout is drawn for each row from its own key, such as (round, item). A server and a client that
compute the same row therefore drop the same units.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.core import streams
from coterie.core.sampling import Keys
from coterie.data.text import Ragged
from coterie.types import Ints, Longs, Rows

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class InputRows:
    """Some texts of a collection, with a key each for dropout."""

    source: Ragged
    rows: Ints | Longs
    keys: Keys | None = None  # None without dropout

    def parts(self, most: int) -> Iterator[InputRows]:
        """The rows in parts of at most this many."""
        for first in range(0, max(len(self.rows), 1), most):
            part = slice(first, first + most)
            keys = None if self.keys is None else self.keys[part]
            yield InputRows(self.source, self.rows[part], keys)

    def same_as(self, other: InputRows) -> bool:
        """Whether both give the same input to a tower."""
        same = self.source is other.source and np.array_equal(self.rows, other.rows)
        if self.keys is None or other.keys is None:
            return same and self.keys is other.keys
        return same and np.array_equal(self.keys, other.keys)


@dataclass(frozen=True, slots=True)
class TextBatch:
    """n texts, one after the other: text k is entries[offsets[k]:offsets[k + 1]]."""

    offsets: Tensor  # (n + 1,)
    entries: Tensor  # inputs, or positions among the distinct words of the batch
    weights: Tensor  # aligned with the entries
    words: tuple[Tensor, Tensor] | None
    """(offsets, letters) of the distinct words; None if the entries are inputs."""
    keep_mask: Tensor | None
    """(n, hidden units) 0 or 1 / (1 - dropout); None without dropout."""

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """n texts in rows of one length, for a GPU: the shapes are the same in every round."""

    entries: Tensor  # (n, longest) inputs, or words; padded with input 0, or with the last word
    weights: Tensor  # (n, longest) zero for padding
    letters: Tensor
    """(words, longest) the inputs of every word, padded with the number of inputs; empty if the
    entries are inputs."""
    keep_mask: Tensor | None
    """(n, hidden units) 0 or 1 / (1 - dropout); None without dropout."""


def make_batch(texts: InputRows, letters: Rows | None, keep_mask: Tensor | None) -> TextBatch:
    """The texts on the CPU. `letters` has the inputs of every word, for towers over words."""
    import torch

    chosen = texts.source.take(texts.rows)
    offsets = torch.from_numpy(chosen.rows.offsets)
    entries = torch.from_numpy(chosen.rows.items).long()
    weights = torch.from_numpy(chosen.weights)
    if letters is None:
        return TextBatch(offsets, entries, weights, None, keep_mask)
    distinct, places = torch.unique(entries, return_inverse=True)
    spelled = letters.of_users(distinct.numpy())
    words = (torch.from_numpy(spelled.offsets), torch.from_numpy(spelled.items).long())
    return TextBatch(offsets, places, weights, words, keep_mask)


def dropout(keys: Keys, units: int, share: float) -> Tensor | None:
    """The masks of rows with these keys, on the CPU; None without dropout."""
    import torch

    # PyTorch has no arithmetic on unsigned words; signed words wrap around to the same bits.
    return keep_mask(torch.from_numpy(keys.view(np.int64)), units, share) if share else None


def keep_mask(keys: Tensor, units: int, share: float) -> Tensor:
    """(rows, units) the mask of every unit, from the row's own stream, 16 random bits per unit."""
    import torch

    steps = torch.arange(1, -(-units // 4) + 1, device=keys.device) * _signed(streams.GOLDEN)
    sixteen = mix(keys[:, None] + steps).view(torch.int16)[:, :units].to(torch.int32) & 0xFFFF
    threshold = round(share * 65536)
    return (sixteen >= threshold).to(torch.float32) / (1 - threshold / 65536)


def mix(words: Tensor) -> Tensor:
    """`streams.mix_array` on any device, in signed words."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ _shifted(words, shift)) * _signed(factor)
    return words ^ _shifted(words, 31)


def _signed(word: int) -> int:
    """A word from 2^63 on, as the signed number with the same bits."""
    return word - (1 << 64)


def _shifted(words: Tensor, by: int) -> Tensor:
    """An unsigned right shift: the mask removes the copies of the sign bit."""
    return (words >> by) & ((1 << (64 - by)) - 1)
