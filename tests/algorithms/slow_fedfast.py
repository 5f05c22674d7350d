"""A slow FedAvg and FedFast, written from the paper: every client has a copy of the whole model.

Muhammad et al. 2020, Algorithms 1 and 3 and Equation 1; line numbers are those of the paper. Double
precision and no fixed point. Only random choices (samples, cohorts) and the partition are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp

import numpy as np

from coterie.types import Doubles

Sample = tuple[int, float]
"""An item and its target."""


@dataclass
class Weights:
    """w: user embeddings w[U], item embeddings w[I], and w[N]: the output layer, then its bias."""

    U: Doubles  # (users, d)
    I: Doubles  # (items, d)  # noqa: E741
    N: Doubles  # (d + 1,)

    def copy(self) -> Weights:
        return Weights(self.U.copy(), self.I.copy(), self.N.copy())


def client_update(
    k: int, w: Weights, samples: list[Sample], rate: float, reg: float, rated: bool
) -> Weights:
    """Section 3.1 on one client: SGD on cross-entropy (implicit) or half the squared error."""
    w = w.copy()
    d = w.U.shape[1]
    for item, target in samples:
        p = w.U[k].copy()
        q = w.I[item].copy()
        h = w.N[:d].copy()
        y = float(h @ (p * q)) + w.N[d]
        error = (y if rated else 1 / (1 + exp(-y))) - target
        w.U[k] = p - rate * (error * h * q + reg * p)
        w.I[item] = q - rate * (error * h * p + reg * q)
        w.N[:d] = h - rate * error * p * q
        w.N[d] -= rate * error
    return w


def equation_1(S: list[int], w_k: dict[int, Weights], n_k: dict[int, int]) -> Weights:
    """w_{t+1} = sum over k in S_t of n_k / n_sigma times w^k, for all parameters alike."""
    n_sigma = sum(n_k[k] for k in S)
    return Weights(
        sum(n_k[k] / n_sigma * w_k[k].U for k in S),  # type: ignore[arg-type]
        sum(n_k[k] / n_sigma * w_k[k].I for k in S),  # type: ignore[arg-type]
        sum(n_k[k] / n_sigma * w_k[k].N for k in S),  # type: ignore[arg-type]
    )


def equation_1_touched(
    S: list[int],
    w_k: dict[int, Weights],
    n_k: dict[int, int],
    w_0: Weights,
    touched: dict[int, set[int]],
) -> Weights:
    """The second reading: a row is averaged over the clients who trained on it."""
    w = w_0.copy()
    w.N = equation_1(S, w_k, n_k).N
    for i in range(len(w.I)):
        there = [k for k in S if i in touched[k]]
        n_sigma = sum(n_k[k] for k in there)
        if there:
            w.I[i] = sum(n_k[k] / n_sigma * w_k[k].I[i] for k in there)
    for k in S:
        w.U[k] = w_k[k].U[k]
    return w


def actv_agg(
    S: list[int],
    w_k: dict[int, Weights],
    w_0: Weights,
    n_k: dict[int, int],
    gamma: float,
    cluster_users: Callable[[Doubles], list[set[int]]],
) -> Weights:
    """Algorithm 3."""
    w = w_0.copy()  # 1
    n_sigma = sum(n_k[k] for k in S)
    w.N = sum(n_k[k] / n_sigma * w_k[k].N for k in S)  # type: ignore[assignment]  # 3
    q = {k: np.zeros_like(w_0.I) for k in S}  # 5
    for k in S:  # 6
        for index in np.ndindex(w_0.I.shape):  # every component l of I
            if abs(w_k[k].I[index] - w_0.I[index]) > 0:  # 7
                q[k][index] = abs(w_k[k].I[index] - w_0.I[index])  # 8
    for index in np.ndindex(w_0.I.shape):  # 10
        if any(q[k][index] > 0 for k in S):
            total = sum(q[k][index] for k in S)
            w.I[index] = sum(q[k][index] * w_k[k].I[index] for k in S) / total  # 11
    for k in S:  # 14
        w.U[k] = w_k[k].U[k]  # 15
    G = cluster_users(w.U)  # 18
    delta = np.zeros_like(w_0.U)  # 19
    for k in S:  # 20
        (c_k,) = [c for c in G if k in c]  # 21
        for s in c_k - set(S):  # 22
            delta[s] += w_k[k].U[k] - w_0.U[k]  # 23
    for c in G:  # 26
        for s in c - set(S):  # 27
            if c & set(S):  # without a delegate this would be 0 / 0
                w.U[s] = w_0.U[s] + gamma * delta[s] / len(c & set(S))  # 28
    return w


def lloyd(rows: Doubles, labels: list[int], n_clusters: int, iterations: int) -> list[int]:
    """k-means from given clusters, one user and cluster at a time.

    Negative labels stay, and no cluster may be empty.
    """
    labels = list(labels)
    for _ in range(iterations):
        members = [[u for u, c in enumerate(labels) if c == wanted] for wanted in range(n_clusters)]
        centres = [sum(rows[u] for u in group) / len(group) for group in members]
        new = [
            -1
            if c < 0
            else min(range(n_clusters), key=lambda j: float(((rows[u] - centres[j]) ** 2).sum()))
            for u, c in enumerate(labels)
        ]
        if new == labels:
            break
        labels = new
    return labels
