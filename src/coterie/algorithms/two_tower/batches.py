"""Batches of texts as tensors, and dropout masks.

Dropout is drawn for each row from its own key, such as (round, item). A server and a client that
compute the same row therefore drop the same units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coterie.algorithms.two_tower.device_arrays import to_device
from coterie.core import streams
from coterie.data.text import Ragged
from coterie.types import Ints, Longs, Rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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


def make_batch(
    texts: Ragged,
    rows: Ints | Longs,
    letters: Rows | None,
    keep_mask: Tensor | None,
    device: torch.device,
) -> TextBatch:
    """The texts of some rows. `letters` has the inputs of every word, for towers over words."""
    import torch

    which = to_device(rows.astype(np.int64), device)
    offsets, entries, weights = gather(texts.rows, (texts.rows.items, texts.weights), which)
    if letters is None:
        return TextBatch(offsets, entries.long(), weights, None, keep_mask)
    distinct, places = torch.unique(entries.long(), return_inverse=True)
    first, spelling = gather(letters, (letters.items,), distinct)
    return TextBatch(offsets, places, weights, (first, spelling.long()), keep_mask)


def gather(rows: Rows, aligned: Sequence[np.ndarray], which: Tensor) -> tuple[Tensor, ...]:
    """The offsets of some rows, and the parts of arrays that are aligned with their items."""
    import torch

    starts = to_device(rows.offsets, which.device)
    counts = starts[which + 1] - starts[which]
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    total = int(offsets[-1])
    shifts = torch.repeat_interleave(starts[which] - offsets[:-1], counts, output_size=total)
    places = shifts + torch.arange(total, device=which.device)
    return offsets, *(to_device(array, which.device)[places] for array in aligned)


def dropout(
    keys: NDArray[np.uint64], units: int, share: float, device: torch.device
) -> Tensor | None:
    """(rows, units) the mask of every unit, from the row's own stream, 16 random bits per unit."""
    import torch

    if not share:
        return None
    steps = np.arange(1, -(-units // 4) + 1, dtype=np.uint64) * np.uint64(streams.GOLDEN)
    # PyTorch has no arithmetic on unsigned words; signed words wrap around to the same bits.
    row_keys, at = (torch.from_numpy(words.view(np.int64)).to(device) for words in (keys, steps))
    sixteen = mix(row_keys[:, None] + at).view(torch.int16)[:, :units].to(torch.int32) & 0xFFFF
    threshold = round(share * 65536)
    return (sixteen >= threshold).to(torch.float32) / (1 - threshold / 65536)


def mix(words: Tensor) -> Tensor:
    """`streams.mix_array` on any device, in signed words."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ _shifted(words, shift)) * (factor - (1 << 64))
    return words ^ _shifted(words, 31)


def _shifted(words: Tensor, by: int) -> Tensor:
    """An unsigned right shift: the mask removes the copies of the sign bit."""
    return (words >> by) & ((1 << (64 - by)) - 1)
