"""PipAttack: the target is made to look popular, and boosted.

Zhang, Yin, Chen, Huang, Nguyen, Cui. PipAttack: poisoning federated recommender systems for
manipulating item promotion. WSDM 2022:

    explicit boosting        colluders' users are trained to score the target high
    popularity obfuscation   the target's embedding moves to where those of popular items are
    distance constraint      updates stay near honest ones

The attacker knows which items are popular.

Deviations: the paper trains a classifier of popularity levels on embeddings and follows its
gradient; here the target moves towards the mean row of the popular items. The distance constraint
is the range that validation accepts.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.boost import boosted
from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.item_updates import (
    item_table,
    limited,
    to_move,
    value_columns,
    with_rows,
)
from coterie.attacks.poisoning.surface import needs_item_rows
from coterie.types import Doubles, Updates


class PipAttack(AttackSettings):
    scale: float = Field(10.0, ge=0)
    """Factor of the target's row in explicit boosting; 0 leaves boosting out."""
    alignment: float = Field(2.0, ge=0)
    """Multiple of the popular items' mean row that the target moves to; 0 leaves it out."""


def poison(view: AttackView, settings: PipAttack) -> Updates:
    updates = boosted(view, settings.scale)
    own = boosted_rows(view, updates)
    table = item_table(view)
    goal = settings.alignment * table[view.colluders.popular].mean(axis=0)
    aligned = to_move(view, (goal - table[view.target])[None, :]).astype(np.float64)
    if not settings.alignment:
        aligned = np.zeros_like(aligned)
    rows = limited(own + aligned)[:, None, :]
    return with_rows(updates, np.array([view.target], np.int32), rows)


def boosted_rows(view: AttackView, updates: Updates) -> Doubles:
    """(clients, width) every client's row of the target; zeros where it has none."""
    owner = np.repeat(np.arange(len(updates)), np.diff(updates.offsets))
    of_target = updates.items == view.target
    rows = np.zeros((len(updates), updates.item_rows.shape[1]))
    rows[owner[of_target]] = updates.item_rows[of_target]
    rows[:, value_columns(view.world, rows.shape[1]) :] = 0
    return rows


PIPATTACK = AttackKind(
    summary="the target is boosted, and moves to where popular items are",
    settings=PipAttack,
    poison=poison,
    paper="Zhang et al. 2022",
    refusal=needs_item_rows,
    is_targeted=True,
)
