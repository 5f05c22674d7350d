"""PIECK: popular items are mined from how item embeddings move; the target is aligned with them.

Zhang, Li, Rong, Zhao, Chen, Shou. Preventing the popular item embedding based attack in federated
recommendations. ICDE 2024 (arXiv:2502.12958):

    mining    items whose embeddings move most between the messages that colluders see are popular
    IPE       the target's embedding becomes similar to those of the popular items
    UEA       popular items stand for users, whose embeddings are near to them, and the target is
              trained to score high for these

The attacker has no prior knowledge: it sees messages only.

Deviations: movement is summed over all messages so far, not over the first few. IPE moves the
target to a multiple of the popular items' mean row, weighted by their rank, in place of a
similarity loss with two norms. UEA takes the direction
that pseudo-users score highest, in place of gradient steps.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView, Memory
from coterie.attacks.poisoning.item_updates import item_table, promoted, value_columns
from coterie.attacks.poisoning.surface import needs_item_rows
from coterie.types import Doubles, Longs, Message, Updates


class PIECK(AttackSettings):
    variant: Literal["ipe", "uea"] = "ipe"
    """Align the target with popular items, or train it on pseudo-users."""
    popular: int = Field(10, ge=1)
    """Number of items that are mined."""
    mining_messages: int = Field(2, ge=2)
    """Messages that colluders must have seen. Before, they are honest."""
    scale: float = Field(3.0, gt=0)
    """Multiple of the popular items' mean row that the target moves to."""


def remember(memory: Memory, message: Message) -> Memory:
    """The last item rows, and how far every item has moved since the first."""
    rows = message.common["item_rows"].astype(np.float64)
    seen = memory.get("seen", np.zeros(1, np.int64))
    movement = np.zeros(len(rows))
    if "item_rows" in memory:
        movement = memory["movement"] + np.linalg.norm(rows - memory["item_rows"], axis=1)
    return {"item_rows": rows, "movement": movement, "seen": seen + 1}


def poison(view: AttackView, settings: PIECK) -> Updates:
    if int(view.memory["seen"][0]) < settings.mining_messages:
        return view.honest
    popular = mined(view.memory, view.target, settings.popular)
    rows = item_table(view)[popular]
    goal = aligned(rows) if settings.variant == "ipe" else scoring_high(view, rows)
    return promoted(view, view.honest, settings.scale * goal)


def mined(memory: Memory, target: int, n: int) -> Longs:
    """The items that moved most, without the target, which the attack moves itself."""
    movement = memory["movement"].copy()
    movement[target] = -1
    return np.argsort(-movement, kind="stable")[:n]


def aligned(rows: Doubles) -> Doubles:
    """The mean row, in which earlier items weigh more."""
    weights = 1 / np.arange(1, len(rows) + 1)
    return np.average(rows, axis=0, weights=weights)


def scoring_high(view: AttackView, rows: Doubles) -> Doubles:
    """A row that all pseudo-users score high: the sum of their directions, as long as theirs."""
    values = value_columns(view.world, rows.shape[1])
    lengths = np.maximum(np.linalg.norm(rows[:, :values], axis=1), 1e-9)
    direction: Doubles = (rows / lengths[:, None]).mean(axis=0)
    factor = float(lengths.max()) / max(float(np.linalg.norm(direction)), 1e-9)
    return direction * factor


PIECK_ATTACK = AttackKind(
    summary="mines popular items from messages, and aligns the target with them",
    settings=PIECK,
    poison=poison,
    paper="Zhang et al. 2024",
    remember=remember,
    refusal=needs_item_rows,
    is_targeted=True,
)
