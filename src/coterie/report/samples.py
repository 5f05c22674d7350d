"""Sample recommendations on a run's page. They show the model and nothing about any user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coterie.report.parts import html_table


class SampleList(NamedTuple):
    """What a new user gets whose history is one item."""

    history: str
    recommended: list[str]


def samples_section(samples: Sequence[SampleList]) -> str:
    """A row per new user; "" without any."""
    if not samples:
        return ""
    longest = max(len(sample.recommended) for sample in samples)
    header = ["a new user who chose", *(f"gets {rank}" for rank in range(1, longest + 1))]
    rows = [
        [sample.history, *sample.recommended, *[""] * (longest - len(sample.recommended))]
        for sample in samples
    ]
    table = html_table(header, rows, kind="texts")
    caption = "Each history is one popular item. No user of the training data is shown."
    return f"{table}<p class=about>{caption}</p>"
