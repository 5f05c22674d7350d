"""How well a person's vector matches items' (STTFedRec, Eqs. 2, 3 and 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NEVER = -1e30


def losses(
    people: Tensor, items: Tensor, clicked: Tensor, there: Tensor, smoothing: float
) -> Tensor:
    """(n,) L = -1/T sum_j r_j log P(j), where P is the softmax of cosines over the T items there are."""
    import torch

    cosines = torch.nn.functional.cosine_similarity(people[:, None], items, dim=2)
    chances = (cosines * smoothing).masked_fill(~there, NEVER).log_softmax(dim=1)
    return -(chances * clicked).sum(dim=1) / there.sum(dim=1).clamp(min=1)
