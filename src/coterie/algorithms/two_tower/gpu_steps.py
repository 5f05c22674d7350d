"""Forward and backward passes of towers as steps that a GPU records.

Rows that were added as padding have no influence: no vector of theirs is compared or returned.
"""

from __future__ import annotations

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
from coterie.data.content import Content
from coterie.types import Ints, Longs

if TYPE_CHECKING:
    import torch
    from torch import Tensor


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
    tensors = (parameters, *_texts(network, texts, content, parameters.device))
    if texts.keys is None:
        # Whole catalogues are embedded so: a recorded step would hold much memory.
        rows = to_device(texts.rows, parameters.device)
        return _embed(network, parameters, rows, None, Texts(*tensors[1:]))
    (output,) = run_step(vectors_step, network, _arrays(texts), (), tensors)
    return output[: len(texts.rows)]


def vectors_at(
    network: Network, parameters: Tensor, texts: InputRows, content: Content, at: Longs
) -> Tensor:
    """(..., k) the vectors at positions `at` (...) among texts with keys; zeros where it is -1.

    The next call overwrites them.
    """
    tensors = (parameters, *_texts(network, texts, content, parameters.device))
    (output,) = run_step(vectors_at_step, network, (*_arrays(texts), at), (), tensors)
    return output[: len(at)]


def vector_gradients(
    network: Network, parameters: Tensor, texts: InputRows, content: Content, cut: Tensor
) -> Tensor:
    """(size,) the gradient by the parameters, from that by the vectors.

    The next call overwrites it.
    """
    tensors = (parameters, *_texts(network, texts, content, parameters.device))
    (gradients,) = run_step(vector_gradients_step, network, _arrays(texts), (cut,), tensors)
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
    arrays = (*_arrays(texts), drawn.clicked, drawn.valid)
    tensors = (parameters, *_texts(network, texts, content, parameters.device))
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
    arrays = (*_arrays(users), *_arrays(items), places, drawn.clicked, drawn.valid)
    tensors = (
        *towers,
        *_texts(network, users, content, device),
        *_texts(network, items, content, device),
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


def _arrays(texts: InputRows) -> tuple[np.ndarray, np.ndarray]:
    """The rows, and their keys as signed words."""
    assert texts.keys is not None  # training has dropout
    return texts.rows, texts.keys.view(np.int64)


def _texts(network: Network, texts: InputRows, content: Content, device: torch.device) -> Texts:
    padded = padded_texts(texts.source, content, network.inputs)
    return Texts(
        to_device(padded.entries, device),
        to_device(padded.weights, device),
        to_device(padded.letters, device),
    )


# Recorded


def vectors_step(
    network: Network, rows: Tensor, keys: Tensor, flat: Tensor, *texts: Tensor
) -> tuple[Tensor]:
    return (_embed(network, flat, rows, keys, Texts(*texts)),)


def vectors_at_step(
    network: Network, rows: Tensor, keys: Tensor, at: Tensor, flat: Tensor, *texts: Tensor
) -> tuple[Tensor]:
    from torch.nn.functional import pad

    # The position -1 is the last row, of zeros.
    return (pad(_embed(network, flat, rows, keys, Texts(*texts)), (0, 0, 0, 1))[at],)


def vector_gradients_step(
    network: Network, rows: Tensor, keys: Tensor, cut: Tensor, flat: Tensor, *texts: Tensor
) -> tuple[Tensor, ...]:
    import torch

    parameters = flat.detach().requires_grad_()
    output = _embed(network, parameters, rows, keys, Texts(*texts))
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
    user_vectors = _embed(network, parameters, rows, keys, Texts(*texts))
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
    u = _embed(network, user_tower, user_rows, user_keys, Texts(*texts[:3]))
    v = _embed(network, item_tower, item_rows, item_keys, Texts(*texts[3:]))
    # Back-propagation through `embedding` is faster than through v[places].
    loss = losses(u, embedding(places, v), clicked, valid, network.smoothing).sum()
    by = torch.autograd.grad(loss, (user_tower, item_tower))
    return *by, *Units.of(*by)


def _embed(
    network: Network, flat: Tensor, rows: Tensor, keys: Tensor | None, texts: Texts
) -> Tensor:
    mask = None
    if keys is not None and network.dropout:
        mask = keep_mask(keys, network.hidden, network.dropout)
    batch = PaddedBatch(
        entries=texts.entries[rows].long(),
        weights=texts.weights[rows],
        letters=texts.letters,
        keep_mask=mask,
    )
    return network.kind.embed_padded(network.by_name(flat), batch)
