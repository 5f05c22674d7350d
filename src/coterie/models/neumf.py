"""NeuMF (He et al. 2017): y = h . [tower([p_mlp, q_mlp]), p_gmf * q_gmf] + b.

The tower is a stack of layers relu(W x + b). The GMF part and the MLP part have separate
embeddings, stored side by side: a row is the GMF part followed by the MLP part, so that clustering
and sending user rows covers both. All other parameters are in `dense`: weights (out, in) and biases
layer by layer, then h for the tower, h for GMF, and b.

Deviation: both parts have equal length here. In the paper the MLP part is half as long as the
tower's first layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from coterie.models.factors import rows
from coterie.models.new_user import targets_and_weights
from coterie.models.recommender import Recommender, cosines
from coterie.types import Doubles, Floats, Ints, Longs

MULTIPLICATIONS = 1 << 18
"""Multiplications of one layer in one matrix product.

BLAS computes a product of this size on one thread. With several BLAS threads on busy cores, scoring
took forty times as long.
"""
PAIRS = 1 << 12
"""Largest number of (user, item) pairs scored at a time."""
MAX_STEPS = 25
MAX_HALVINGS = 6
TOLERANCE = 1e-4


class NeuMFWeights(NamedTuple):
    """`dense` as separate arrays."""

    layers: list[tuple[Floats, Floats]]  # weights (out, in) and biases
    tower: Floats  # (top,)
    gmf: Floats  # (d,)
    bias: Floats  # (1,)

    def pairs_at_a_time(self) -> int:
        """The number of (user, item) pairs that pass through the tower together."""
        largest = max(weights.size for weights, _ in self.layers)
        return min(PAIRS, max(16, MULTIPLICATIONS // largest))


@dataclass(frozen=True, slots=True)
class NeuMF(Recommender):
    kind: ClassVar[str] = "neumf"
    of_users: ClassVar[tuple[str, ...]] = ("user_rows",)
    trained: ClassVar[tuple[str, ...] | None] = ("user_rows", "item_rows", "dense")
    user_rows: Floats  # (users, 2d)
    item_rows: Floats  # (items, 2d)
    dense: Floats
    sizes: Longs  # of the tower: 2d, then its layers

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        """The logit (implicit) or the rating (explicit); both give the same ranking."""
        return self._scores(self.user_rows[users], items)

    def _scores(self, p: Floats, items: Ints | None) -> Floats:
        net = unpack_dense(self.dense, self.sizes)
        n_columns = len(self.item_rows) if items is None else items.shape[1]
        scores = np.empty((len(p), n_columns), np.float32)
        pairs = net.pairs_at_a_time()
        of_users = first_layer(net, p, "user")
        for columns in blocks(n_columns, pairs):
            if items is None:  # all users share the same items
                q = self.item_rows[columns]
                of_items = first_layer(net, q, "item")
            for users in blocks(len(p), max(1, pairs // (columns.stop - columns.start))):
                if items is not None:  # each user has its own candidates
                    q = self.item_rows[items[users, columns]]
                    of_items = first_layer(net, q, "item")
                top = tower_activations(net, of_users[users, None] + of_items)[-1]
                scores[users, columns] = top @ net.tower + gmf_scores(net, p[users], q)
        return scores

    def similar_items(self, item: int) -> Floats:
        """Cosines of item rows, those of both parts together."""
        return cosines(self.item_rows, item)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        """A new user without a history gets the average user row."""
        row = self.user_rows.mean(axis=0)
        if len(history):
            row = fit_row(self, row, history, negatives, reg)
        scores: Floats = self._scores(row[None, :], None)[0]
        return scores

    @classmethod
    def start(
        cls, n_users: int, n_items: int, size: int, layers: Sequence[int], seed: int, scale: float
    ) -> NeuMF:
        """Gaussian rows and layers; the GMF part starts as plain matrix factorisation.

        Layers are scaled so that relu preserves the variance (He et al. 2015).
        """
        sizes = tower_sizes(size, layers)
        parts = []
        for level, (n, m) in enumerate(pairwise(sizes.tolist())):
            parts.append(rows(m, n, seed, f"layer {level}", (2 / n) ** 0.5).ravel())
            parts.append(np.zeros(m, np.float32))
        top = int(sizes[-1])
        parts.append(rows(1, top, seed, "output", top**-0.5)[0])
        parts.append(np.ones(size, np.float32))
        parts.append(np.zeros(1, np.float32))
        user_rows = rows(n_users, 2 * size, seed, "users", scale)
        item_rows = rows(n_items, 2 * size, seed, "items", scale)
        return cls(user_rows, item_rows, np.concatenate(parts), sizes)


def tower_sizes(embedding_size: int, layers: Sequence[int]) -> Longs:
    """Widths of the tower: its input (user and item row side by side), then its layers."""
    return np.array([2 * embedding_size, *layers], np.int64)


def unpack_dense(dense: Floats, sizes: Longs) -> NeuMFWeights:
    """Views into `dense`: the layers, h for the tower, h for GMF, and b."""
    layers = []
    start = 0
    for n, m in pairwise(sizes.tolist()):
        weights = dense[start : start + m * n].reshape(m, n)
        start += m * n
        biases = dense[start : start + m]
        start += m
        layers.append((weights, biases))
    top = int(sizes[-1])
    return NeuMFWeights(layers, dense[start : start + top], dense[start + top : -1], dense[-1:])


def blocks(n: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def first_layer(net: NeuMFWeights, rows: Floats, side: Literal["user", "item"]) -> Floats:
    """The contribution of rows (..., 2d) to the first layer; that of users includes the biases."""
    weights, biases = net.layers[0]
    d = len(net.gmf)
    if side == "user":
        return rows[..., d:] @ weights[:, :d].T + biases
    contribution: Floats = rows[..., d:] @ weights[:, d:].T
    return contribution


def tower_activations(net: NeuMFWeights, below: Floats) -> list[Floats]:
    """The activations (..., out) of every layer.

    `below` is the input of the first layer's relu; it is overwritten.
    """
    levels = [np.maximum(below, 0, out=below)]
    for weights, biases in net.layers[1:]:
        x = levels[-1] @ weights.T
        x += biases
        levels.append(np.maximum(x, 0, out=x))
    return levels


def gmf_scores(net: NeuMFWeights, p: Floats, q: Floats) -> Floats:
    """(users, items) GMF scores plus the bias; q is (items, 2d) or (users, items, 2d)."""
    d = len(net.gmf)
    subscripts = "ud,id->ui" if q.ndim == 2 else "ud,uid->ui"
    scores: Floats = np.einsum(subscripts, p[:, :d] * net.gmf, q[..., :d])
    return scores + net.bias


# The row of a new user. Unlike in GMF, y is not linear in the row, so that every step uses the
# gradients of y at the current row.


def fit_row(model: NeuMF, start: Floats, history: Ints, negatives: int, reg: float) -> Floats:
    """Gauss-Newton from the average user row; a step that does not reduce the loss is halved."""
    target, weight = targets_and_weights(len(model.item_rows), history, negatives)
    ridge = reg * float(weight.sum())
    p = start.astype(np.float64)
    loss, gradient, curvature = _loss_and_derivatives(model, p, target, weight, ridge)
    for _ in range(MAX_STEPS):
        step = np.linalg.solve(curvature + 1e-6 * np.eye(len(p)), gradient)
        for _ in range(MAX_HALVINGS):
            after = _loss_and_derivatives(model, p - step, target, weight, ridge)
            if after[0] < loss:
                break
            step /= 2
        else:
            break
        p = p - step
        converged = loss - after[0] < TOLERANCE * loss
        loss, gradient, curvature = after
        if converged:
            break
    return p.astype(np.float32)


def _loss_and_derivatives(
    model: NeuMF, p: Doubles, target: Doubles, weight: Doubles, ridge: float
) -> tuple[float, Doubles, Doubles]:
    """The loss at p, its gradient, and the Gauss-Newton approximation of its Hessian."""
    net = unpack_dense(model.dense, model.sizes)
    loss = ridge / 2 * float(p @ p)
    gradient = ridge * p
    curvature = ridge * np.eye(len(p))
    for items in blocks(len(model.item_rows), net.pairs_at_a_time()):
        y, gradients = score_gradients(net, p.astype(np.float32), model.item_rows[items])
        probability = np.exp(-np.logaddexp(0, -y))
        loss += float(weight[items] @ (np.logaddexp(0, y) - target[items] * y))
        gradient = gradient + gradients.T @ (weight[items] * (probability - target[items]))
        variance = weight[items] * probability * (1 - probability)
        curvature += (gradients * variance[:, None]).T @ gradients
    return loss, gradient, curvature


def score_gradients(net: NeuMFWeights, p: Floats, q: Floats) -> tuple[Doubles, Doubles]:
    """y of one user for some items (items, 2d), and dy/dp (items, 2d)."""
    d = len(net.gmf)
    levels = tower_activations(net, first_layer(net, p, "user") + first_layer(net, q, "item"))
    back = np.broadcast_to(net.tower, levels[-1].shape)
    for (weights, _), x in zip(net.layers[::-1], levels[::-1], strict=True):
        back = (back * (x > 0)) @ weights
    gradients = np.concatenate([q[:, :d] * net.gmf, back[:, :d]], axis=1)
    y = levels[-1] @ net.tower + gradients[:, :d] @ p[:d] + net.bias
    return y.astype(np.float64), gradients.astype(np.float64)
