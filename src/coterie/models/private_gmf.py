"""Generalised matrix factorisation whose user rows stay on the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.models.gmf import GMF


@dataclass(frozen=True, slots=True)
class PrivateGMF(GMF):
    kind: ClassVar[str] = "private-gmf"
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
