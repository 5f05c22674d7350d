"""Chance levels: what a random ranking scores. A method there has learned nothing to compare."""

from __future__ import annotations

import re
from math import log2

AUC_OF_CHANCE = 0.5
NEAR = 1.1
"""A method below this multiple of the chance level counts as being at chance level."""


def chance_level(protocol: str | None, metric: str) -> float | None:
    """The expected value of a random ranking; None where it has no closed form here.

    `loo-N` ranks one held-out item among N sampled others.
    """
    if metric == "AUC":
        return AUC_OF_CHANCE
    sampled = re.fullmatch(r"loo-(\d+)", protocol or "")
    named = re.fullmatch(r"(HR|NDCG)@(\d+)", metric)
    if not sampled or not named:
        return None
    candidates = int(sampled[1]) + 1
    ranks = range(1, min(int(named[2]), candidates) + 1)
    gains = [1.0 if named[1] == "HR" else 1 / log2(rank + 1) for rank in ranks]
    return sum(gains) / candidates


def at_chance(value: float, chance: float | None) -> bool:
    """Whether a value is no more than a tenth above the chance level."""
    return chance is not None and value < NEAR * chance
