"""GMF trained by every user of a cohort on a local copy, with SGD sample by sample."""

from __future__ import annotations

import numpy as np

from coterie.kernels.fallback import gmf_batches
from coterie.types import Floats, Ints, Longs


def train(
    offsets: Longs,
    items: Ints,
    starts: Longs,
    samples: Ints,
    targets: Floats,
    user_rows: Floats,
    item_rows: Floats,
    dense: Floats,
    squared: bool,
    learning_rate: float,
    reg: float,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Train users first..last of a cohort: `gmf_batches.train` with batches of one and SGD."""
    gmf_batches.train(
        offsets,
        items,
        starts,
        samples,
        targets,
        user_rows,
        item_rows,
        dense,
        squared,
        learning_rate,
        reg,
        batch_size=1,
        by_adam=False,
        first=first,
        last=last,
        user_deltas=user_deltas,
        item_deltas=item_deltas,
        dense_deltas=dense_deltas,
        total=np.empty((0, 0), np.int64),
        faults=np.empty(0, np.int8),
    )
