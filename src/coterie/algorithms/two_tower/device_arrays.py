"""Copies of arrays on the device that computes the towers.

An array that was copied to a GPU, or computed there, is not copied again. Arrays of states,
messages and content are never written to, so a copy is valid for as long as the array lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.core.weak_cache import WeakCache

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CACHED_FROM = 1 << 15
"""Smallest array, in bytes, whose copy is cached."""
_copies = WeakCache()


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor. On the CPU they may share memory: the tensor must not be written."""
    import torch

    if device.type == "cpu":
        return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)
    cached: Tensor | None = _copies.get(array)
    if cached is not None:
        return cached
    tensor = torch.tensor(array, device=device)
    _remember(array, tensor)
    return tensor


def to_host(tensor: Tensor) -> np.ndarray:
    """The tensor as an array. `to_device` returns the tensor again for this array."""
    import torch

    if tensor.device.type == "cpu":
        return tensor.numpy()
    # A GPU writes to pinned memory directly, without an intermediate copy.
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor)
    array: np.ndarray = host.numpy()
    _remember(array, tensor)
    return array


def _remember(array: np.ndarray, tensor: Tensor) -> None:
    if array.nbytes >= CACHED_FROM:
        _copies.put(array, tensor)
