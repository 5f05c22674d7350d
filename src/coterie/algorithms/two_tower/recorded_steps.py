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
"""(network, tensors made of arrays, tensors that were on the GPU) -> tensors"""
ArrayShape: TypeAlias = tuple[tuple[int, ...], str]
"""Shape and type of an array."""

RECORDED = 32
"""Most steps that are held at a time, each for inputs of certain shapes."""
WARM_UP_CALLS = 2
"""Calls before a step is recorded; they initialise libraries. Many shapes never occur again."""
ALIGNMENT = 16
"""Bytes: every array begins at a multiple of it in the buffer that is copied to the GPU."""


def run_step(
    step: TensorStep, network: Network, arrays: Sequence[np.ndarray], tensors: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """step(network, *arrays, *tensors), with the arrays on the GPU.

    The rows of arrays are padded with zeros to a length that is rounded up. The next run of the
    step overwrites its outputs.
    """
    shapes = tuple(((rounded_up(len(a)), *a.shape[1:]), a.dtype.str) for a in arrays)
    fixed = tuple((tuple(tensor.shape), str(tensor.dtype)) for tensor in tensors)
    return _recorded(step, network, shapes, fixed, tensors[0].device)(arrays, tensors)


@lru_cache(maxsize=RECORDED)
def _recorded(
    step: TensorStep,
    network: Network,
    shapes: tuple[ArrayShape, ...],
    fixed: tuple[ArrayShape, ...],
    device: torch.device,
) -> RecordedStep:
    return RecordedStep(step, network, shapes, device)


class RecordedStep:
    """A step for inputs of certain shapes."""

    def __init__(
        self, step: TensorStep, network: Network, shapes: Sequence[ArrayShape], device: torch.device
    ) -> None:
        self.step = step
        self.network = network
        self.staged = StagedArrays(shapes, device)
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: tuple[Tensor, ...] = ()
        """The tensors that the graph reads."""
        self.copied: list[Tensor | None] = []
        """The tensors that were last copied to them."""
        self.outputs: tuple[Tensor, ...] = ()
        """The tensors that the graph writes."""

    def __call__(
        self, arrays: Sequence[np.ndarray], tensors: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        self.staged.fill(arrays)
        self.calls += 1
        if self.calls <= WARM_UP_CALLS:
            return self.step(self.network, *self.staged.tensors, *tensors)
        if self.graph is None:
            self._record(tensors)
        self._copy_in(tensors)
        assert self.graph is not None
        self.graph.replay()
        return self.outputs

    def _record(self, tensors: Sequence[Tensor]) -> None:
        import torch

        self.inputs = tuple(torch.empty_like(tensor) for tensor in tensors)
        self.copied = [None] * len(tensors)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.outputs = self.step(self.network, *self.staged.tensors, *self.inputs)

    def _copy_in(self, tensors: Sequence[Tensor]) -> None:
        for place, tensor in enumerate(tensors):
            # Tensors are never written to: the same one is in place already.
            if self.copied[place] is not tensor:
                self.inputs[place].copy_(tensor)
                self.copied[place] = tensor


class StagedArrays:
    """Arrays that are copied to the GPU at once, through a buffer that the GPU reads directly."""

    def __init__(self, shapes: Sequence[ArrayShape], device: torch.device) -> None:
        import torch

        sizes = [int(np.prod(shape)) * np.dtype(kind).itemsize for shape, kind in shapes]
        ends = np.cumsum([-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]).tolist()
        self._host = torch.zeros(ends[-1], dtype=torch.uint8, pin_memory=True)
        self._on_device = torch.zeros(ends[-1], dtype=torch.uint8, device=device)
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.arrays: list[np.ndarray] = []
        self.tensors: list[Tensor] = []
        for (shape, kind), size, first in zip(shapes, sizes, [0, *ends], strict=False):
            part = slice(first, first + size)
            array = self._host.numpy()[part].view(kind).reshape(shape)
            self.arrays.append(array)
            dtype = torch.from_numpy(array).dtype
            self.tensors.append(self._on_device[part].view(dtype).reshape(shape))

    def fill(self, arrays: Sequence[np.ndarray]) -> None:
        # The copy of the last call must have been read.
        self._copied.synchronize()
        for own, given in zip(self.arrays, arrays, strict=True):
            own[: len(given)] = given
            own[len(given) :] = 0
        self._on_device.copy_(self._host, non_blocking=True)
        self._copied.record()
