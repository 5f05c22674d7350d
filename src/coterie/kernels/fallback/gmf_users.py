"""GMF trained by every user of a cohort on its own copy, by SGD sample by sample."""

from __future__ import annotations

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
    rate: float,
    reg: float,
    first: int,
    last: int,
    user_deltas: Ints,
    item_deltas: Ints,
    dense_deltas: Ints,
) -> None:
    """Users first..last of a cohort; each starts from the same item rows and `dense` (the output layer, then the bias)."""
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
        rate,
        reg,
        1,
        False,
        first,
        last,
        user_deltas,
        item_deltas,
        dense_deltas,
    )
