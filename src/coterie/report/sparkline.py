"""A row of numbers as one line of text."""

from __future__ import annotations

from collections.abc import Sequence

BARS = "▁▂▃▄▅▆▇█"
NOTHING = "×"
"""Stands where there is no number."""


def sparkline(values: Sequence[float | None]) -> str:
    """One bar per number, from the lowest of them to the highest."""
    known = [value for value in values if value is not None]
    if not known:
        return NOTHING * len(values)
    low = min(known)
    span = (max(known) - low) or 1.0
    return "".join(
        NOTHING if value is None else BARS[round((value - low) / span * (len(BARS) - 1))]
        for value in values
    )
