"""Sign flipping: every colluder sends its honest update with the opposite sign, times a factor.

Li, Xu, Chen, Giannakis, Ling. RSA: Byzantine-robust stochastic aggregation methods for distributed
learning from heterogeneous datasets. AAAI 2019 (the sign-flipping attack).

Deviations: entries are limited to the range that validation accepts; a user's own row, which
concerns the colluder alone, stays honest.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.item_updates import limited
from coterie.attacks.poisoning.surface import needs_numbers
from coterie.types import Updates


class SignFlip(AttackSettings):
    scale: float = Field(10.0, gt=0)
    """Factor of the flipped update."""


def poison(view: AttackView, settings: SignFlip) -> Updates:
    return flipped(view.honest, settings.scale)


def flipped(honest: Updates, scale: float) -> Updates:
    """The updates times a negative factor."""
    return replace(
        honest,
        item_rows=limited(-scale * honest.item_rows),
        dense=limited(-scale * honest.dense),
    )


SIGN_FLIP = AttackKind(
    summary="honest updates with the opposite sign, scaled",
    settings=SignFlip,
    poison=poison,
    paper="Li et al. 2019",
    refusal=needs_numbers,
)
