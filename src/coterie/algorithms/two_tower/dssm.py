"""DSSM: three dense layers over a bag of letter trigrams (Huang et al. 2013; STTFedRec, Sections 3.4 and 4.2).

    l_1 = tanh(W_1 x + b_1),    l_2 = tanh(W_2 l_1 + b_2),    y = tanh(W_3 l_2 + b_3),    256, 128 and 128 wide

x is scaled to length one: an article of three thousand words would drive every unit of l_1 to its end, a title none. The first
product looks only at the inputs that are on, where they are few. Dropout hides units of l_1 and l_2.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from coterie.algorithms.two_tower import Net, Shapes, Tower
from coterie.algorithms.two_tower.reading import Batch

if TYPE_CHECKING:
    from torch import Tensor

MANY = 8
"""From one input in so many on, a CPU is faster with the whole matrix; a GPU gets it always."""


def shapes(n_inputs: int, widths: tuple[int, ...]) -> Shapes:
    found: Shapes = {}
    for n, (below, above) in enumerate(pairwise((n_inputs, *widths)), 1):
        found |= {f"weights{n}": (below, above), f"bias{n}": (above,)}
    return found


def hidden(widths: tuple[int, ...]) -> int:
    return sum(widths[:-1])


def embed(net: Net, batch: Batch) -> Tensor:
    import torch

    layer = torch.tanh(product(net["weights1"], batch) + net["bias1"])
    first = 0
    for n in range(2, len(net) // 2 + 1):
        if batch.keep_mask is not None:
            layer = layer * batch.keep_mask[:, first : first + layer.shape[1]]
            first += layer.shape[1]
        layer = torch.tanh(layer @ net[f"weights{n}"] + net[f"bias{n}"])
    return layer


def product(weights: Tensor, batch: Batch) -> Tensor:
    """x W, where x is as long as one."""
    import torch
    from torch.nn.functional import embedding_bag

    squares = torch.zeros(len(batch), device=weights.device)
    owner = torch.repeat_interleave(batch.offsets.diff(), output_size=len(batch.entries))
    squares.index_add_(0, owner, batch.weights * batch.weights)
    scaled = batch.weights / squares.clamp(min=1e-12).sqrt()[owner]
    if len(batch.entries) * MANY < len(batch) * len(weights) and not weights.is_cuda:
        return embedding_bag(
            batch.entries, weights, batch.offsets[:-1], mode="sum", per_sample_weights=scaled
        )
    whole = torch.zeros((len(batch), len(weights)), device=weights.device)
    return (
        whole.index_put_((owner, batch.entries), scaled) @ weights
    )  # an input stands but once in a row


TOWER = Tower("bags", (256, 128), shapes, hidden, embed)
