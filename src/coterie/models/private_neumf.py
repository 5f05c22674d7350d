"""NeuMF whose user rows stay on the clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.models.neumf import NeuMF


@dataclass(frozen=True, slots=True)
class PrivateNeuMF(NeuMF):
    kind: ClassVar[str] = "private-neumf"
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
