"""Arrays where towers are computed. What was sent to a GPU once, or was made there, is not sent again.

Arrays of states, messages and content are never written into, so that what was made of one stays true as long as the array lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coterie.core.weak_cache import WeakCache

if TYPE_CHECKING:
    import torch
    from torch import Tensor

WORTH_IT = 1 << 15
"""Bytes from which on a copy is kept."""
_copies = WeakCache()


def there(array: np.ndarray, device: torch.device) -> Tensor:
    """The array as a tensor on a device; on the CPU it may be the array's own memory, which nobody writes into."""
    import torch

    if device.type == "cpu":
        return torch.from_numpy(array) if array.flags.writeable else torch.tensor(array)
    known: Tensor | None = _copies.get(array)
    if known is not None:
        return known
    tensor = torch.tensor(array, device=device)
    _remember(array, tensor)
    return tensor


def back(tensor: Tensor) -> np.ndarray:
    """The tensor as an array; the tensor is found again when the array is wanted on its device."""
    import torch

    if tensor.device.type == "cpu":
        return tensor.numpy()
    host = torch.empty(
        tensor.shape, dtype=tensor.dtype, pin_memory=True
    )  # the GPU writes it without a copy between
    host.copy_(tensor)
    array: np.ndarray = host.numpy()
    _remember(array, tensor)
    return array


def _remember(array: np.ndarray, tensor: Tensor) -> None:
    if array.nbytes >= WORTH_IT:
        _copies.put(array, tensor)
