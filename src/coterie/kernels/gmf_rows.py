"""What kernels of factor models share: GMF's logit, and a client's copy of the rows it touches."""

from __future__ import annotations

import numpy as np

from coterie.kernels.common import Integer, helper
from coterie.types import Floats, Ints


@helper
def predict(p: Floats, q: Floats, h: Floats) -> np.float32:
    """h . (p * q) + b, where the bias b is the last entry of h."""
    x = np.float32(0.0)
    for f in range(len(p)):
        x += h[f] * p[f] * q[f]
    prediction: np.float32 = x + h[len(p)]
    return prediction


@helper
def gather(item_rows: Floats, items: Ints, low: Integer, q: Floats, before: Floats) -> None:
    """Copy the rows that a user touches twice: to train on, and to compare with afterwards.

    With many items the rows are not in the processor's cache. The first loop is short, so that many
    rows are being fetched at the same time.
    """
    for r in range(len(q)):
        row = item_rows[np.uint64(items[low + r])]
        q[r, 0] = row[0]
        q[r, -1] = row[-1]
    for r in range(len(q)):
        row = item_rows[np.uint64(items[low + r])]
        for f in range(len(row)):
            q[r, f] = row[f]
            before[r, f] = row[f]
