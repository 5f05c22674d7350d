"""What towers get to read at a time, as tensors: rows of inputs or words, and which hidden units are hidden.

Dropout is drawn for each row from a key of its own, such as (round, item): whoever computes that row, a server or a device, hides the
same units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coterie import streams
from coterie.texts import Ragged
from coterie.types import Rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    offsets: Tensor  # (n + 1,) row k is from offsets[k] on
    entries: Tensor  # inputs, or places in `words`
    weights: Tensor  # aligned with the entries
    words: Rows | None  # the distinct words of the batch, as letters; None where entries are inputs
    kept: Tensor | None  # (n, hidden) what is left of hidden units: 0 or 1 / (1 - dropout); None leaves all

    def __len__(self) -> int:
        return len(self.offsets) - 1


def batch(read: Ragged, letters: Rows | None, kept: Tensor | None, device: torch.device) -> Batch:
    """`letters` are those of all words, for a tower that reads words."""
    import torch

    entries, words = read.rows.items.astype(np.int64), None
    if letters is not None:
        distinct, entries = np.unique(entries, return_inverse=True)
        words = letters.of_users(distinct)
    offsets, places, weights = (torch.from_numpy(a).to(device) for a in (read.rows.offsets, entries, read.weights))
    return Batch(offsets, places, weights, words, kept)


def dropout(keys: NDArray[np.uint64], units: int, share: float, device: torch.device) -> Tensor | None:
    """(rows, units) what is left of every unit, from the row's own stream; sixteen bits decide about one."""
    import torch

    if not share:
        return None
    steps = np.arange(1, -(-units // 4) + 1, dtype=np.uint64) * np.uint64(streams.GOLDEN)
    mine, at = (torch.from_numpy(words.view(np.int64)).to(device) for words in (keys, steps))
    sixteen = mixed(mine[:, None] + at).view(torch.int16)[:, :units].to(torch.int32) & 0xFFFF
    hidden = round(share * 65536)
    return (sixteen >= hidden).to(torch.float32) / (1 - hidden / 65536)


def mixed(words: Tensor) -> Tensor:
    """`streams.mix_array` on any device: PyTorch has no unsigned words, so that what a shift brings in is cut off."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ _shifted(words, shift)) * (factor - (1 << 64))
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, by: int) -> Tensor:
    return (words >> by) & ((1 << (64 - by)) - 1)
