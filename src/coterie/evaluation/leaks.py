"""Leak checks: evaluation data must not reach training. Run before every training."""

from __future__ import annotations

import numpy as np

from coterie.data.interactions import Interactions, contains
from coterie.data.splits import Split
from coterie.data.training_set import TrainingSet
from coterie.errors import LeakError
from coterie.types import Rows

REMEDY = "Remove the overlap from the training file, or split with another rule."


def check(split: Split, training: TrainingSet, as_published: bool = False) -> None:
    """Raise if training uses held-out interactions or negatives exclude more than positives."""
    held_out = {"test": split.test, "validation": split.validation}
    for name, part in held_out.items():
        if part is not None:
            _disjoint(split.train, part, f"training and {name}")
    if split.validation is not None:
        _disjoint(split.validation, split.test, "validation and test")
    if not _same(training.positives, split.train.rows):
        raise LeakError(
            "the training positives are not the training part; expected exactly the training part. "
            "Rebuild the split."
        )
    if not as_published and not _same(training.excluded, training.positives):
        raise LeakError(
            "training negatives exclude items that are not training positives; expected negatives "
            "that exclude training positives only: otherwise a held-out item is never a negative. "
            "Set as_published=true to show the leaky figure on purpose."
        )


def check_untouched(test: Interactions, trained_on: Split, original: str) -> None:
    """Raise if test interactions were in the training or validation part of a trained model.

    `original` names the settings of the split that the model was trained on, for the message.
    """
    for part in (trained_on.train, trained_on.validation):
        if part is not None and contains(part.pairs(), test.pairs()).any():
            raise LeakError(
                "the model was trained or selected on interactions that this protocol tests; "
                f"expected the run's own split. Use {original}, or train again."
            )


def _disjoint(one: Interactions, other: Interactions, names: str) -> None:
    both = np.flatnonzero(contains(one.pairs(), other.pairs()))
    if len(both):
        user = one.user_ids[other.users[both[0]]]
        item = one.item_ids[other.items[both[0]]]
        raise LeakError(
            f"{names} share {len(both):,} interactions (for example user {str(user)!r} and item "
            f"{str(item)!r}); expected none. {REMEDY}"
        )


def _same(one: Rows, other: Rows) -> bool:
    return np.array_equal(one.offsets, other.offsets) and np.array_equal(one.items, other.items)
