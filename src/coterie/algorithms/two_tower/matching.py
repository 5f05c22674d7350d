"""The loss of a user's vector against item vectors (STTFedRec, Eqs. 2, 3 and 8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

SHORTEST = 1e-8
"""Least length that a vector is divided by, as in PyTorch's cosines."""
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


def loss_gradients(
    users: Tensor, items: Tensor, clicked: Tensor, valid: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """The gradients of the sum of the losses by users (n, k) and by items (n, T, k).

    In closed form, for a GPU: autograd launches twice as many kernels.
    """
    u, u_length = scaled_to_one(users)
    v, v_length = scaled_to_one(items)
    cosines = (v @ u[:, :, None]).squeeze(2)  # (n, T)
    p = (cosines * smoothing).masked_fill(~valid, MASKED).softmax(dim=1)
    # dL / dcos_j = smoothing / T (P(j) sum_i r_i - r_j)
    r = clicked * (smoothing / valid.sum(dim=1, keepdim=True).clamp(min=1))
    by_cosine = p * r.sum(dim=1, keepdim=True) - r
    # dcos / du = (v - cos u) / |u|, and the same for v
    along = by_cosine * cosines
    by_u = (by_cosine[:, None] @ v).squeeze(1) - along.sum(dim=1, keepdim=True) * u
    by_v = by_cosine[:, :, None] * u[:, None] - along[:, :, None] * v
    return by_u / u_length, by_v / v_length


def scaled_to_one(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of length one, and their lengths before."""
    lengths = rows.norm(dim=-1, keepdim=True).clamp(min=SHORTEST)
    return rows / lengths, lengths
