"""Matrix factorisation whose user rows live on the users' devices: a server has items and biases, and nobody's row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.models.factors import Factors


@dataclass(frozen=True, slots=True)
class PrivateFactors(Factors):
    kind: ClassVar[str] = "private-factors"
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
