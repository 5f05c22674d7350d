"""A slow FedBSO, written from the thesis: lists of users, one at a time, in double precision.

Liu 2024, Algorithm 2; line numbers are those of the thesis. Random numbers come from the same
stream as in the fast version, in the order in which the algorithm box draws them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, log1p

import numpy as np
from slow_fedfast import Sample, Weights

from coterie.core import streams
from coterie.types import Doubles


@dataclass
class Storm:
    """G: the cluster of every user, and the user at the centre of every cluster."""

    labels: list[int]
    centres: list[int]


def far(a: Doubles, b: Doubles) -> float:
    return float(((a - b) ** 2).sum())


def cluster_users_by_center(
    rows: Doubles, labels: list[int], centres: list[int], iterations: int
) -> list[int]:
    """Line 3."""
    nearest = [
        -1 if c < 0 else min(range(len(centres)), key=lambda j: far(rows[u], rows[centres[j]]))
        for u, c in enumerate(labels)
    ]
    for _ in range(iterations - 1):
        means = means_of(rows, nearest, len(centres))
        new = [
            -1 if c < 0 else min(range(len(means)), key=lambda j: far(rows[u], means[j]))
            for u, c in enumerate(nearest)
        ]
        if new == nearest:
            break
        nearest = new
    return nearest


def means_of(rows: Doubles, labels: list[int], n_clusters: int) -> list[Doubles]:
    """Means; an empty cluster restarts at the user farthest from the mean of its own cluster.

    A user who is the centre of two clusters leaves one of them empty.
    """
    members = [[u for u, c in enumerate(labels) if c == wanted] for wanted in range(n_clusters)]
    means = [
        sum(rows[u] for u in group) / len(group) if group else np.zeros(rows.shape[1])
        for group in members
    ]
    outside = sorted(
        (u for u, c in enumerate(labels) if c >= 0), key=lambda u: -far(rows[u], means[labels[u]])
    )
    for c, group in enumerate(members):
        if not group:
            means[c] = rows[outside.pop(0)]
    return means


def get_best_user(
    rows: Doubles, labels: list[int], centres: list[int], losses: dict[int, float] | None
) -> list[int]:
    """Line 4."""
    best = list(centres)
    for c in range(len(centres)):
        members = [u for u in range(len(rows)) if labels[u] == c]
        if not members:
            continue
        mean = sum(rows[u] for u in members) / len(members)
        best[c] = min(
            members, key=lambda u: np.float32(far(rows[u], mean))
        )  # two alone are equally near
        if losses is not None and any(u in losses for u in members):
            best[c] = min((u for u in members if u in losses), key=lambda u: losses[u])
    return best


def lines_4_to_14(
    rows: Doubles,
    labels: list[int],
    centres: list[int],
    losses: dict[int, float] | None,
    seed: int,
    t: int,
    p5: float,
    p6: float,
    now: bool,
    members: bool,
) -> Storm:
    rng = streams.at(seed, "brain storm", t)
    labels = list(labels)
    centres = get_best_user(rows, labels, centres, losses)  # 4
    users = [u for u, c in enumerate(labels) if c >= 0]
    # 5, 7, 8
    r_1 = rng.random()
    u = users[rng.integers(len(users))]
    c = int(rng.integers(len(centres)))
    if r_1 < p5:  # 6
        changed = centres[c] != u
        centres[c] = u
        if now and changed:
            labels = cluster_users_by_center(rows, labels, centres, 1)
    r_2 = rng.random()  # 10
    if r_2 < p6 and len(centres) > 1:  # 11
        a, b = rng.choice(len(centres), 2, replace=False).tolist()  # 12
        centres[a], centres[b] = centres[b], centres[a]  # 13
        if members:
            labels[centres[a]] = a
            labels[centres[b]] = b
    return Storm(labels, centres)


def users_per_cluster(n: int, alpha: float) -> int:
    """Line 16."""
    return max(ceil(alpha * n), 1)


def loss_of(k: int, w: Weights, samples: list[Sample]) -> float:
    """The mean cross-entropy of a user's samples, mapped to values below one."""
    total = 0.0
    d = w.U.shape[1]
    for item, target in samples:
        y = float(w.N[:d] @ (w.U[k] * w.I[item])) + w.N[d]
        total += log1p(exp(-y)) if target == 1 else log1p(exp(y))
    return total / len(samples) / (1 + total / len(samples))


def follow(
    U: Doubles, w_0: Weights, w_k: dict[int, Weights], labels: list[int], gamma: float
) -> None:
    """Users who did not train move by gamma times the mean change of their cluster's delegates."""
    for s, c in enumerate(labels):
        delegates = [k for k in w_k if labels[k] == c]
        if c >= 0 and s not in w_k and delegates:
            U[s] = w_0.U[s] + gamma * sum(w_k[k].U[k] - w_0.U[k] for k in delegates) / len(
                delegates
            )


def share(U: Doubles, w_k: dict[int, Weights], n_k: dict[int, int], labels: list[int]) -> None:
    """All users of a cluster get the mean of its delegates' rows, weighed by n_k."""
    for c in {labels[k] for k in w_k}:
        delegates = [k for k in w_k if labels[k] == c]
        row = sum(n_k[k] * w_k[k].U[k] for k in delegates) / sum(n_k[k] for k in delegates)
        for s, label in enumerate(labels):
            if label == c:
                U[s] = row
