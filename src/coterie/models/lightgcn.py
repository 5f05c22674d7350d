"""The final user and item rows of LightGCN (He et al. 2020): y = p_u . q_i.

A user's final row is the mean of the layers 0..K. Layer 0 is trained; layer k + 1 is a weighted sum
over the user's items i of their layer k:

    p_u = e_u / (K + 1) + 1 / sqrt(|N_u|) sum_i m_i
    m_i = 1 / sqrt(|N_i|) sum_{k < K} e_i^(k) / (K + 1)

For a new user the items' m_i stay as they are, and e_u is the row with the least loss of training.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from coterie.models.factors import Factors
from coterie.models.new_user import fit_row_to_pairs
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class LightGCN(Factors):
    """`item_bias` is zero: the paper has none."""

    kind: ClassVar[str] = "lightgcn"
    trained: ClassVar[tuple[str, ...]] = ("user_rows", "item_rows")  # as many as in layer 0
    messages: Floats  # (items, d) m, what an item adds to the rows of its users

    def score_new_user(self, history: Ints, layers: int, reg: float) -> Floats:
        """Scores of all items for a user with the given items; the model stays frozen.

        Without items, the user gets the average row.
        """
        if not len(history):
            return self.score_row(self.average_row())
        by_graph = self.messages[history].sum(axis=0) / np.float32(sqrt(len(history)))
        share = np.float32(1 / (layers + 1))
        own = fit_row_to_pairs(share * self.item_rows, self.score_row(by_graph), history, reg)
        return self.score_row(by_graph + share * own)
