"""src/coterie/data/text_features.py."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from coterie.data import text as texts
from coterie.data.content import Content, Person, Reading
from coterie.data.text import STOP_WORDS, Ragged, Words
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.types import Rows


def read(
    training: TrainingSet, reading: Reading, n_inputs: int, most_words: int, person: Person
) -> Content:
    """Encode what a training part tells of items and people; the same texts are read once."""
    if training.item_texts is None:
        raise ConfigError(
            "the items of this data have no texts, which towers read; expected titles. Use ml-100k, ml-1m or watson-articles, or a RecBole "
            "folder with an .item file."
        )
    if person == "features" and not training.user_features:
        raise ConfigError(
            "setting 'person' is 'features', but the data tells none of people. Set person=titles."
        )
    told = person != "titles" and bool(training.user_features)
    nothing = ("",) * training.n_items
    return _read(
        tuple(training.item_texts),
        nothing
        if training.item_categories is None
        else tuple(" ".join(c) for c in training.item_categories),
        nothing if training.item_bodies is None else tuple(training.item_bodies),
        tuple(features(training)) if told else None,
        reading,
        n_inputs,
        most_words if reading == "words" else 0,
    )


def features(training: TrainingSet) -> list[tuple[str, ...]]:
    """A word for every feature of every person: its name and its value, so that an age of 25 is no occupation 25."""
    columns = [
        [_word(name, value) for value in values]
        for name, values in sorted(training.user_features.items())
    ]
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
    head = texts.words_of(titles)
    kinds = texts.words_of(categories)
    long = texts.words_of(bodies, STOP_WORDS)
    whole = [t + c + b for t, c, b in zip(head, kinds, long, strict=True)]
    words = texts.read([*head, *whole, *(list(p) for p in people or ())], n_inputs)
    encoded = texts.bags(words) if reading == "bags" else _first(words, most_words)
    n = len(titles)
    parts = [
        encoded.take(np.arange(first, last))
        for first, last in ((0, n), (n, 2 * n), (2 * n, len(encoded)))
    ]
    return Content(parts[1], parts[0], None if people is None else parts[2], words.letters, reading)


def _first(words: Words, most: int) -> Ragged:
    """The first words of every text."""
    counts = np.minimum(words.texts.counts, most)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places = np.repeat(words.texts.offsets[:-1] - offsets[:-1], counts) + np.arange(offsets[-1])
    return Ragged(Rows(offsets, words.texts.items[places]), np.ones(len(places), np.float32))
