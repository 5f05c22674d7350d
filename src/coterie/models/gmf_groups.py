"""GMF with separate item rows per group: y = h_g . (p_u * q_gi) + b_g for a user of group g."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.gmf import GMF
from coterie.models.recommender import Recommender, cosines
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class GMFGroups(Recommender):
    kind: ClassVar[str] = "gmf-groups"
    of_users: ClassVar[tuple[str, ...]] = ("user_rows", "groups")
    trained: ClassVar[tuple[str, ...]] = ("user_rows", "item_rows", "output", "bias")
    user_rows: Floats  # (users, d)
    item_rows: Floats  # (groups, items, d)
    output: Floats  # (groups, d)
    bias: Floats  # (groups,)
    groups: Ints  # (users,)

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        n_items = self.item_rows.shape[1] if items is None else items.shape[1]
        scores = np.empty((len(users), n_items), np.float32)
        groups = self.groups[users]
        for group in np.unique(groups).tolist():
            members = np.flatnonzero(groups == group)
            candidates = None if items is None else items[members]
            scores[members] = self._of(group).score(users[members], candidates)
        return scores

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        """Use the largest group's rows, because the group of a new user is not known."""
        largest = int(np.bincount(self.groups).argmax())
        return self._of(largest).score_new_user(history, negatives, reg)

    def similar_items(self, item: int) -> Floats:
        """Cosines of item rows, averaged over the groups with the number of their users."""
        users = np.bincount(self.groups, minlength=len(self.item_rows))
        by_group = [cosines(rows, item) for rows in self.item_rows]
        return np.average(by_group, axis=0, weights=users).astype(np.float32)

    def _of(self, group: int) -> GMF:
        """The model of one group."""
        return GMF(
            self.user_rows, self.item_rows[group], self.output[group], self.bias[group : group + 1]
        )
