"""Names of metrics: Coterie's own, those that other libraries use, and those that users add.

A name may have a cut-off, `Recall@20`. Upper and lower case, `-` and `_` do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from coterie.core import plugins
from coterie.errors import did_you_mean
from coterie.evaluation.list_metrics import LIST_METRICS, Metric

ACCURACY = ("HR", "NDCG", "MRR", "P", "R", "F1", "AUC", "MAP")
RATING_ERRORS = ("RMSE", "MAE")
"""Lower is better; only with feedback=explicit."""
WITHOUT_CUTOFF = ("AUC", *RATING_ERRORS)
DIVERSITY = ("IC", "Gini", "Pop")
BUILT_IN = (*ACCURACY, *RATING_ERRORS, *DIVERSITY, *LIST_METRICS)

ALIASES = {
    "hit": "HR",
    "hits": "HR",
    "hitrate": "HR",
    "hitratio": "HR",
    "recall": "R",
    "precision": "P",
    "prec": "P",
    "f1score": "F1",
    "meanaverageprecision": "MAP",
    "meanreciprocalrank": "MRR",
    "itemcoverage": "IC",
    "coverage": "IC",
    "rocauc": "AUC",
    "novelty": "Nov",
    "longtail": "Tail",
    "longtailshare": "Tail",
    "aplt": "Tail",
    "diversity": "ILD",
    "intralistdiversity": "ILD",
    "calibration": "Calib",
    "miscalibration": "Calib",
}
"""Names of other libraries, in lower case without separators."""


class NamedMetric(NamedTuple):
    name: str
    """Coterie's name, without a cut-off."""
    cutoff: int | None


def parse(text: str) -> NamedMetric:
    """`recall@20` is (R, 20). An unknown name raises a ValueError with a suggestion."""
    name, at, k = text.strip().partition("@")
    known = _by_plain_name()
    if _plain(name) not in known:
        words = [*BUILT_IN, *plugins.names(plugins.METRICS, BUILT_IN), *_other_names()]
        raise ValueError(f"{name!r} is not a metric. {did_you_mean(name, words).rstrip('.')}")
    if at and not (k.isascii() and k.isdigit() and int(k)):
        raise ValueError(
            f"the cut-off of {text!r} is {k!r}; expected a whole number from 1, as @10"
        )
    return NamedMetric(known[_plain(name)], int(k) if at else None)


def canonical(text: str) -> str:
    """A metric as results name it: `recall@20` is R@20; `full:` and `served:` may lead."""
    prefix, colon, rest = text.rpartition(":")
    found = parse(rest)
    name = found.name if found.cutoff is None else f"{found.name}@{found.cutoff}"
    return f"{prefix}{colon}{name}"


def list_metric(name: str) -> Metric | None:
    """The metric of ranked lists of that name, own ones included; None for all others."""
    if name in LIST_METRICS:
        return LIST_METRICS[name]
    if name in BUILT_IN or name not in plugins.names(plugins.METRICS, BUILT_IN):
        return None
    value = plugins.load_object(plugins.METRICS, name)
    if callable(value):
        return Metric(name=name, per_user=value)
    return plugins.load(plugins.METRICS, name, Metric)


class MetricValues(dict[str, float]):
    """Values by Coterie's names; other libraries' names are found too: values["Recall@10"]."""

    def __missing__(self, name: str) -> float:
        try:
            ours = canonical(name)
        except ValueError:
            ours = name
        if ours in self:
            return self[ours]
        raise KeyError(f"unknown metric {name!r}. {did_you_mean(ours, self)}")


def _by_plain_name() -> dict[str, str]:
    own = plugins.names(plugins.METRICS, BUILT_IN)
    return ALIASES | {_plain(name): name for name in (*own, *BUILT_IN)}


def _other_names() -> Iterable[str]:
    return ("Recall", "Precision", "HitRate", "ItemCoverage", "Novelty", "LongTail", "Calibration")


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "").replace("_", "").replace(" ", "")
