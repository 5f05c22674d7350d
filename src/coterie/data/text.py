"""Texts as words, and words as letter trigrams hashed into a fixed number of inputs (Huang et al. 2013, Section 3.2).

A word is put between two marks and cut into pieces of three letters: `cat` is #ca, cat, at#. Misspelt and unknown words still share
pieces with known ones. Which input a piece switches on depends on the piece alone, so that a device and a server that never met
read alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_lowercase
from unicodedata import normalize

import numpy as np

from coterie.core import streams
from coterie.types import Floats, Ints, Longs, Rows

WORD = re.compile(r"[\w\u0300-\u036f\u0900-\u0dff\u0e00-\u0eff]+")
"""Letters, digits and underscores in a row; also marks above and below letters, at which \\w alone would cut words."""
SAY_LITTLE = """
    about after all also an and any are as at be because been but by can could did do does doesn don for from had has have he her
    here him his how if in into is isn it its just like ll me more most my no not of on one only or other our out over re she so
    some such than that the their them then there these they this those through to too up us ve very was we were what when where
    which who why will with would you your
"""
STOP_WORDS = frozenset(SAY_LITTLE.split()) | frozenset(ascii_lowercase)
"""English words, and what an apostrophe leaves of them, that do not tell what a long text is about."""


@dataclass(frozen=True, slots=True)
class Words:
    """Texts as numbers of words, and every word's letters."""

    texts: Rows  # text -> its words, in the order they stand in
    letters: Rows  # word -> the inputs that its trigrams switch on, one after the other


def words_of(texts: Iterable[str], without: frozenset[str] = frozenset()) -> list[list[str]]:
    """In lower case, and each letter with its marks as one where there is such a letter."""
    return [
        [word for word in WORD.findall(normalize("NFC", text.lower())) if word not in without]
        for text in texts
    ]


def read(texts: list[list[str]], n_inputs: int) -> Words:
    """Number the words and hash their letters; every distinct word is looked at once."""
    numbers: dict[str, int] = {}
    flat = [numbers.setdefault(word, len(numbers)) for words in texts for word in words]
    ends = np.cumsum([len(words) for words in texts], dtype=np.int64)
    return Words(
        Rows(np.concatenate([[0], ends]), np.array(flat, np.int32)),
        trigrams(list(numbers), n_inputs),
    )


def trigrams(words: list[str], n_inputs: int) -> Rows:
    """The inputs of every word's trigrams: a word of n letters has n."""
    lengths = np.array([len(word) for word in words], np.int64)
    marked = np.frombuffer(
        "".join(f"#{word}#" for word in words).encode("utf-32-le", "surrogatepass"), "<u4"
    )
    starts = np.repeat(np.cumsum(lengths + 2) - lengths - 2, lengths)
    offsets: Longs = np.concatenate([[0], np.cumsum(lengths)])
    first = starts + np.arange(len(starts)) - np.repeat(offsets[:-1], lengths)
    a, b, c = (marked[first + k].astype(np.uint64) for k in range(3))
    hashed = streams.mix_array(a << np.uint64(42) | b << np.uint64(21) | c)
    return Rows(offsets, streams.below(hashed, np.full(len(hashed), n_inputs)).astype(np.int32))


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths, with a weight for every entry."""

    rows: Rows
    weights: Floats

    def __len__(self) -> int:
        return len(self.rows.counts)

    def take(self, which: Ints | Longs) -> Ragged:
        return Ragged(self.rows.of_users(which), self.weights[self.rows.places(which)])

    def joined(self, which: Ints | Longs) -> Ragged:
        """(n, m) row k is the rows of which[k] one after the other; -1 stands for none."""
        present = which >= 0
        flat = which[present]
        counts = np.zeros(which.shape, np.int64)
        counts[present] = self.rows.counts_of(flat)
        offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        places = self.rows.places(flat)
        return Ragged(Rows(offsets, self.rows.items[places]), self.weights[places])

    def merged(self) -> Ragged:
        """With each entry once in its row, ascending, its weights added up."""
        owner = np.repeat(np.arange(len(self)), self.rows.counts)
        width = int(self.rows.items.max(initial=0)) + 1
        pairs, place = np.unique(owner * width + self.rows.items, return_inverse=True)
        offsets = np.searchsorted(pairs, np.arange(len(self) + 1) * width).astype(np.int64)
        weights = np.bincount(place, self.weights, len(pairs)).astype(np.float32)
        return Ragged(Rows(offsets, (pairs % width).astype(np.int32)), weights)


def bags(words: Words) -> Ragged:
    """Every text as its inputs, ascending, and how often each is switched on."""
    letters = words.letters.places(words.texts.items)
    ends = np.concatenate([[0], np.cumsum(words.letters.counts_of(words.texts.items))])
    rows = Rows(ends[words.texts.offsets], words.letters.items[letters])
    return Ragged(rows, np.ones(len(letters), np.float32)).merged()
