"""Free riders: clients that receive the model and send nothing, or zeros.

Fraboni, Vidal, Lorenzi. Free-rider attacks on model aggregation in federated learning. AISTATS
2021 (the plain attack: the parameters are sent back as they came).

Deviation: where clients send item ids alone, zeros are an empty history.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.item_updates import moves_items
from coterie.types import Updates


class FreeRider(AttackSettings):
    send: Literal["zeros", "nothing"] = "zeros"
    """An update without any change, or no update."""


def poison(view: AttackView, settings: FreeRider) -> Updates:
    honest = view.honest
    if settings.send == "nothing":
        return honest.take(np.empty(0, np.int64))
    zeros = replace(
        honest,
        item_rows=np.zeros_like(honest.item_rows),
        user_rows=np.zeros_like(honest.user_rows),
        dense=np.zeros_like(honest.dense),
    )
    return zeros if moves_items(view) else without_items(zeros)


def without_items(updates: Updates) -> Updates:
    return replace(
        updates,
        offsets=np.zeros(len(updates) + 1, np.int64),
        items=updates.items[:0],
        item_rows=updates.item_rows[:0],
    )


FREE_RIDER = AttackKind(
    summary="no change, or no update at all",
    settings=FreeRider,
    poison=poison,
    paper="Fraboni et al. 2021",
)
