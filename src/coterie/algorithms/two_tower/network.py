"""The network of a tower: an architecture with its sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.algorithms.two_tower import Shapes, Tower, TowerParameters, tower

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Network:
    """What the vectors of a tower and their loss depend on, apart from parameters and texts."""

    tower: str
    inputs: int
    widths: tuple[int, ...]
    dropout: float
    smoothing: float

    @property
    def kind(self) -> Tower:
        """The architecture."""
        return tower(self.tower)

    @property
    def shapes(self) -> Shapes:
        """Shapes of the parameters."""
        return self.kind.shapes(self.inputs, self.widths)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    @property
    def hidden(self) -> int:
        """Number of units that dropout applies to."""
        return self.kind.hidden(self.widths)

    def by_name(self, flat: Tensor) -> TowerParameters:
        """Views of the flat parameters, by name."""
        sizes = [math.prod(shape) for shape in self.shapes.values()]
        named = zip(self.shapes.items(), flat.split(sizes), strict=True)  # type: ignore[no-untyped-call]
        return {name: part.reshape(shape) for (name, shape), part in named}
