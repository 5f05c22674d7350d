"""Training must not know the answers. Checked with every evaluation."""

from __future__ import annotations

import numpy as np

from coterie.data.interactions import Interactions, contains
from coterie.data.splits import Split
from coterie.data.training_set import TrainingSet
from coterie.errors import LeakError
from coterie.types import Rows

REMEDY = "Remove the overlap from the training file, or split with another rule."


def check(split: Split, training: TrainingSet, as_published: bool = False) -> None:
    """Raise if held-out interactions are trained on, or negatives avoid anything but training positives."""
    held = {"test": split.test, "validation": split.validation}
    for name, part in held.items():
        if part is not None:
            _disjoint(split.train, part, f"training and {name}")
    if split.validation is not None:
        _disjoint(split.validation, split.test, "validation and test")
    if not _same(training.positives, split.train.rows):
        raise LeakError(
            "the positives trained on are not the training part; expected exactly the training part. Rebuild the split."
        )
    if not as_published and not _same(training.excluded, training.positives):
        raise LeakError(
            "training negatives avoid items that are not training positives; expected negatives drawn against training positives only, "
            "or held-out items are never pushed down. Set as_published=true to show the leaky figure on purpose."
        )


def check_untouched(test: Interactions, trained_on: Split, kept: str) -> None:
    """Raise if a model that was trained and chosen on one split is to be tested on what it knows."""
    for part in (trained_on.train, trained_on.validation):
        if part is not None and contains(part.pairs(), test.pairs()).any():
            raise LeakError(
                f"the model was trained on what this protocol tests, or chosen by it; expected the run's own split. Keep {kept}, or train again."
            )


def _disjoint(one: Interactions, other: Interactions, names: str) -> None:
    both = np.flatnonzero(contains(one.pairs(), other.pairs()))
    if len(both):
        user = one.user_ids[other.users[both[0]]]
        item = one.item_ids[other.items[both[0]]]
        raise LeakError(
            f"{names} share {len(both):,} interactions, user {str(user)!r} and item {str(item)!r} among them; expected none. {REMEDY}"
        )


def _same(one: Rows, other: Rows) -> bool:
    return np.array_equal(one.offsets, other.offsets) and np.array_equal(one.items, other.items)
