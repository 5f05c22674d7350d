"""Columns of texts as codes into their distinct texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from coterie.types import Bools, Ids, Longs

WORD = 8
MOST_WORDS = 4
"""Longer cells are compared as strings."""
MASKS = np.array([2 ** (8 * n) - 1 for n in range(WORD + 1)], np.uint64)
"""The mask of the first n bytes of a little-endian word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedColumn:
    """A column as its distinct cells, and for every row the position of its cell among them."""

    codes: Longs
    distinct: Ids
    """Texts. One may occur twice, and one may be in no row."""

    @property
    def cells(self) -> Ids:
        return self.distinct[self.codes]

    def take(self, rows: Bools | Longs) -> CodedColumn:
        return CodedColumn(codes=self.codes[rows], distinct=self.distinct)

    def normalised(self) -> CodedColumn:
        """The same column; every text of it is there once, in the order of first appearance."""
        texts = self.distinct.tolist()
        if len(set(texts)) == len(texts):
            if _is_by_first_appearance(self.codes, len(texts)):
                return self
            codes, used = _factorized(self.codes)
            return CodedColumn(codes=codes, distinct=self.distinct[used])
        once = coded_texts(texts)
        return CodedColumn(codes=once.codes[self.codes], distinct=once.distinct).normalised()


def _is_by_first_appearance(codes: Longs, n: int) -> bool:
    """Whether codes count from 0 to n - 1 in the order in which they first appear."""
    newest = np.maximum.accumulate(np.concatenate([[-1], codes]))
    return bool(newest[-1] == n - 1 and (np.diff(newest) <= 1).all())


def coded_texts(cells: Sequence[str]) -> CodedColumn:
    index: dict[str, int] = {}
    codes = np.array([index.setdefault(cell, len(index)) for cell in cells], np.int64)
    return CodedColumn(codes=codes, distinct=np.array(list(index), dtype=object))


def concatenated(columns: Sequence[CodedColumn]) -> CodedColumn:
    nothing = CodedColumn(codes=np.zeros(0, np.int64), distinct=np.zeros(0, object))
    columns = columns or [nothing]
    counts = [len(column.distinct) for column in columns]
    offsets = np.cumsum([0, *counts[:-1]])
    codes = [column.codes + offset for column, offset in zip(columns, offsets, strict=True)]
    return CodedColumn(
        codes=np.concatenate(codes),
        distinct=np.concatenate([column.distinct for column in columns]),
    )


def coded_bytes(text: np.ndarray, starts: Longs, ends: Longs) -> CodedColumn:
    """The cells between `starts` and `ends` of UTF-8 bytes; no cell contains a zero byte.

    Short cells are compared as words of eight bytes, padded with zeros, which is ten times as fast
    as making a string of each.
    """
    if not len(starts):
        return coded_texts([])
    if (ends - starts).max() > WORD * MOST_WORDS:
        return coded_texts(_strings(text, starts, ends))
    codes = _codes(text, starts, ends - starts)
    first = np.empty(int(codes.max()) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    distinct = _strings(text, starts[first], ends[first])
    return CodedColumn(codes=codes, distinct=np.array(distinct, dtype=object))


def _codes(text: np.ndarray, starts: Longs, lengths: Longs) -> Longs:
    padded = np.concatenate([text, np.zeros(WORD, np.uint8)])
    words = np.ndarray((len(text) + 1,), "<u8", padded, strides=(1,))
    codes = np.zeros(len(starts), np.int64)
    for k in range(max(1, -(-int(lengths.max()) // WORD))):
        places = np.minimum(starts + WORD * k, len(text))
        kept = np.clip(lengths - WORD * k, 0, WORD)
        word_codes, distinct_words = _factorized(words[places] & MASKS[kept])
        codes, _ = _factorized(codes * len(distinct_words) + word_codes)
    return codes


def _factorized(values: np.ndarray) -> tuple[Longs, np.ndarray]:
    """The code of each number, and the distinct numbers in the order of first appearance."""
    import pandas as pd

    codes, distinct = pd.factorize(values)
    return codes.astype(np.int64, copy=False), np.asarray(distinct)


def _strings(text: np.ndarray, starts: Longs, ends: Longs) -> list[str]:
    raw = text.tobytes()
    places = zip(starts.tolist(), ends.tolist(), strict=True)
    return [raw[start:end].decode(errors="surrogateescape") for start, end in places]
