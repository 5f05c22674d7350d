"""Maps external ids to internal indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.data.coded import CodedColumn
from coterie.errors import DataError, UnknownName
from coterie.types import Ids, Ints, Longs


def number(ids: Sequence[object] | Ids | CodedColumn, name: str = "id") -> tuple[Ids, Ints, Ints]:
    """Distinct ids in natural order, the index of each id, and the indices by first appearance.

    The natural order is numeric if all ids are whole numbers. A whole number and its text are the
    same id: columns of either have the same indices.
    """
    codes, distinct = _factorized(ids, name)
    order = _natural_order(distinct)
    index = np.empty(len(order), np.int32)
    index[order] = np.arange(len(order), dtype=np.int32)
    return distinct[order], index[codes], index


def find(ids: Ids, name: object, kind: str) -> int:
    """The index of an external id; a whole number and its text are the same id."""
    if ids.dtype.kind == "O":
        hits = np.flatnonzero(ids == name)
    else:
        hits = np.flatnonzero(ids.astype(str) == str(name))
    if not len(hits):
        hits = np.flatnonzero([str(i) == str(name) for i in ids])
    if not len(hits):
        raise UnknownName(kind, name, ids, f" among {len(ids):,}")
    return int(hits[0])


def _factorized(ids: Sequence[object] | Ids | CodedColumn, name: str) -> tuple[Longs, Ids]:
    """The code of each id, and the distinct ids in the order of their first appearance."""
    if isinstance(ids, CodedColumn):
        column = ids.normalised()
        return column.codes, column.distinct
    import pandas as pd

    values = _plain_ids(ids)
    codes, distinct = pd.factorize(values)
    if len(codes) and codes.min() < 0:
        row = int(np.argmin(codes))
        raise DataError(
            f"row {row}: column {name!r} is {values[row]!r}; expected an id. Drop or fill the row."
        )
    return codes.astype(np.int64, copy=False), np.asarray(distinct)


def _plain_ids(ids: Sequence[object] | Ids) -> Ids:
    """Whole numbers as integers, mixed types as text, all else unchanged.

    Whole numbers may come as floats, because a missing value turns a column into floats.
    """
    import pandas as pd

    values = np.asarray(ids)
    values = values if values.dtype.kind in "iuf" else np.asarray(ids, dtype=object)
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2**53)
        return values.astype(np.int64) if whole.all() else values.astype(object)
    if values.dtype.kind == "O" and len({type(v) for v in values}) > 1:
        return np.array([v if pd.isna(v) else str(v) for v in values], dtype=object)
    return values


def _natural_order(distinct: Ids) -> Longs:
    if distinct.dtype.kind in "iu":
        return np.argsort(distinct, kind="stable")
    texts = [str(v) for v in distinct]
    if all(_is_plain_integer(t) for t in texts):
        return np.argsort(np.array([int(t) for t in texts], np.int64), kind="stable")
    return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)


def _is_plain_integer(text: str) -> bool:
    """Whether the text is how a 64-bit integer is printed."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return False
    return str(int(text)) == text and -(2**63) <= int(text) < 2**63
