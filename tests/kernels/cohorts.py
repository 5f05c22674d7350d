"""Hypothesis strategies for the updates of small cohorts."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from coterie.types import TOO_LARGE, Updates

LARGEST = TOO_LARGE - 1
entries = st.integers(-LARGEST, LARGEST) | st.integers(-3, 3)


@st.composite
def updates(
    draw: st.DrawFn, n_items: int = 9, width: int = 2, dense: int = 3, most: int = 6
) -> Updates:
    """Valid updates."""
    n = draw(st.integers(0, most))
    lists = [sorted(draw(st.sets(st.integers(0, n_items - 1)))) for _ in range(n)]
    n_rows = sum(map(len, lists))

    def block(rows: int, columns: int) -> np.ndarray:
        values = draw(st.lists(entries, min_size=rows * columns, max_size=rows * columns))
        return np.array(values, np.int32).reshape(rows, columns)

    return Updates(
        np.array(sorted(draw(st.sets(st.integers(0, 50), min_size=n, max_size=n))), np.int32),
        np.array([draw(st.integers(1, 1 << 23)) for _ in range(n)], np.int64),
        np.cumsum([0, *map(len, lists)]).astype(np.int64),
        np.array([item for items in lists for item in items], np.int32),
        block(n_rows, width),
        block(n, width),
        block(n, dense),
    )
