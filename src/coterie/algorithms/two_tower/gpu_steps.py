"""Forward and backward passes of towers as steps that a GPU records.

Rows that were added as padding have no influence: no vector of theirs is compared or returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coterie.algorithms.two_tower.batches import InputRows, PaddedBatch, keep_mask
from coterie.algorithms.two_tower.device_arrays import to_device
from coterie.algorithms.two_tower.gradients import PairOfGradients, Units
from coterie.algorithms.two_tower.matching import losses
from coterie.algorithms.two_tower.network import Network
from coterie.algorithms.two_tower.padded_texts import padded_texts
from coterie.algorithms.two_tower.recorded_steps import run_step
from coterie.algorithms.two_tower.requests import Requests
from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.types import Ints, Longs

if TYPE_CHECKING:
    import torch
    from torch import Tensor


_texts = WeakCache()
"""The padded texts of each collection on the GPU, by the array of its weights."""


class Texts(NamedTuple):
    """A padded collection on the GPU."""

    entries: Tensor
    weights: Tensor
    letters: Tensor


# Called with arrays


def vectors(network: Network, parameters: Tensor, texts: InputRows, content: Content) -> Tensor:
    """(n, k) the vectors of some texts; with dropout if they have keys.

    The next call overwrites them.
    """
    tensors = (parameters, *texts_on_gpu(network, texts, content, parameters.device))
    if texts.keys is None:
        # Whole catalogues are embedded so: a recorded step would hold much memory.
        rows = to_device(texts.rows, parameters.device)
        return _embed(network, parameters, rows, None, Texts(*tensors[1:]))
    (output,) = run_step(vectors_step, network, arrays_of(texts), (), tensors)
    return output[: len(texts.rows)]


def vectors_at(
    network: Network, parameters: Tensor, texts: InputRows, content: Content, at: Longs
) -> Tensor:
    """(..., k) the vectors at positions `at` (...) among texts with keys; zeros where it is -1.

    The next call overwrites them.
    """
    tensors = (parameters, *texts_on_gpu(network, texts, content, parameters.device))
    (output,) = run_step(vectors_at_step, network, (*arrays_of(texts), at), (), tensors)
    return output[: len(at)]


def vector_gradients(
    network: Network, parameters: Tensor, texts: InputRows, content: Content, cut: Tensor
) -> Tensor:
    """(size,) the gradient by the parameters, from that by the vectors.

    The next call overwrites it.
    """
    tensors = (parameters, *texts_on_gpu(network, texts, content, parameters.device))
    (gradients,) = run_step(vector_gradients_step, network, arrays_of(texts), (cut,), tensors)
    return gradients


def user_gradients(
    network: Network,
    parameters: Tensor,
    texts: InputRows,
    content: Content,
    items: Tensor,
    drawn: Requests,
) -> PairOfGradients:
    """Gradients of the sum of losses by the user tower, and by the item vectors (n, T, k)."""
    arrays = (*arrays_of(texts), drawn.clicked, drawn.valid)
    tensors = (parameters, *texts_on_gpu(network, texts, content, parameters.device))
    outputs = run_step(user_gradients_step, network, arrays, (items,), tensors)
    return _pair(outputs, slice(len(items)))


def joint_gradients(
    network: Network,
    towers: tuple[Tensor, Tensor],
    users: InputRows,
    items: InputRows,
    content: Content,
    places: Ints | Longs,
    drawn: Requests,
) -> PairOfGradients:
    """Gradients of the sum of losses by both towers."""
    device = towers[0].device
    arrays = (*arrays_of(users), *arrays_of(items), places, drawn.clicked, drawn.valid)
    tensors = (
        *towers,
        *texts_on_gpu(network, users, content, device),
        *texts_on_gpu(network, items, content, device),
    )
    return _pair(run_step(joint_gradients_step, network, arrays, (), tensors), slice(None))


def _pair(outputs: tuple[Tensor, ...], rows: slice) -> PairOfGradients:
    """The gradients that a step computed, the second without the rows of padding."""
    first, second, *units = outputs
    in_units = Units(*units)
    return PairOfGradients(
        first,
        second[rows],
        # Sums outlive the outputs of a step.
        Units(in_units.first.clone(), in_units.second[rows].clone(), in_units.largest),
    )


def arrays_of(texts: InputRows) -> tuple[np.ndarray, np.ndarray]:
    """The rows, and their keys as signed words."""
    assert texts.keys is not None  # training has dropout
    return texts.rows, texts.keys.view(np.int64)


def texts_on_gpu(
    network: Network, texts: InputRows, content: Content, device: torch.device
) -> Texts:
    """The padded collection. That of a collection that lives on is cached."""
    cached: Texts | None = _texts.get(texts.source.weights)
    if cached is not None:
        return cached
    padded = padded_texts(texts.source, content, network.inputs)
    copied = Texts(
        to_device(padded.entries, device),
        to_device(padded.weights, device),
        to_device(padded.letters, device),
    )
    _texts.put(texts.source.weights, copied)
    return copied


# Recorded


def vectors_step(
    network: Network, rows: Tensor, keys: Tensor, flat: Tensor, *texts: Tensor
) -> tuple[Tensor]:
    return (_embed(network, flat, rows, _mask(network, keys), Texts(*texts)),)


def vectors_at_step(
    network: Network, rows: Tensor, keys: Tensor, at: Tensor, flat: Tensor, *texts: Tensor
) -> tuple[Tensor]:
    from torch.nn.functional import pad

    found = _embed(network, flat, rows, _mask(network, keys), Texts(*texts))
    # The position -1 is the last row, of zeros.
    return (pad(found, (0, 0, 0, 1))[at],)


def vector_gradients_step(
    network: Network, rows: Tensor, keys: Tensor, cut: Tensor, flat: Tensor, *texts: Tensor
) -> tuple[Tensor, ...]:
    import torch

    parameters = flat.detach().requires_grad_()
    output = _embed(network, parameters, rows, _mask(network, keys), Texts(*texts))
    return torch.autograd.grad(output, (parameters,), cut)


def user_gradients_step(
    network: Network,
    rows: Tensor,
    keys: Tensor,
    clicked: Tensor,
    valid: Tensor,
    items: Tensor,
    flat: Tensor,
    *texts: Tensor,
) -> tuple[Tensor, ...]:
    import torch

    parameters = flat.detach().requires_grad_()
    item_vectors = items.detach().requires_grad_()
    user_vectors = _embed(network, parameters, rows, _mask(network, keys), Texts(*texts))
    loss = losses(user_vectors, item_vectors, clicked, valid, network.smoothing).sum()
    by = torch.autograd.grad(loss, (parameters, item_vectors))
    return *by, *Units.of(*by)


def joint_gradients_step(
    network: Network,
    user_rows: Tensor,
    user_keys: Tensor,
    item_rows: Tensor,
    item_keys: Tensor,
    places: Tensor,
    clicked: Tensor,
    valid: Tensor,
    user_flat: Tensor,
    item_flat: Tensor,
    *texts: Tensor,
) -> tuple[Tensor, ...]:
    import torch
    from torch.nn.functional import embedding

    user_tower = user_flat.detach().requires_grad_()
    item_tower = item_flat.detach().requires_grad_()
    u, v = embed_both(
        network, (user_tower, item_tower), user_rows, user_keys, item_rows, item_keys, texts
    )
    # Back-propagation through `embedding` is faster than through v[places].
    loss = losses(u, embedding(places, v), clicked, valid, network.smoothing).sum()
    by = torch.autograd.grad(loss, (user_tower, item_tower))
    return *by, *Units.of(*by)


def embed_both(
    network: Network,
    towers: tuple[Tensor, Tensor],
    user_rows: Tensor,
    user_keys: Tensor,
    item_rows: Tensor,
    item_keys: Tensor,
    texts: Sequence[Tensor],
) -> tuple[Tensor, Tensor]:
    """The vectors of users and of items. `texts` are those of users, then those of items."""
    import torch

    user_tower, item_tower = towers
    # One mask for both: a mask takes twenty kernels, however many rows it has.
    mask = _mask(network, torch.cat([user_keys, item_keys]))
    of_users = None if mask is None else mask[: len(user_keys)]
    of_items = None if mask is None else mask[len(user_keys) :]
    u = _embed(network, user_tower, user_rows, of_users, Texts(*texts[:3]))
    v = _embed(network, item_tower, item_rows, of_items, Texts(*texts[3:]))
    return u, v


def _embed(
    network: Network, flat: Tensor, rows: Tensor, mask: Tensor | None, texts: Texts
) -> Tensor:
    batch = PaddedBatch(
        entries=texts.entries[rows].long(),
        weights=texts.weights[rows],
        letters=texts.letters,
        keep_mask=mask,
    )
    return network.kind.embed_padded(network.by_name(flat), batch)


def _mask(network: Network, keys: Tensor) -> Tensor | None:
    """Dropout of the rows with these keys; None without dropout."""
    return keep_mask(keys, network.hidden, network.dropout) if network.dropout else None
