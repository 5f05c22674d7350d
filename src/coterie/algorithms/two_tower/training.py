"""Forward and backward passes of towers over batches of rows, and the server's optimiser.

All functions take and return plain NumPy arrays. Only `PairOfGradients` holds tensors: a cohort and
a single device convert its gradients to fixed point in different ways. On a GPU, passes are the
recorded steps of `gpu_steps`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie import kernels
from coterie.algorithms.local.batched import find_device
from coterie.algorithms.two_tower import Shapes, gpu_steps
from coterie.algorithms.two_tower.batches import InputRows, dropout, make_batch
from coterie.algorithms.two_tower.device_arrays import to_device, to_host
from coterie.algorithms.two_tower.matching import losses
from coterie.algorithms.two_tower.network import Network
from coterie.algorithms.two_tower.requests import Requests
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core import streams
from coterie.core.parallel import one_torch_thread
from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.types import SCALE, Floats, Ints, Longs

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
            flat = to_device(parameters, device)
            if flat.is_cuda:
                return to_host(gpu_steps.vectors(self.network, flat, texts, content))
            flat = flat.detach().requires_grad_()
            output = self._embed(flat, texts, content)
            FORWARD_PASSES.put(parameters, ForwardPass(texts, output, flat))
            return to_host(output.detach())

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
                by = gpu_steps.user_gradients(
                    self.network, flat, texts, content, item_vectors, drawn
                )
                return PairOfGradients(*by)
            flat = flat.detach().requires_grad_()
            item_vectors = item_vectors.detach().requires_grad_()
            loss = self._loss(self._embed(flat, texts, content), item_vectors, drawn)
            return PairOfGradients(*torch.autograd.grad(loss, (flat, item_vectors)))

    def item_gradients(
        self, parameters: Floats, texts: InputRows, content: Content, cut: Floats
    ) -> Floats:
        """(size,) the gradient by the item tower, from that by its output (n, k), the cut layer."""
        with computing_on(self.settings.device) as device:
            flat = to_device(parameters, device)
            by_output = to_device(cut, device)
            if flat.is_cuda:
                # A recorded forward pass is repeated faster than a cached one is continued.
                by = gpu_steps.vector_gradients(self.network, flat, texts, content, by_output)
                return to_host(by)
            return to_host(self._continued(parameters, texts, content, by_output))

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
                by = gpu_steps.joint_gradients(
                    self.network, (user_flat, item_flat), users, items, content, places, drawn
                )
                return PairOfGradients(*by)
            user_flat = user_flat.detach().requires_grad_()
            item_flat = item_flat.detach().requires_grad_()
            u = self._embed(user_flat, users, content)
            parts = [
                self._embed(item_flat, part, content)
                for part in items.parts(at_a_time or max(len(items.rows), 1))
            ]
            v = parts[0] if len(parts) == 1 else torch.cat(parts)
            loss = self._loss(u, v[torch.from_numpy(places.astype(np.int64))], drawn)
            return PairOfGradients(*torch.autograd.grad(loss, (user_flat, item_flat)))

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


UNIT = 16 * SCALE
"""The value 1 in the fixed point of gradients, finer than that of updates: entries are small."""
NON_FINITE = 1 << 62
"""Stands for NaN and infinities in fixed point. It is far out of range."""


def to_fixed_point(gradients: Tensor) -> Tensor:
    """Gradients as multiples of 1 / UNIT, in 64 bits."""
    import torch

    units = (gradients.double() * UNIT).round_()
    # The largest floats exceed 64 bits, where a conversion would give an arbitrary number.
    units.clamp_(-NON_FINITE, NON_FINITE)
    return torch.nan_to_num(units, NON_FINITE).long()


@dataclass(frozen=True, slots=True)
class PairOfGradients:
    """Gradients by two arrays, as floats where they were computed."""

    first: Tensor
    second: Tensor

    def in_fixed_point(self) -> Gradients:
        """In 64 bits, for sums over a cohort."""
        import torch

        with one_torch_thread():
            first = to_fixed_point(self.first)
            second = to_fixed_point(self.second)
            largest = torch.stack([first.abs().max(), second.abs().max()]).tolist()
        return Gradients(to_host(first), to_host(second), (largest[0], largest[1]))

    def encode(self, first: Ints, second: Ints) -> None:
        """Write them as one device sends them, in 32 bits."""
        encode(self.first, first)
        encode(self.second, second)


@dataclass(frozen=True, slots=True)
class Gradients:
    """Gradients by two arrays, in fixed point."""

    first: Longs
    second: Longs
    largest: tuple[int, int]
    """The largest absolute entry of each."""


def encode(gradients: Tensor, out: Ints) -> None:
    """Write gradients as multiples of 1 / UNIT, in 32 bits.

    Entries that are not finite or too large become values that the server refuses.
    """
    values = to_host(gradients.contiguous())
    # `reshape` would copy an array with gaps and leave `out` unwritten.
    assert out.flags.c_contiguous
    kernels.load("fixed_point").encode(values.reshape(-1), UNIT, out.reshape(-1))


def rows_at(at: Longs, rows: Floats, device_name: str) -> Floats:
    """(..., k) the rows at the positions `at` (...); zeros where a position is -1."""
    with computing_on(device_name) as device:
        from torch.nn.functional import pad

        # The position -1 reads one row more, of zeros.
        padded = pad(to_device(rows, device), (0, 0, 0, 1))
        return to_host(padded[to_device(np.where(at < 0, len(rows), at), device)])


def sum_rows_at(at: Ints | Longs, rows: Ints | Longs, n: int, device_name: str) -> Longs:
    """(n, k) the sums of the integer rows (..., k) by their positions `at` (...).

    Rows at the position -1 are left out.
    """
    with computing_on(device_name) as device:
        import torch

        total = torch.zeros((n + 1, rows.shape[-1]), dtype=torch.int64, device=device)
        places = to_device(np.where(at < 0, n, at).reshape(-1), device)
        values = to_device(rows, device).reshape(-1, rows.shape[-1])
        return to_host(total.index_add_(0, places.long(), values.long())[:n])


def mean_gradients_at(at: Longs, gradients: Longs, n: int, device_name: str) -> Floats:
    """(m, k) the mean over n users of the rows at some positions, summed in fixed point."""
    with computing_on(device_name) as device:
        chosen = to_device(gradients, device)[to_device(at, device)]
        return to_host(_mean_gradient(chosen, n))


def _mean_gradient(gradients: Tensor, n: int) -> Tensor:
    return gradients.double().mul_(1 / (UNIT * n)).float()


@dataclass(frozen=True, slots=True)
class TowerState:
    """A tower and Adam's moments of its gradient, all flat."""

    parameters: Floats
    mean: Floats
    square: Floats


def fedadam(
    before: TowerState, gradients: Floats | Longs, n: int, settings: TwoTowers, learning_rate: float
) -> TowerState:
    """One step of FedAdam (Reddi et al. 2021), as in Eqs. 13 and 15.

    `gradients` is the sum over n users, as floats or in fixed point.

    Deviation: the equations add the step; here it is subtracted, since it must descend. The
    denominator is sqrt(v) + tau, as in Eq. 15.
    """
    with computing_on(settings.device) as device:
        total = to_device(gradients, device)
        g = _mean_gradient(total, n) if gradients.dtype == np.int64 else total / n
        mean = to_device(before.mean, device).mul(settings.beta1)
        mean.add_(g, alpha=1 - settings.beta1)
        square = to_device(before.square, device).mul(settings.beta2)
        square.addcmul_(g, g, value=1 - settings.beta2)
        denominator = square.sqrt().add_(settings.tau)
        parameters = to_device(before.parameters, device).addcdiv(
            mean, denominator, value=-learning_rate
        )
        return TowerState(to_host(parameters), to_host(mean), to_host(square))


@contextmanager
def computing_on(device_name: str) -> Iterator[torch.device]:
    """The device of that name, with PyTorch on one thread.

    The number of threads changes the order of sums in matrix products, and so the bits.
    """
    device = find_device(device_name)
    with one_torch_thread():
        yield device
