"""Random scores: a hash of user and item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.core import streams
from coterie.models.recommender import Recommender
from coterie.types import Floats, Ints


@dataclass(frozen=True, slots=True)
class RandomScores(Recommender):
    kind: ClassVar[str] = "random"
    trained: ClassVar[tuple[str, ...]] = ()
    seed: int
    n_items: int

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        """A hash of (seed, user, item), so that repeated calls give the same scores."""
        candidates = np.arange(self.n_items) if items is None else items
        keys = streams.keys(self.seed, "random scores", last=users)[:, None]
        words = streams.mix_array(
            keys ^ (candidates.astype(np.uint64) + np.uint64(1)) * np.uint64(streams.GOLDEN)
        )
        return (words >> np.uint64(40)).astype(np.float32) / np.float32(1 << 24)
