"""What towers read about items and people: titles, categories, bodies and features, as inputs or as words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.data.text import Ragged
from coterie.types import Ints, Longs, Rows

Reading = Literal["bags", "words"]
"""Whether a tower reads inputs and how often each is on, or words in their order."""
Person = Literal["auto", "features", "titles"]


@dataclass(frozen=True, slots=True)
class Content:
    items: Ragged | None
    """Title, categories and body of every item; None where a device is not given them."""
    titles: Ragged
    """Of every item: a device knows those of what its user did."""
    people: Ragged | None
    """Features of every person; None where people are told by titles of what they did."""
    letters: Rows
    """The inputs of every word, for towers that read words."""
    reading: Reading

    def of_users(self, users: Ints | Longs) -> Content:
        return Content(
            self.items,
            self.titles,
            self.people and self.people.take(users),
            self.letters,
            self.reading,
        )
