"""The bias of the training data towards categories of items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coterie.core.progress import SILENT
from coterie.errors import DataError
from coterie.evaluation.bias import category_bias, category_pairs
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.reproduce.items import MeasuredRows

BIAS = "B_T"
SHARE = "share of training records"


def training_bias(rows: Sequence[str], dataset: str, protocol: str) -> MeasuredRows:
    """B_T of every category, and the category's share of the training records.

    `rows` names the rows to measure: `BIAS`, `SHARE` or both.
    """
    experiment = Experiment.of({"algorithm": "popular", "dataset": dataset, "protocol": protocol})
    train = prepare(experiment, None, SILENT).parts.train
    if train.item_categories is None:
        raise DataError(f"{dataset} has no item categories. Choose a dataset that has them.")
    pairs = category_pairs(train.item_categories)
    n_items = len(train.item_categories)
    records = np.bincount(train.items, minlength=n_items)
    of_category = np.bincount(pairs.categories, weights=records[pairs.items])
    values = {
        BIAS: category_bias(train.items, pairs, n_items),
        SHARE: of_category / records.sum(),
    }
    return {
        row: {name: float(value) for name, value in zip(pairs.names, values[row], strict=True)}
        for row in rows
    }
