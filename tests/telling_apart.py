"""A classifier that tries to tell masked values of one kind from another."""

from __future__ import annotations

import numpy as np


def words_auc(first: np.ndarray, second: np.ndarray) -> float:
    """The AUC of a classifier by the bytes and the sizes of unsigned words."""

    def features(words: np.ndarray) -> np.ndarray:
        size = words.itemsize
        octets = words.astype(f"<u{size}").view(np.uint8).reshape(-1, size)
        return np.hstack([octets, words[:, None] / 2.0 ** (8 * size)])

    return classifier_auc(features(first), features(second))


def classifier_auc(first: np.ndarray, second: np.ndarray) -> float:
    """The AUC on one half of a classifier that was trained on the other."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    x = np.concatenate([first, second])
    y = np.repeat([0, 1], [len(first), len(second)])
    order = np.random.default_rng(0).permutation(len(y))
    train = order[: len(y) // 2]
    test = order[len(y) // 2 :]
    fitted = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(x[train], y[train])
    return float(roc_auc_score(y[test], fitted.predict_proba(x[test])[:, 1]))
