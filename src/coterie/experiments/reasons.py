"""Why an item is recommended: the items of the user's history that its score comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from coterie.algorithms import registry
from coterie.errors import ConfigError
from coterie.experiments.run_folder import Catalogue
from coterie.models.item_based import ItemBased
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints, JsonObject

REASONS = 3
"""Items of the history that are named for a recommendation."""


class Reason(NamedTuple):
    """An item of the user's history, and what it adds to the score of a recommendation."""

    item: object
    contribution: float
    share: float | None
    """Contribution divided by score; None if the score is not positive.

    Where other items lower the score, shares may sum to more than 1.
    """
    text: str


@dataclass(frozen=True, slots=True)
class Explainer:
    """Finds the reasons of recommendations: at most `n` items, which all raise the score."""

    model: ItemBased
    catalogue: Catalogue
    n: int = REASONS

    @classmethod
    def of(
        cls, model: Recommender, catalogue: Catalogue, algorithm: str, n: int = REASONS
    ) -> Explainer:
        """The explainer of a model, or an error that names the item-based algorithms."""
        if not isinstance(model, ItemBased):
            able = ", ".join(registry.item_based())
            raise ConfigError(
                f"the run's algorithm is {algorithm}, which is not item-based, so it cannot say "
                f"why it recommends an item; expected one of {able}. Train one of them."
            )
        if n < 1:
            raise ConfigError(f"n is {n}; expected at least one reason. Pass 1 or more.")
        return cls(model, catalogue, n)

    def for_user(self, user: int, items: Ints) -> list[list[Reason]]:
        """The reasons of each item for a user of the training, largest contribution first."""
        return self.for_history(self.model.histories().of(user), items)

    def for_history(self, history: Ints, items: Ints) -> list[list[Reason]]:
        """The reasons of each item for a user with the given items."""
        contributions = self.model.contributions(history, items)
        return [self._largest(history, row) for row in contributions]

    def _largest(self, history: Ints, contributions: Floats) -> list[Reason]:
        """The largest positive contributions to one score; ties in item order."""
        score = float(contributions.sum())
        best = np.argsort(-contributions, kind="stable")[: self.n]
        return [
            Reason(
                item=self.catalogue.id_of(history[k]),
                contribution=float(contributions[k]),
                share=float(contributions[k]) / score if score > 0 else None,
                text=self.catalogue.text_of(history[k]),
            )
            for k in best
            if contributions[k] > 0
        ]


def as_objects(reasons: Sequence[Reason]) -> list[JsonObject]:
    """Reasons as JSON has them."""
    return [reason._asdict() for reason in reasons]
