"""DSSM: three dense layers over a bag of letter trigrams.

Huang et al. 2013; STTFedRec, Sections 3.4 and 4.2.

    l_1 = tanh(W_1 x + b_1)      (256,)
    l_2 = tanh(W_2 l_1 + b_2)    (128,)
    y = tanh(W_3 l_2 + b_3)      (128,)

x is scaled to length one: without that, an article of three thousand words would saturate every
unit of l_1. The first product is sparse where few inputs are non-zero. Dropout applies to l_1 and
l_2.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from coterie.algorithms.two_tower import Shapes, Tower, TowerParameters
from coterie.algorithms.two_tower.batches import PaddedBatch, TextBatch

if TYPE_CHECKING:
    from torch import Tensor

DENSE_FROM = 8
"""A CPU multiplies densely from one non-zero input in this many on; a GPU always does."""
SHORTEST = 1e-12
"""Least squared length that x is divided by."""


def shapes(n_inputs: int, widths: tuple[int, ...]) -> Shapes:
    by_name: Shapes = {}
    for n, (below, above) in enumerate(pairwise((n_inputs, *widths)), 1):
        by_name |= {f"weights{n}": (below, above), f"bias{n}": (above,)}
    return by_name


def hidden(widths: tuple[int, ...]) -> int:
    return sum(widths[:-1])


def embed(net: TowerParameters, batch: TextBatch) -> Tensor:
    return layers(net, product(net["weights1"], batch), batch.keep_mask)


def embed_padded(net: TowerParameters, batch: PaddedBatch) -> Tensor:
    import torch

    squares = (batch.weights * batch.weights).sum(dim=1, keepdim=True)
    scaled = batch.weights / squares.clamp(min=SHORTEST).sqrt()
    x = torch.zeros((len(scaled), len(net["weights1"])), device=scaled.device)
    # An input occurs at most once in a row, apart from padding, which adds zero.
    x.scatter_add_(1, batch.entries, scaled)
    return layers(net, x @ net["weights1"], batch.keep_mask)


def layers(net: TowerParameters, first: Tensor, keep_mask: Tensor | None) -> Tensor:
    """The vectors, from the product W_1 x."""
    import torch

    layer = torch.tanh(first + net["bias1"])
    used = 0
    for n in range(2, len(net) // 2 + 1):
        if keep_mask is not None:
            layer = layer * keep_mask[:, used : used + layer.shape[1]]
            used += layer.shape[1]
        layer = torch.tanh(layer @ net[f"weights{n}"] + net[f"bias{n}"])
    return layer


def product(weights: Tensor, batch: TextBatch) -> Tensor:
    """x W, where x has length one."""
    import torch
    from torch.nn.functional import embedding_bag

    squares = torch.zeros(len(batch))
    owner = torch.repeat_interleave(batch.offsets.diff(), output_size=len(batch.entries))
    squares.index_add_(0, owner, batch.weights * batch.weights)
    scaled = batch.weights / squares.clamp(min=SHORTEST).sqrt()[owner]
    if len(batch.entries) * DENSE_FROM < len(batch) * len(weights):
        return embedding_bag(
            batch.entries, weights, batch.offsets[:-1], mode="sum", per_sample_weights=scaled
        )
    x = torch.zeros((len(batch), len(weights)))
    # An input occurs at most once in a row, so nothing needs to be accumulated.
    return x.index_put_((owner, batch.entries), scaled) @ weights


def multiplications(n_inputs: int, widths: tuple[int, ...], n_words: int) -> int:
    """|x| |C_1| + sum_l |C_(l-1)| |C_l|: a bag has one size, whatever the number of words."""
    return sum(below * above for below, above in pairwise((n_inputs, *widths)))


TOWER = Tower("bags", (256, 128), shapes, hidden, embed, embed_padded, multiplications)
