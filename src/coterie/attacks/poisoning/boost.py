"""Explicit boosting: colluders train as if they liked the target, and scale its row.

Bhagoji, Chakraborty, Mittal, Calo. Analyzing federated learning through an adversarial lens. ICML
2019: a malicious objective is trained as any other, and its update is scaled so that it survives
the average.

    train     on the colluder's own history and the target
    send      the update, with the target's row times `scale`

Deviations: only the target's row is scaled, so that all other rows are those of an honest client;
entries are limited to the range that validation accepts. Where clients send item ids, nothing can
be scaled: a colluder sends its history and the target.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.item_updates import limited, moves_items, with_target
from coterie.types import Updates


class Boost(AttackSettings):
    scale: float = Field(100.0, gt=0)
    """Factor of the target's row."""


def poison(view: AttackView, settings: Boost) -> Updates:
    return boosted(view, settings.scale)


def boosted(view: AttackView, scale: float) -> Updates:
    """Updates of colluders who like the target."""
    updates = view.train_on(with_target(view.histories, view.target))
    if not moves_items(view):
        return updates
    factors = np.where(updates.items == view.target, scale, 1.0)
    return replace(updates, item_rows=limited(np.rint(factors[:, None] * updates.item_rows)))


BOOST = AttackKind(
    summary="colluders who like the target, with its row scaled",
    settings=Boost,
    poison=poison,
    paper="Bhagoji et al. 2019",
    is_targeted=True,
)
