"""Copies of arrays on the device that computes the towers.

An array that was copied to a GPU, or computed there, is not copied again. Arrays of states,
messages and content are never written to, so a copy is valid for as long as the array lives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import numpy as np

from coterie.algorithms.local.batched import find_device
from coterie.core.parallel import one_torch_thread
from coterie.core.weak_cache import WeakCache

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CACHED_FROM = 1 << 15
"""Smallest array, in bytes, whose copy is cached."""
COPIED_ASIDE = 1 << 16
"""Largest array, in bytes, that a driver copies before it returns (CUDA's API synchronisation)."""
_copies = WeakCache()


@contextmanager
def computing_on(device_name: str) -> Iterator[torch.device]:
    """The device of that name, with PyTorch on one thread.

    The number of threads changes the order of sums in matrix products, and so the bits.
    """
    device = find_device(device_name)
    with one_torch_thread() if device.type == "cpu" else nullcontext():
        yield device


def to_device(array: np.ndarray | Tensor, device: torch.device) -> Tensor:
    """The array as a tensor. On the CPU they may share memory: the tensor must not be written.

    A tensor is on the device already.
    """
    import torch

    if not isinstance(array, np.ndarray):
        return array
    if device.type == "cpu":
        return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)
    cached: Tensor | None = _copies.get(array)
    if cached is not None:
        return cached
    host = torch.tensor(array)
    # A copy from pinned memory does not wait for what the GPU is computing. A small one does not,
    # either: the driver copies it aside.
    if array.nbytes > COPIED_ASIDE:
        host = host.pin_memory()
    tensor = host.to(device, non_blocking=True)
    _remember(array, tensor)
    return tensor


def to_host(tensor: Tensor) -> np.ndarray:
    """The tensor as an array. `to_device` returns the tensor again for this array."""
    return to_host_together([tensor])[0]


def to_host_together(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Several tensors as arrays, after waiting for the GPU once."""
    import torch

    if all(tensor.device.type == "cpu" for tensor in tensors):
        return [tensor.numpy() for tensor in tensors]
    arrays: list[np.ndarray] = []
    for tensor in tensors:
        # A GPU writes to pinned memory directly, without an intermediate copy.
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        # Copies run one after the other: who waits for the last has waited for all.
        host.copy_(tensor, non_blocking=tensor is not tensors[-1])
        arrays.append(host.numpy())
        _remember(arrays[-1], tensor)
    return arrays


def rows_of(array: np.ndarray, tensor: Tensor) -> list[np.ndarray]:
    """The rows of an array. `to_device` returns those of the tensor, which is equal, for them."""
    rows = list(array)
    for row, on_device in zip(rows, tensor, strict=True):
        _remember(row, on_device)
    return rows


def _remember(array: np.ndarray, tensor: Tensor) -> None:
    if array.nbytes >= CACHED_FROM:
        _copies.put(array, tensor)
