"""Frozen records of arrays: what can be saved as plain arrays and made again from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np


@dataclass(frozen=True, slots=True)
class Record:
    """A subclass is a dataclass whose fields are arrays and numbers."""

    private: ClassVar[tuple[str, ...]] = ()
    """Fields with a row for every user that stay on the user's device: no server has them, and they are saved apart."""

    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Which server holds which fields, where there are several."""

    def without_private(self) -> Self:
        """As a server has it: a look at what is private is a look at nothing."""
        return replace(self, **dict.fromkeys(self.private)) if self.private else self

    def as_seen_by(self, role: str) -> Self:
        """As one of several servers has it: nothing that is private, and nothing of another server's."""
        others = {name for owner, names in self.roles.items() if owner != role for name in names}
        hidden = others - set(self.roles.get(role, ())) | set(self.private)
        return replace(self, **dict.fromkeys(hidden)) if hidden else self

    def with_part_of(self, role: str, after: Self) -> Self:
        """With what a server made of its own fields, and no other."""
        names = self.roles.get(role)
        if names is None:
            return after
        return replace(self, **{name: getattr(after, name) for name in names})

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is here: a server has nothing that is private."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: np.asarray(value) for name, value in values.items() if value is not None}

    def shared_arrays(self) -> dict[str, np.ndarray]:
        """Those that are not private."""
        return {name: array for name, array in self.arrays().items() if name not in self.private}

    def private_arrays(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in self.arrays().items() if name in self.private}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> Self:
        elsewhere = dict.fromkeys(set(cls.private) - arrays.keys())
        return cls(
            **elsewhere, **{name: a if a.ndim else a.item() for name, a in _of(cls, arrays).items()}
        )


def _of(kind: type[Record], arrays: dict[str, Any]) -> dict[str, Any]:
    """A record's own arrays; all but what is private must be there."""
    names = [f.name for f in fields(kind)]
    return {name: arrays[name] for name in names if name in arrays or name not in kind.private}
