"""The hook for the local objective: an extra term of the loss that clients minimise."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor


class CohortParameters(Protocol):
    """The parameters of a step of all clients of a cohort, as PyTorch tensors."""

    @property
    def users(self) -> Tensor:
        """(n, width)"""
        ...

    @property
    def items(self) -> Tensor:
        """(n, batch, width)"""
        ...

    @property
    def dense(self) -> Tensor:
        """(n, size)"""
        ...


LocalObjective: TypeAlias = "Callable[[CohortParameters, CohortParameters], Tensor]"
"""(parameters now, parameters as the server sent them) -> an extra term of every sample's loss,
(n, batch) or (n, 1). FedProx's proximal term is one: examples/plugin."""
