"""Work on the rows that clients of a cohort sent, in ranges of clients over all threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from coterie import kernels
from coterie.core import parallel
from coterie.federated.validation import SquaredNorms
from coterie.types import Doubles, Ints, Longs

KERNELS = "norms"
WORTH_THREADS = 1 << 17
"""Entries of rows that one thread handles in a tenth of a millisecond."""


def squared_norms(rows: Ints, offsets: Longs) -> SquaredNorms:
    """Of the rows of clients."""
    norms = SquaredNorms(np.empty(len(rows)), np.empty(len(offsets) - 1))
    kernel = kernels.load(KERNELS).squared
    over_clients(lambda first, last: kernel(offsets, rows, first, last, *norms), rows, offsets)
    return norms


def scaled(rows: Ints, offsets: Longs, factors: Doubles) -> Ints:
    """The rows of every client times its factor, rounded towards zero."""
    out = np.empty_like(rows)
    kernel = kernels.load(KERNELS).scale
    over_clients(
        lambda first, last: kernel(offsets, rows, factors, first, last, out), rows, offsets
    )
    return out


def over_clients(work: Callable[[int, int], object], rows: Ints, offsets: Longs) -> None:
    """Call work(first, last) on ranges of clients; waking threads for few entries takes longer."""
    if rows.size < WORTH_THREADS:
        work(0, len(offsets) - 1)
    else:
        parallel.over(work, offsets)
