"""Encodes the texts of items and the features of users for the towers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from coterie.data import text as texts
from coterie.data.content import Content, TextEncoding, UserInput
from coterie.data.text import STOP_WORDS, Ragged, TokenizedTexts
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.types import Rows


def read(
    training: TrainingSet,
    encoding: TextEncoding,
    n_inputs: int,
    most_words: int,
    user_input: UserInput,
) -> Content:
    """Encode the texts and features of a training set; equal inputs are encoded once."""
    if training.item_texts is None:
        raise ConfigError(
            "the items of this data have no texts, which towers read; expected titles. "
            "Use ml-100k, ml-1m or watson-articles, or a RecBole folder with an .item file."
        )
    if user_input == "features" and not training.user_features:
        raise ConfigError(
            "setting 'person' is 'features', but the data has no user features. Set person=titles."
        )
    use_features = user_input != "titles" and bool(training.user_features)
    categories: tuple[str, ...] = ("",) * training.n_items
    if training.item_categories is not None:
        categories = tuple(" ".join(names) for names in training.item_categories)
    bodies: tuple[str, ...] = ("",) * training.n_items
    if training.item_bodies is not None:
        bodies = tuple(training.item_bodies)
    return _read(
        tuple(training.item_texts),
        categories,
        bodies,
        tuple(features(training)) if use_features else None,
        encoding,
        n_inputs,
        most_words if encoding == "words" else 0,
    )


def read_words(
    words: Sequence[Sequence[str]], encoding: TextEncoding, n_inputs: int, most_words: int
) -> Content:
    """Encode texts that are given as words, such as the titles of a new user's items."""
    tokenized = texts.read([list(each) for each in words], n_inputs)
    encoded = texts.bags(tokenized) if encoding == "bags" else _first_words(tokenized, most_words)
    return Content(
        items=None, titles=encoded, users=None, letters=tokenized.letters, encoding=encoding
    )


def feature_words(values: Mapping[str, object]) -> list[str]:
    """One word per feature of a single user, as `features` has them."""
    return [_word(name, values[name]) for name in sorted(values)]


def features(training: TrainingSet) -> list[tuple[str, ...]]:
    """One word per feature of every user.

    A word contains the feature's name, so that age 25 and occupation 25 differ.
    """
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
    users: Sequence[Sequence[str]] | None,
    encoding: TextEncoding,
    n_inputs: int,
    most_words: int,
) -> Content:
    of_titles = texts.words_of(titles)
    of_categories = texts.words_of(categories)
    of_bodies = texts.words_of(bodies, STOP_WORDS)
    of_items = [t + c + b for t, c, b in zip(of_titles, of_categories, of_bodies, strict=True)]
    of_users = [list(words) for words in users or ()]
    tokenized = texts.read([*of_titles, *of_items, *of_users], n_inputs)
    encoded = texts.bags(tokenized) if encoding == "bags" else _first_words(tokenized, most_words)
    n = len(titles)
    return Content(
        items=encoded.take(np.arange(n, 2 * n)),
        titles=encoded.take(np.arange(n)),
        users=None if users is None else encoded.take(np.arange(2 * n, len(encoded))),
        letters=tokenized.letters,
        encoding=encoding,
    )


def _first_words(tokenized: TokenizedTexts, most: int) -> Ragged:
    """The first `most` words of every text."""
    words = tokenized.texts
    counts = np.minimum(words.counts, most)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    positions = np.repeat(words.offsets[:-1] - offsets[:-1], counts) + np.arange(offsets[-1])
    return Ragged(Rows(offsets, words.items[positions]), np.ones(len(positions), np.float32))
