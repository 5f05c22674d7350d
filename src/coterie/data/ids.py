"""Maps external ids to internal indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.errors import DataError, UnknownName
from coterie.types import Ids, Ints, Longs


def number(ids: Sequence[object] | Ids, name: str = "id") -> tuple[Ids, Ints, Ints]:
    """Distinct ids in natural order, the index of each id, and the indices by first appearance.

    The natural order is numeric if all ids are whole numbers.
    """
    import pandas as pd

    values = _plain_ids(ids)
    codes, distinct = pd.factorize(values)
    if len(codes) and codes.min() < 0:
        row = int(np.argmin(codes))
        raise DataError(
            f"row {row}: column {name!r} is {values[row]!r}; expected an id. Drop or fill the row."
        )
    order = _natural_order(np.asarray(distinct))
    index = np.empty(len(order), np.int32)
    index[order] = np.arange(len(order), dtype=np.int32)
    return np.asarray(distinct)[order], index[codes], index


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
    """Whether the text is a non-negative 64-bit integer without leading zeros."""
    is_number = text.isascii() and text.isdigit() and len(text) < 19
    return is_number and (text[0] != "0" or text == "0")
