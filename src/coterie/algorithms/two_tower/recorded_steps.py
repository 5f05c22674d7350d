"""Steps of a round on a GPU: recorded as CUDA graphs, then replayed.

A step is a function of tensors that launches some two hundred small kernels. Launching them one by
one takes longer than running them. A graph launches them at once, for inputs of the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from coterie.algorithms.two_tower.network import Network
from coterie.algorithms.two_tower.padded_texts import rounded_up

if TYPE_CHECKING:
    import torch
    from torch import Tensor

TensorStep: TypeAlias = "Callable[..., tuple[Tensor, ...]]"
"""(network, tensors) -> tensors"""
ArrayShape: TypeAlias = tuple[tuple[int, ...], str]
TensorShape: TypeAlias = "tuple[tuple[int, ...], torch.dtype]"

RECORDED = 32
"""Most steps that are held at a time, each for inputs of certain shapes."""
WARM_UP_CALLS = 2
"""Calls before a step is recorded; they initialise libraries. Many shapes never occur again."""
ALIGNMENT = 16
"""Bytes: every array begins at a multiple of it in the buffer that is copied to the GPU."""


def run_step(
    step: TensorStep,
    network: Network,
    arrays: Sequence[np.ndarray],
    rows: Sequence[Tensor],
    tensors: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """step(network, *arrays, *rows, *tensors), with the arrays on the GPU.

    `rows` and `tensors` are there already. The rows of arrays and of `rows` are padded with zeros
    to a length that is rounded up. The next run of the step overwrites its outputs.
    """
    of_arrays = tuple(((rounded_up(len(a)), *a.shape[1:]), a.dtype.str) for a in arrays)
    of_rows = tuple(((rounded_up(len(t)), *t.shape[1:]), t.dtype) for t in rows)
    of_tensors = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
    device = tensors[0].device
    recorded = _recorded(step, network, of_arrays, of_rows + of_tensors, device)
    return recorded.run(arrays, (*rows, *tensors))


@lru_cache(maxsize=RECORDED)
def _recorded(
    step: TensorStep,
    network: Network,
    of_arrays: tuple[ArrayShape, ...],
    of_tensors: tuple[TensorShape, ...],
    device: torch.device,
) -> RecordedStep:
    return RecordedStep(step, network, of_arrays, of_tensors, device)


class RecordedStep:
    """A step for inputs of certain shapes."""

    def __init__(
        self,
        step: TensorStep,
        network: Network,
        of_arrays: Sequence[ArrayShape],
        of_tensors: Sequence[TensorShape],
        device: torch.device,
    ) -> None:
        import torch

        self._step = step
        self._network = network
        self._staged = StagedArrays(of_arrays, device)
        self._inputs = [
            torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in of_tensors
        ]
        self._copied: list[Tensor | None] = [None] * len(self._inputs)
        """The tensors that were last copied to the inputs."""
        self._lengths = [0] * len(self._inputs)
        """How many rows of every input are not padding."""
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._outputs: tuple[Tensor, ...] = ()

    def run(self, arrays: Sequence[np.ndarray], tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        self._staged.fill(arrays)
        self._copy_in(tensors)
        if self._graph is not None:
            self._graph.replay()
            return self._outputs
        self._calls += 1
        if self._calls > WARM_UP_CALLS:
            self._record()
        # Recording runs nothing.
        return self._launch() if self._graph is None else self.run(arrays, tensors)

    def _launch(self) -> tuple[Tensor, ...]:
        return self._step(self._network, *self._staged.tensors, *self._inputs)

    def _record(self) -> None:
        import torch

        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._outputs = self._launch()

    def _copy_in(self, tensors: Sequence[Tensor]) -> None:
        import torch

        # Tensors are never written to: the same one is in place already.
        changed = [n for n, tensor in enumerate(tensors) if self._copied[n] is not tensor]
        for n in changed:
            length = len(tensors[n])
            if length < self._lengths[n]:
                self._inputs[n][length:] = 0
            self._lengths[n] = length
            self._copied[n] = tensors[n]
        if changed:
            given = [tensors[n] for n in changed]
            own = [self._inputs[n][: self._lengths[n]] for n in changed]
            torch._foreach_copy_(own, given)


class StagedArrays:
    """Arrays that are copied to the GPU at once, through a buffer that the GPU reads directly."""

    def __init__(self, shapes: Sequence[ArrayShape], device: torch.device) -> None:
        import torch

        sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes]
        ends = np.cumsum([-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]).tolist()
        self._host = torch.zeros(ends[-1], dtype=torch.uint8, pin_memory=True)
        self._on_device = torch.zeros(ends[-1], dtype=torch.uint8, device=device)
        self.arrays: list[np.ndarray] = []
        self.tensors: list[Tensor] = []
        for (shape, kind), size, first in zip(shapes, sizes, [0, *ends], strict=False):
            part = slice(first, first + size)
            array = self._host.numpy()[part].view(kind).reshape(shape)
            self.arrays.append(array)
            dtype = torch.from_numpy(array).dtype
            self.tensors.append(self._on_device[part].view(dtype).reshape(shape))

    def fill(self, arrays: Sequence[np.ndarray]) -> None:
        for own, given in zip(self.arrays, arrays, strict=True):
            own[: len(given)] = given
            own[len(given) :] = 0
        # This waits until the GPU has read the buffer, which the next call writes.
        self._on_device.copy_(self._host)
