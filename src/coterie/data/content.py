"""The text inputs of the towers: titles, categories, bodies and user features, encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.data.text import Ragged
from coterie.types import Ints, Longs, Rows

TextEncoding = Literal["bags", "words"]
"""A tower reads a bag of inputs with counts, or words in their order."""
UserInput = Literal["auto", "features", "titles"]
"""What the user tower reads: user features, titles of the user's items, or whichever exists."""


@dataclass(frozen=True, slots=True)
class Content:
    items: Ragged | None
    """Title, categories and body of every item; None on a client that does not receive them."""
    titles: Ragged
    """Title of every item. A client knows the titles of its user's items."""
    users: Ragged | None
    """Features of every user; None if users are represented by titles of their items."""
    letters: Rows
    """word -> the inputs of its letter trigrams, for towers that read words."""
    encoding: TextEncoding

    def of_users(self, users: Ints | Longs) -> Content:
        return Content(
            self.items,
            self.titles,
            self.users and self.users.take(users),
            self.letters,
            self.encoding,
        )
