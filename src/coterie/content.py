"""What towers read about items and people: titles, categories, bodies and features, as inputs or as words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from coterie import texts
from coterie.errors import ConfigError
from coterie.texts import STOP_WORDS, Ragged, Words
from coterie.types import Ints, Longs, Rows, Training

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
        return Content(self.items, self.titles, self.people and self.people.take(users), self.letters, self.reading)


def read(training: Training, reading: Reading, n_inputs: int, most_words: int, person: Person) -> Content:
    """Encode what a training part tells of items and people; the same texts are read once."""
    if training.item_texts is None:
        raise ConfigError(
            "the items of this data have no texts, which towers read; expected titles. Use ml-100k, ml-1m or watson-articles, or a RecBole "
            "folder with an .item file."
        )
    if person == "features" and not training.user_features:
        raise ConfigError("setting 'person' is 'features', but the data tells none of people. Set person=titles.")
    told = person != "titles" and bool(training.user_features)
    nothing = ("",) * training.n_items
    return _read(
        tuple(training.item_texts),
        nothing if training.item_categories is None else tuple(" ".join(c) for c in training.item_categories),
        nothing if training.item_bodies is None else tuple(training.item_bodies),
        tuple(features(training)) if told else None,
        reading, n_inputs, most_words if reading == "words" else 0,
    )  # fmt: skip


def features(training: Training) -> list[tuple[str, ...]]:
    """A word for every feature of every person: its name and its value, so that an age of 25 is no occupation 25."""
    columns = [[_word(name, value) for value in values] for name, values in sorted(training.user_features.items())]
    return list(zip(*columns, strict=True))


def _word(name: str, value: object) -> str:
    return re.sub(r"\W", "_", f"{name}_{value}".lower())


@lru_cache(maxsize=2)
def _read(
    titles: Sequence[str],
    categories: Sequence[str],
    bodies: Sequence[str],
    people: Sequence[Sequence[str]] | None,
    reading: Reading,
    n_inputs: int,
    most_words: int,
) -> Content:
    head, kinds, long = texts.words_of(titles), texts.words_of(categories), texts.words_of(bodies, STOP_WORDS)
    whole = [t + c + b for t, c, b in zip(head, kinds, long, strict=True)]
    words = texts.read([*head, *whole, *(list(p) for p in people or ())], n_inputs)
    encoded = texts.bags(words) if reading == "bags" else _first(words, most_words)
    n = len(titles)
    parts = [encoded.take(np.arange(first, last)) for first, last in ((0, n), (n, 2 * n), (2 * n, len(encoded)))]
    return Content(parts[1], parts[0], None if people is None else parts[2], words.letters, reading)


def _first(words: Words, most: int) -> Ragged:
    """The first words of every text."""
    counts = np.minimum(words.texts.counts, most)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places = np.repeat(words.texts.offsets[:-1] - offsets[:-1], counts) + np.arange(offsets[-1])
    return Ragged(Rows(offsets, words.texts.items[places]), np.ones(len(places), np.float32))
