"""What a metric measures, in one line, and which of two values is the better one."""

from __future__ import annotations

from collections.abc import Sequence

WORDS = {
    "HR": "share of users with a held-out item among the first {k}",
    "NDCG": "held-out items among the first {k}, those near the top count more",
    "MRR": "1 / the rank of the first held-out item, if it is among the first {k}",
    "P": "share of the first {k} that is held-out items",
    "R": "share of a user's held-out items among the first {k}",
    "F1": "harmonic mean of precision and recall among the first {k}",
    "AUC": "share of pairs in which a held-out item is ranked above another item",
    "MAP": "mean over users of the precision at each held-out item among the first {k}",
    "RMSE": "root of the mean squared error of ratings; lower is better",
    "MAE": "mean absolute error of ratings; lower is better",
    "IC": "distinct items in all lists of {k}",
    "Gini": "1 − Gini index over items in lists of {k}: higher is more even",
    "Pop": "mean share of users who have a recommended item in training",
    "Nov": "how unexpected the first {k} are: the mean of −log2 of an item's popularity",
    "Tail": "share of the first {k} that is outside the popular items",
    "ILD": "mean distance between two of the first {k}, by the users who chose them",
    "CatILD": "mean distance between two of the first {k}, by their categories",
    "Calib": "distance of the first {k} from the user's history, by categories; lower is better",
    "UC": "share of the tested users whom the model serves",
}
HIGHER = ("HR", "NDCG", "MRR", "P", "R", "F1", "AUC", "MAP")
LOWER = ("RMSE", "MAE")
SERVED = "served:"


def explained(metric: str) -> str:
    """The metric in one line; "" for one that is not known."""
    if metric.startswith(SERVED):
        return f"{metric.removeprefix(SERVED)}, over the served users only"
    name, _, cutoff = metric.partition("@")
    return WORDS.get(name, "").format(k=cutoff)


def is_error(metric: str) -> bool:
    """Whether it is an error of ratings, of which the lower value is better."""
    return metric.partition("@")[0] in LOWER


def best_of(metric: str, values: Sequence[float | None]) -> set[int]:
    """The places of the best value; none if all are equal or the metric has no better and worse."""
    name = metric.partition("@")[0]
    known = [value for value in values if value is not None]
    if len(set(known)) < 2 or name not in (*HIGHER, *LOWER):
        return set()
    best = max(known) if name in HIGHER else min(known)
    return {place for place, value in enumerate(values) if value == best}
