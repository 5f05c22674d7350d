"""Forward and backward passes of towers over batches of rows.

Towers and vectors are plain NumPy arrays, since they are stored and sent; gradients are tensors. On
a GPU, passes are the recorded steps of `gpu_steps`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.algorithms.two_tower import Shapes, gpu_steps
from coterie.algorithms.two_tower.batches import InputRows, dropout, make_batch
from coterie.algorithms.two_tower.device_arrays import computing_on, to_device, to_host
from coterie.algorithms.two_tower.gradients import PairOfGradients
from coterie.algorithms.two_tower.matching import losses
from coterie.algorithms.two_tower.network import Network
from coterie.algorithms.two_tower.requests import Requests
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core import streams
from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.types import Floats, Ints, Longs

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = {"cpu": 512, "cuda": 1 << 14}
"""Rows per batch when a whole catalogue is embedded: few fit a CPU's caches, many fill a GPU."""


@dataclass(frozen=True, slots=True)
class TowerOps:
    """Operations on towers with these settings. A tower is the flat array of its parameters."""

    settings: TwoTowers

    @property
    def network(self) -> Network:
        """The network of both towers."""
        s = self.settings
        return Network(s.tower, s.inputs, s.widths, s.dropout, s.smoothing)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the parameters of a tower."""
        return self.network.shapes

    @property
    def size(self) -> int:
        """Number of parameters of one tower."""
        return self.network.size

    def start(self, seed: int, what: str) -> Floats:
        """Initial weights and biases from N(0, start_scale), as in the paper."""
        drawn = [
            streams.at(seed, f"start {what} {name}").standard_normal(shape)
            for name, shape in self.shapes.items()
        ]
        flat = np.concatenate([values.ravel() for values in drawn])
        return (flat * self.settings.start_scale).astype(np.float32)

    # Vectors

    def vectors(self, parameters: Floats, texts: InputRows, content: Content) -> Floats:
        """(n, k) the vectors of some texts, with dropout, as in training.

        On the CPU, the forward pass is cached for `item_gradients`, which continues it.
        """
        with computing_on(self.settings.device) as device:
            # The next vectors that a GPU computes overwrite these.
            return to_host(self._vectors(parameters, texts, content, device).clone())

    def vectors_at(
        self, parameters: Floats, texts: InputRows, content: Content, at: Longs
    ) -> Floats:
        """(..., k) the vectors at positions `at` (...) among the texts; zeros where it is -1."""
        with computing_on(self.settings.device) as device:
            from torch.nn.functional import pad

            if device.type == "cuda":
                flat = to_device(parameters, device)
                # The next vectors that a GPU computes overwrite these.
                return to_host(gpu_steps.vectors_at(self.network, flat, texts, content, at).clone())
            vectors = self._vectors(parameters, texts, content, device)
            if (at < 0).any():
                # The position -1 reads one row more, of zeros.
                vectors = pad(vectors, (0, 0, 0, 1))
                at = np.where(at < 0, len(texts.rows), at)
            return to_host(vectors[to_device(at, device)])

    def directions(
        self, parameters: Floats, texts: InputRows, content: Content, at_a_time: int | None = None
    ) -> Floats:
        """(n, k) the vectors of texts, scaled to length one: dot products are cosines.

        `at_a_time` is the number of texts per batch; by default as many as suit the device.
        """
        with computing_on(self.settings.device) as device:
            import torch

            flat = to_device(parameters, device)
            batches = texts.parts(at_a_time or CHUNK[device.type])
            with torch.no_grad():
                parts = [
                    gpu_steps.vectors(self.network, flat, batch, content)
                    if flat.is_cuda
                    else self._embed(flat, batch, content)
                    for batch in batches
                ]
            vectors = to_host(torch.cat(parts))
        lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        scaled: Floats = (vectors / np.maximum(lengths, 1e-8)).astype(np.float32)
        return scaled

    # Gradients

    def user_gradients(
        self, parameters: Floats, texts: InputRows, content: Content, items: Floats, drawn: Requests
    ) -> PairOfGradients:
        """Gradients of the sum of the users' losses, for given item vectors (n, T, k).

        The first is by the user tower (size,), the second by the item vectors (n, T, k).
        """
        with computing_on(self.settings.device) as device:
            import torch

            flat = to_device(parameters, device)
            item_vectors = to_device(items, device)
            if flat.is_cuda:
                return gpu_steps.user_gradients(
                    self.network, flat, texts, content, item_vectors, drawn
                )
            flat = flat.detach().requires_grad_()
            item_vectors = item_vectors.detach().requires_grad_()
            loss = self._loss(self._embed(flat, texts, content), item_vectors, drawn)
            first, second = torch.autograd.grad(loss, (flat, item_vectors))
            return PairOfGradients(first, second)

    def item_gradients(
        self, parameters: Floats, texts: InputRows, content: Content, cut: Tensor
    ) -> Tensor:
        """(size,) the gradient by the item tower, from that by its output (n, k), the cut layer."""
        with computing_on(self.settings.device) as device:
            if device.type == "cpu":
                return self._continued(parameters, texts, content, cut)
            # A recorded forward pass is repeated faster than a cached one is continued.
            flat = to_device(parameters, device)
            return gpu_steps.vector_gradients(self.network, flat, texts, content, cut)

    def joint_gradients(
        self,
        towers: tuple[Floats, Floats],
        users: InputRows,
        items: InputRows,
        content: Content,
        places: Ints | Longs,
        drawn: Requests,
        at_a_time: int | None = None,
    ) -> PairOfGradients:
        """Gradients of the sum of the users' losses by the user tower and by the item tower.

        places[k, j] is the row of `items` that user k compares as its j-th. `at_a_time` is the
        number of items per batch on the CPU; by default all of them.
        """
        with computing_on(self.settings.device) as device:
            import torch

            user_flat, item_flat = (to_device(tower, device) for tower in towers)
            if user_flat.is_cuda:
                return gpu_steps.joint_gradients(
                    self.network, (user_flat, item_flat), users, items, content, places, drawn
                )
            user_flat = user_flat.detach().requires_grad_()
            item_flat = item_flat.detach().requires_grad_()
            u = self._embed(user_flat, users, content)
            parts = [
                self._embed(item_flat, part, content)
                for part in items.parts(at_a_time or max(len(items.rows), 1))
            ]
            v = parts[0] if len(parts) == 1 else torch.cat(parts)
            loss = self._loss(u, v[torch.from_numpy(places.astype(np.int64))], drawn)
            first, second = torch.autograd.grad(loss, (user_flat, item_flat))
            return PairOfGradients(first, second)

    def _vectors(
        self, parameters: Floats, texts: InputRows, content: Content, device: torch.device
    ) -> Tensor:
        flat = to_device(parameters, device)
        if flat.is_cuda:
            return gpu_steps.vectors(self.network, flat, texts, content)
        flat = flat.detach().requires_grad_()
        output = self._embed(flat, texts, content)
        FORWARD_PASSES.put(parameters, ForwardPass(texts, output, flat))
        return output.detach()

    # On the CPU

    def _continued(
        self, parameters: Floats, texts: InputRows, content: Content, by_output: Tensor
    ) -> Tensor:
        """The gradient by the parameters, from the cached forward pass or a new one."""
        import torch

        forward: ForwardPass | None = FORWARD_PASSES.get(parameters)
        if forward is None or not forward.texts.same_as(texts):
            self.vectors(parameters, texts, content)
            forward = FORWARD_PASSES.get(parameters)
        assert forward is not None
        # autograd frees the graph, so the pass cannot be used twice.
        FORWARD_PASSES.forget(parameters)
        (gradients,) = torch.autograd.grad(forward.output, (forward.parameters,), by_output)
        return gradients

    def _loss(self, users: Tensor, items: Tensor, drawn: Requests) -> Tensor:
        """The sum of the users' losses."""
        import torch

        clicked = torch.from_numpy(drawn.clicked)
        valid = torch.from_numpy(drawn.valid)
        return losses(users, items, clicked, valid, self.settings.smoothing).sum()

    def _embed(self, flat: Tensor, texts: InputRows, content: Content) -> Tensor:
        """The vectors of texts; with dropout if they have keys."""
        network = self.network
        mask = None
        if texts.keys is not None:
            mask = dropout(texts.keys, network.hidden, network.dropout)
        letters = content.letters if network.kind.reads == "words" else None
        return network.kind.embed(network.by_name(flat), make_batch(texts, letters, mask))


@dataclass(frozen=True, slots=True)
class ForwardPass:
    """A forward pass that back-propagation can continue."""

    texts: InputRows
    output: Tensor
    parameters: Tensor


FORWARD_PASSES = WeakCache()
"""The last pass of each parameters array. A server holds it until it receives the gradients."""
