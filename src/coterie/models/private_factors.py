"""Matrix factorisation whose user rows stay on the clients; the server has items and biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from coterie.models.factors import Factors


@dataclass(frozen=True, slots=True)
class PrivateFactors(Factors):
    kind: ClassVar[str] = "private-factors"
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
