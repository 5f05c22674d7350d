"""Items whose exposure grows faster than training explains.

An item is conspicuous if its exposure is at least LEAST, and FACTOR times that of one of the last
WINDOW rounds. While a model forms, many items rise: the first SETTLING rounds are no baseline. The
numbers were chosen on MovieLens-100K, where clean runs raise no alarm, and that of the first rounds
on MovieLens-1M as well (docs/poisoning.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie.types import Doubles

LEAST = 0.3
FACTOR = 30.0
WINDOW = 4
SETTLING = 15
CALM = LEAST / 2
"""Exposure below which an item is no longer conspicuous."""


class Shift(NamedTuple):
    """An item whose exposure grew."""

    item: int
    growth: float
    now: float
    rounds: int


@dataclass(slots=True)
class ExposureShifts:
    """The exposures of recent rounds."""

    recent: deque[tuple[int, Doubles]] = field(default_factory=deque)
    """(round, exposures), the oldest first."""

    def add(self, n: int, exposures: Doubles) -> Iterator[Shift]:
        """The items that are conspicuous after round n, compared with each round of the window."""
        self.recent = deque((t, e) for t, e in self.recent if n - WINDOW <= t < n)
        for t, before in reversed(self.recent):
            if len(before) != len(exposures):
                continue
            grown = (exposures >= LEAST) & (exposures >= FACTOR * before)
            for item in np.flatnonzero(grown).tolist():
                yield Shift(
                    item, float(exposures[item] / before[item]), float(exposures[item]), n - t
                )
        if n >= SETTLING:
            self.recent.append((n, exposures))
