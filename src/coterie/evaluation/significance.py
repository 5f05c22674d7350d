"""Paired significance over users: t-test, bootstrap interval, Holm's correction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core import streams
from coterie.types import Doubles

RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two methods on the same users."""

    difference: float
    """Mean of a - b over users."""
    low: float
    high: float
    """Bootstrap interval of the difference."""
    p_value: float
    """Two-sided paired t-test; 1 if a and b are equal for every user."""


def compare(a: Doubles, b: Doubles, level: float = 0.95, seed: int = 0) -> PairedTest:
    """Compare two methods on the same users."""
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(
            f"the columns have {len(a)} and {len(b)} users; "
            "expected the same users in both, at least 2. Compare metrics of the same users."
        )
    delta = np.asarray(a, float) - np.asarray(b, float)
    low, high = interval(delta, level, seed)
    return PairedTest(float(delta.mean()), low, high, paired_t_test(delta))


def paired_t_test(delta: Doubles) -> float:
    """Two-sided p-value of a zero mean difference."""
    from scipy import stats

    spread = delta.std(ddof=1)
    if spread == 0:
        return 1.0 if delta.mean() == 0 else 0.0
    t = delta.mean() / (spread / np.sqrt(len(delta)))
    return float(2 * stats.t.sf(abs(t), len(delta) - 1))


def interval(values: Doubles, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap of the mean over users."""
    rng = streams.at(seed, "bootstrap")
    n = len(values)
    means = np.array([values[rng.integers(0, n, n)].mean() for _ in range(RESAMPLES)])
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def holm(p_values: list[float]) -> list[float]:
    """Holm's step-down correction: adjusted p-values in the given order."""
    p = np.asarray(p_values, float)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate((len(p) - np.arange(len(p))) * p[order])
    in_given_order = np.empty_like(p)
    in_given_order[order] = np.minimum(adjusted, 1)
    return [float(v) for v in in_given_order]
