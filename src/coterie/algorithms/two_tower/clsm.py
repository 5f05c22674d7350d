"""CLSM: a convolution over words, the strongest signal of each kind, and one dense layer (Shen et al. 2014; STTFedRec, Section 4.2).

    h_p = tanh(W_left w_(p-1) + W_middle w_p + W_right w_(p+1) + b),    v = max over p of h_p,    y = tanh(V v + c)

w_p is the word at place p as letter trigrams, and nothing beyond either end; v is 300 wide and y 128. A word is multiplied once however
often it stands in a batch. tanh keeps the order of numbers, so that the largest sum is found first and only that one is followed:
back-propagation never sees the other places. Dropout hides units of v.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coterie.algorithms.two_tower import Net, Shapes, Tower
from coterie.algorithms.two_tower.reading import Batch

if TYPE_CHECKING:
    from torch import Tensor

WINDOW = 3


def shapes(n_inputs: int, widths: tuple[int, ...]) -> Shapes:
    pooled, out = widths
    return {
        "window": (n_inputs, WINDOW * pooled),
        "bias": (pooled,),
        "weights": (pooled, out),
        "out": (out,),
    }


def hidden(widths: tuple[int, ...]) -> int:
    return widths[0]


def embed(net: Net, batch: Batch) -> Tensor:
    import torch

    pooled = torch.tanh(strongest(parts(net["window"], batch), batch) + net["bias"])
    if batch.keep_mask is not None:
        pooled = pooled * batch.keep_mask
    return torch.tanh(pooled @ net["weights"] + net["out"])


def parts(window: Tensor, batch: Batch) -> Tensor:
    """(3, words + 1, pooled) what every distinct word adds to the place right of it, its own, and the one left of it; last, nothing."""
    import torch
    from torch.nn.functional import embedding_bag

    assert batch.words is not None
    offsets, letters = batch.words
    made = embedding_bag(letters, window, offsets[:-1], mode="sum")
    made = torch.cat([made, made.new_zeros((1, made.shape[1]))])
    return made.reshape(len(made), WINDOW, -1).transpose(0, 1)


def strongest(made: Tensor, batch: Batch) -> Tensor:
    """(n, pooled) the largest sum over the places of each text; zero where there is no word."""
    import torch

    around = neighbours(batch, nothing=made.shape[1] - 1)  # (3, n, places)
    with torch.no_grad():
        where = places_at_once(made, around) if made.is_cuda else place_by_place(made, around)
    left, middle, right = (made[k].gather(0, around[k].gather(1, where)) for k in range(WINDOW))
    return left + middle + right


def place_by_place(made: Tensor, around: Tensor) -> Tensor:
    """(n, pooled) where the largest sums are: on a CPU twice as fast for titles as all places at once, and a
    quarter faster for articles."""
    import torch

    best = made.new_full((around.shape[1], made.shape[2]), -torch.inf)
    where = torch.zeros(best.shape, dtype=torch.int64, device=best.device)
    for place in range(around.shape[2]):
        sums = made[0][around[0, :, place]]
        sums += made[1][around[1, :, place]]
        sums += made[2][around[2, :, place]]
        better = (sums > best) & (around[1, :, place, None] != made.shape[1] - 1)
        best = torch.where(better, sums, best)
        where.masked_fill_(better, place)
    return where


def places_at_once(made: Tensor, around: Tensor) -> Tensor:
    """The same for a GPU, where starting a step takes longer than the step."""
    import torch

    sums = made[0][around[0]] + made[1][around[1]] + made[2][around[2]]  # (n, places, pooled)
    return sums.masked_fill_((around[1] == made.shape[1] - 1).unsqueeze(2), -torch.inf).argmax(
        dim=1
    )


def neighbours(batch: Batch, nothing: int) -> Tensor:
    """(3, n, places) the words left of, at and right of every place of every text."""
    import torch

    counts = batch.offsets.diff()
    width = max(int(counts.max()) if len(counts) else 0, 1)
    places = torch.arange(width, device=counts.device)
    there = places < counts[:, None]
    padded = torch.full((len(counts), width + 2), nothing, dtype=torch.int64, device=counts.device)
    padded[:, 1:-1][there] = batch.entries
    return torch.stack([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]])


TOWER = Tower("words", (300,), shapes, hidden, embed)
