"""Frozen records of arrays: what can be saved as plain arrays and made again from them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Self

import numpy as np


class Record:
    """A subclass is a dataclass whose fields are arrays and numbers."""

    __slots__ = ()

    def arrays(self) -> dict[str, np.ndarray]:
        return {f.name: np.asarray(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Self:
        return cls(**{f.name: arrays[f.name] if arrays[f.name].ndim else arrays[f.name].item() for f in fields(cls)})  # type: ignore[arg-type]
