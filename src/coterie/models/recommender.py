"""What every trained model can do: score, and be saved as plain arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from typing import Any, ClassVar, Self

import numpy as np

from coterie.types import Floats, Ints


class Recommender(ABC):
    """A frozen record of arrays. A subclass is a dataclass whose fields are arrays and numbers."""

    kind: ClassVar[str]
    trained: ClassVar[tuple[str, ...] | None] = None
    """Which fields were trained; all of them by default."""

    @abstractmethod
    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        """Scores of `items` (users, candidates) for each user, or of all items (users, items)."""

    @property
    def n_parameters(self) -> int:
        return sum(a.size for name, a in self.arrays().items() if self.trained is None or name in self.trained)

    def arrays(self) -> dict[str, np.ndarray]:
        return {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Self:
        return cls(**{f.name: arrays[f.name] if arrays[f.name].ndim else arrays[f.name].item() for f in fields(cls)})  # type: ignore[arg-type]


def pick(scores: Floats, items: Ints | None) -> Floats:
    """Columns of a full score block; a padded candidate (-1) gets any finite score, callers mask it."""
    return scores if items is None else np.take_along_axis(scores, np.maximum(items, 0), axis=1)
