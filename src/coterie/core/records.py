"""Frozen records of arrays that are saved as plain arrays and restored from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np


@dataclass(frozen=True, slots=True)
class Record:
    """A subclass is a dataclass whose fields are arrays and numbers."""

    private: ClassVar[tuple[str, ...]] = ()
    """Fields with one row per user that stay on the clients.

    No server holds them, and they are saved separately.
    """

    of_users: ClassVar[tuple[str, ...]] = ()
    """Fields with one row per user that a server holds."""

    roles: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Role -> the fields that the server in that role holds, if there are several servers."""

    def without_private(self) -> Self:
        """The record as a server holds it: private fields are None."""
        return replace(self, **dict.fromkeys(self.private)) if self.private else self

    def as_seen_by(self, role: str) -> Self:
        """The record as one server holds it: private and other servers' fields are None."""
        others = {name for owner, names in self.roles.items() if owner != role for name in names}
        hidden = others - set(self.roles.get(role, ())) | set(self.private)
        return replace(self, **dict.fromkeys(hidden)) if hidden else self

    def with_part_of(self, role: str, after: Self) -> Self:
        """This record with the fields of one role taken from `after`."""
        names = self.roles.get(role)
        if names is None:
            return after
        return replace(self, **{name: getattr(after, name) for name in names})

    def arrays(self) -> dict[str, np.ndarray]:
        """All fields that are present, as arrays; on a server the private ones are missing."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: np.asarray(value) for name, value in values.items() if value is not None}

    def shared_arrays(self) -> dict[str, np.ndarray]:
        """The fields that are not private."""
        return {name: array for name, array in self.arrays().items() if name not in self.private}

    def private_arrays(self) -> dict[str, np.ndarray]:
        return {name: array for name, array in self.arrays().items() if name in self.private}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        missing = dict.fromkeys(set(cls.private) - arrays.keys())
        present = {name: a if a.ndim else a.item() for name, a in _own(cls, arrays).items()}
        return cls(**missing, **present)


def _own(kind: type[Record], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The record's own arrays. Only private ones and those with a default may be missing."""
    optional = {f.name for f in fields(kind) if f.default is not MISSING} | set(kind.private)
    names = [f.name for f in fields(kind)]
    return {name: arrays[name] for name in names if name in arrays or name not in optional}
