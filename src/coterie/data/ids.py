"""External ids and the numbers that stand for them inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coterie.errors import DataError, UnknownName
from coterie.types import Ids, Ints, Longs


def number(ids: Sequence[Any] | Ids, name: str = "id") -> tuple[Ids, Ints, Ints]:
    """Distinct ids in natural order (as numbers where all are whole numbers), each id's place among them, and the
    places by first appearance."""
    import pandas as pd

    values = _plain_ids(ids)
    codes, distinct = pd.factorize(values)
    if len(codes) and codes.min() < 0:
        row = int(np.argmin(codes))
        raise DataError(
            f"row {row}: column {name!r} is {values[row]!r}; expected an id. Drop or fill the row."
        )
    order = _natural_order(np.asarray(distinct))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    return np.asarray(distinct)[order], place[codes], place


def find(ids: Ids, name: object, kind: str) -> int:
    """The number of an external id; whole numbers and their text are the same id."""
    hits = (
        np.flatnonzero(ids == name)
        if ids.dtype.kind == "O"
        else np.flatnonzero(ids.astype(str) == str(name))
    )
    if not len(hits):
        hits = np.flatnonzero([str(i) == str(name) for i in ids])
    if not len(hits):
        raise UnknownName(kind, name, ids, f" among {len(ids):,}")
    return int(hits[0])


def _plain_ids(ids: Sequence[Any] | Ids) -> Ids:
    """Whole numbers as integers, also where a missing value made them floats; anything else as it is, mixtures as text."""
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
    if all(
        t.isascii() and t.isdigit() and len(t) < 19 and (t[0] != "0" or t == "0") for t in texts
    ):
        return np.argsort(np.array([int(t) for t in texts], np.int64), kind="stable")
    return np.array(sorted(range(len(texts)), key=texts.__getitem__), np.int64)
