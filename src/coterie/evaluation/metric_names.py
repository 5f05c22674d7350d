"""Names of metrics: Coterie's own, those that other libraries use, and those that users add.

A name may have a cut-off, `Recall@20`. Upper and lower case, `-` and `_` do not matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from coterie.core import plugins
from coterie.errors import ConfigError, did_you_mean
from coterie.evaluation.list_metrics import LIST_METRICS, Metric, MetricFunction

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


OwnMetric: TypeAlias = Metric | MetricFunction


def own_metric(value: OwnMetric) -> Metric:
    """An own metric as a record; a function has its own name."""
    metric = value if isinstance(value, Metric) else _of_function(value)
    name = metric.name
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise ConfigError(
            f"the name of a metric is {name!r}; expected letters, digits and _ from a letter on. "
            "Define the function with def, or pass Metric(name=..., per_user=...)."
        )
    if _plain(name) in ALIASES | {_plain(known): known for known in BUILT_IN}:
        raise ConfigError(
            f"the name of a metric is {name!r}, which Coterie has already; expected another name. "
            "Rename it."
        )
    return metric


def _of_function(value: object) -> Metric:
    if not callable(value) or isinstance(value, type):
        raise ConfigError(
            f"a metric is {value!r}; expected a name, a function of ranked lists, or a Metric. "
            "Pass one of them."
        )
    return Metric(name=str(getattr(value, "__name__", "own")), per_user=value)


def list_metric(name: str) -> Metric | None:
    """The metric of ranked lists of that name, own ones included; None for all others."""
    if name in LIST_METRICS:
        return LIST_METRICS[name]
    if name in BUILT_IN or name not in plugins.names(plugins.METRICS, BUILT_IN):
        return None
    value = plugins.load_object(plugins.METRICS, name)
    if isinstance(value, Metric):
        return replace(value, name=name)
    if callable(value) and not isinstance(value, type):
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
