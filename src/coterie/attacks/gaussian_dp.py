"""What errors of a distinguisher say about privacy (Gaussian differential privacy).

Dong, Roth, Su. Gaussian differential privacy. JRSS-B 2022. A mechanism is mu-GDP if telling two
neighbouring datasets apart by its output is at least as hard as telling N(0, 1) from N(mu, 1). A
test with false positive rate a and false negative rate b shows

    mu >= Phi^-1(1 - b) - Phi^-1(a)

and a mechanism with Gaussian noise of z times the sensitivity is mu-GDP for mu = 1 / z. So a lower
bound of mu becomes one of epsilon at any delta, with far fewer draws than epsilon itself needs.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import beta, norm

MOST_EPSILON = 1e4


def upper_rate(errors: int, draws: int, confidence: float) -> float:
    """Upper bound of an error rate (Clopper and Pearson 1934)."""
    if errors == draws:
        return 1.0
    return float(beta.ppf(confidence, errors + 1, draws - errors))


def mu_lower_bound(
    false_positives: int, false_negatives: int, draws: int, confidence: float
) -> float:
    """The mu that errors show, each out of `draws`. Both rates are bounded at once."""
    each = 1 - (1 - confidence) / 2
    positive = upper_rate(false_positives, draws, each)
    negative = upper_rate(false_negatives, draws, each)
    if positive >= 1 or negative >= 1:
        return 0.0
    return max(float(norm.ppf(1 - negative) - norm.ppf(positive)), 0.0)


def delta_of(epsilon: float, mu: float) -> float:
    """The delta at which a mu-GDP mechanism is (epsilon, delta)-private (Corollary 1)."""
    first = log_ndtr(-epsilon / mu + mu / 2)
    second = epsilon + log_ndtr(-epsilon / mu - mu / 2)
    return math.exp(first) * -math.expm1(second - first)


def epsilon_of(mu: float, delta: float) -> float:
    """The epsilon of a mu-GDP mechanism at delta."""
    if mu <= 0 or delta_of(0.0, mu) <= delta:
        return 0.0
    return float(brentq(lambda epsilon: delta_of(epsilon, mu) - delta, 0.0, MOST_EPSILON))
