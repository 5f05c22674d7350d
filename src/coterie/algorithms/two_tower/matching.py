"""The loss of a user's vector against item vectors (STTFedRec, Eqs. 2, 3 and 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

MASKED = -1e30
"""Logit of a padded item: its probability is zero, and its gradient is finite."""


def losses(
    users: Tensor, items: Tensor, clicked: Tensor, valid: Tensor, smoothing: float
) -> Tensor:
    """(n,) L = -1/T sum_j r_j log P(j), where P is the softmax of cosines over the T valid items.

    `users` is (n, k), `items` (n, T, k), and `clicked` and `valid` (n, T).
    """
    import torch

    cosines = torch.nn.functional.cosine_similarity(users[:, None], items, dim=2)
    log_p = (cosines * smoothing).masked_fill(~valid, MASKED).log_softmax(dim=1)
    return -(log_p * clicked).sum(dim=1) / valid.sum(dim=1).clamp(min=1)
