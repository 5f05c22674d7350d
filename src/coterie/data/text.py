"""Texts as words, and words as hashed letter trigrams (Huang et al. 2013, Section 3.2).

A word is put between two marks and cut into pieces of three letters: `cat` becomes #ca, cat, at#.
Misspelt and unknown words thus share trigrams with known ones. Each trigram is hashed to one of a
fixed number of inputs. The hash depends only on the trigram, so that clients and server encode
alike without exchanging a vocabulary.
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
"""Letters, digits, underscores and combining marks; \\w alone would split words at marks."""
COMMON_WORDS = """
    about after all also an and any are as at be because been but by can could did do does doesn don
    for from had has have he her here him his how if in into is isn it its just like ll me more most
    my no not of on one only or other our out over re she so some such than that the their them then
    there these they this those through to too up us ve very was we were what when where which who
    why will with would you your
"""
STOP_WORDS = frozenset(COMMON_WORDS.split()) | frozenset(ascii_lowercase)
"""English stop words for long texts, including the parts around an apostrophe."""


@dataclass(frozen=True, slots=True)
class TokenizedTexts:
    """Texts as word indices, and every word as inputs."""

    texts: Rows  # text -> its words, in their order
    letters: Rows  # word -> the inputs of its trigrams, in their order


def words_of(texts: Iterable[str], without: frozenset[str] = frozenset()) -> list[list[str]]:
    """The words of every text, in lower case and Unicode normal form C."""
    return [
        [word for word in WORD.findall(normalize("NFC", text.lower())) if word not in without]
        for text in texts
    ]


def read(texts: list[list[str]], n_inputs: int) -> TokenizedTexts:
    """Index the words and hash the trigrams of every distinct word once."""
    vocabulary: dict[str, int] = {}
    flat = [vocabulary.setdefault(word, len(vocabulary)) for words in texts for word in words]
    ends = np.cumsum([len(words) for words in texts], dtype=np.int64)
    return TokenizedTexts(
        Rows(np.concatenate([[0], ends]), np.array(flat, np.int32)),
        trigrams(list(vocabulary), n_inputs),
    )


def trigrams(words: list[str], n_inputs: int) -> Rows:
    """The inputs of every word's trigrams; a word of n letters has n trigrams."""
    lengths = np.array([len(word) for word in words], np.int64)
    text = "".join(f"#{word}#" for word in words)
    marked = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    starts = np.repeat(np.cumsum(lengths + 2) - lengths - 2, lengths)
    offsets: Longs = np.concatenate([[0], np.cumsum(lengths)])
    first = starts + np.arange(len(starts)) - np.repeat(offsets[:-1], lengths)
    a, b, c = (marked[first + k].astype(np.uint64) for k in range(3))
    hashed = streams.mix_array(a << np.uint64(42) | b << np.uint64(21) | c)
    return Rows(offsets, streams.below(hashed, np.full(len(hashed), n_inputs)).astype(np.int32))


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths, with a weight per entry."""

    rows: Rows
    weights: Floats

    def __len__(self) -> int:
        return len(self.rows.counts)

    def take(self, which: Ints | Longs) -> Ragged:
        places = self.rows.places(which)
        offsets = np.concatenate([[0], np.cumsum(self.rows.counts_of(which))])
        return Ragged(Rows(offsets, self.rows.items[places]), self.weights[places])

    def joined(self, which: Ints | Longs) -> Ragged:
        """Row k is the concatenation of the rows `which[k]` of (n, m) indices; -1 is padding."""
        present = which >= 0
        flat = which[present]
        counts = np.zeros(which.shape, np.int64)
        counts[present] = self.rows.counts_of(flat)
        offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        places = self.rows.places(flat)
        return Ragged(Rows(offsets, self.rows.items[places]), self.weights[places])

    def merged(self) -> Ragged:
        """Every row sorted, with equal entries merged and their weights added."""
        owner = np.repeat(np.arange(len(self)), self.rows.counts)
        width = int(self.rows.items.max(initial=0)) + 1
        pairs, place = np.unique(owner * width + self.rows.items, return_inverse=True)
        offsets = np.searchsorted(pairs, np.arange(len(self) + 1) * width).astype(np.int64)
        weights = np.bincount(place, self.weights, len(pairs)).astype(np.float32)
        return Ragged(Rows(offsets, (pairs % width).astype(np.int32)), weights)


def bags(words: TokenizedTexts) -> Ragged:
    """Every text as a bag: its inputs in ascending order, with their counts as weights."""
    letters = words.letters.places(words.texts.items)
    ends = np.concatenate([[0], np.cumsum(words.letters.counts_of(words.texts.items))])
    rows = Rows(ends[words.texts.offsets], words.letters.items[letters])
    return Ragged(rows, np.ones(len(letters), np.float32)).merged()
