"""What towers get to read at a time, as tensors: rows of inputs or words, and which hidden units are hidden.

Dropout is drawn for each row from a key of its own, such as (round, item): whoever computes that row, a server or a device, hides the
same units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coterie.algorithms.two_tower.resident import there
from coterie.core import streams
from coterie.data.text import Ragged
from coterie.types import Ints, Longs, Rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    offsets: Tensor  # (n + 1,) row k is from offsets[k] on
    entries: Tensor  # inputs, or places among the distinct words of the batch
    weights: Tensor  # aligned with the entries
    words: (
        tuple[Tensor, Tensor] | None
    )  # (offsets, letters) of the distinct words; None where entries are inputs
    keep_mask: (
        Tensor | None
    )  # (n, hidden) what is left of hidden units: 0 or 1 / (1 - dropout); None leaves all

    def __len__(self) -> int:
        return len(self.offsets) - 1


def batch(
    read: Ragged,
    rows: Ints | Longs,
    letters: Rows | None,
    keep_mask: Tensor | None,
    device: torch.device,
) -> Batch:
    """Some rows of all that there is to read; `letters` are those of all words, for a tower that reads words."""
    import torch

    which = there(rows.astype(np.int64), device)
    offsets, entries, weights = gathered(read.rows, (read.rows.items, read.weights), which)
    if letters is None:
        return Batch(offsets, entries.long(), weights, None, keep_mask)
    distinct, places = torch.unique(entries.long(), return_inverse=True)
    first, spelt = gathered(letters, (letters.items,), distinct)
    return Batch(offsets, places, weights, (first, spelt.long()), keep_mask)


def gathered(rows: Rows, aligned: Sequence[np.ndarray], which: Tensor) -> tuple[Tensor, ...]:
    """The offsets of some rows numbered anew, and what is aligned with their items."""
    import torch

    starts = there(rows.offsets, which.device)
    counts = starts[which + 1] - starts[which]
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    total = int(offsets[-1])
    shifts = torch.repeat_interleave(starts[which] - offsets[:-1], counts, output_size=total)
    places = shifts + torch.arange(total, device=which.device)
    return offsets, *(there(array, which.device)[places] for array in aligned)


def dropout(
    keys: NDArray[np.uint64], units: int, share: float, device: torch.device
) -> Tensor | None:
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
