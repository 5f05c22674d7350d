"""NeuMF (He et al. 2017): y = h . [tower([p_mlp, q_mlp]), p_gmf * q_gmf] + b, the tower being layers of relu(W x + b).

Both parts have embedding tables of their own. They stand side by side, a row being the GMF part and then the MLP part, so
that whatever is done with user rows (clustering, sending) is done with both. The two parts are equally long here; in the
paper the MLP's is half of the tower's first layer. All else is `dense`: weights (out, in) and biases of layer after layer,
then h for the tower, h for GMF, and b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from coterie.models.factors import rows
from coterie.models.new_user import weigh
from coterie.models.recommender import Recommender
from coterie.types import Doubles, Floats, Ints, Longs

AT_ONCE = 1 << 18
"""Multiplications of a layer at a time. BLAS keeps so small a product on one thread; several of them, where cores are not
free, took forty times as long."""
PAIRS = 1 << 12
"""Pairs of a user and an item at a time, at most."""
STEPS = 25
HALVINGS = 6
ENOUGH = 1e-4


class Net(NamedTuple):
    """`dense` taken apart."""

    layers: list[tuple[Floats, Floats]]  # weights (out, in) and biases
    tower: Floats  # (top,)
    gmf: Floats  # (d,)
    bias: Floats  # (1,)

    def pairs_at_a_time(self) -> int:
        """How many pairs of a user and an item go up the tower together."""
        return min(PAIRS, max(16, AT_ONCE // max(weights.size for weights, _ in self.layers)))


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
        """The logit (implicit) or the rating (explicit): both rank alike."""
        return self._scores(self.user_rows[users], items)

    def _scores(self, p: Floats, items: Ints | None) -> Floats:
        net = taken_apart(self.dense, self.sizes)
        scores = np.empty(
            (len(p), len(self.item_rows) if items is None else items.shape[1]), np.float32
        )
        pairs = net.pairs_at_a_time()
        users = first_layer(net, p, "user")
        for some in blocks(scores.shape[1], pairs):
            things = None if items is not None else first_layer(net, self.item_rows[some], "item")
            for people in blocks(len(p), max(1, pairs // (some.stop - some.start))):
                q = self.item_rows[some] if items is None else self.item_rows[items[people, some]]
                below = users[people, None] + (
                    first_layer(net, q, "item") if things is None else things
                )
                scores[people, some] = climb(net, below)[-1] @ net.tower + by_gmf(net, p[people], q)
        return scores

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        """Somebody without a history gets the average person's row."""
        row = self.user_rows.mean(axis=0)
        if len(history):
            row = fit_row(self, row, history, negatives, reg)
        scores: Floats = self._scores(row[None, :], None)[0]
        return scores

    @classmethod
    def start(
        cls, n_users: int, n_items: int, size: int, layers: Sequence[int], seed: int, scale: float
    ) -> NeuMF:
        """Rows are Gaussian; layers too, scaled so that relu keeps the spread (He et al. 2015); GMF starts as plain MF."""
        sizes = tower_sizes(size, layers)
        parts = []
        for level, (n, m) in enumerate(pairwise(sizes.tolist())):
            parts += [
                rows(m, n, seed, f"layer {level}", (2 / n) ** 0.5).ravel(),
                np.zeros(m, np.float32),
            ]
        top = int(sizes[-1])
        parts += [
            rows(1, top, seed, "output", top**-0.5)[0],
            np.ones(size, np.float32),
            np.zeros(1, np.float32),
        ]
        people = rows(n_users, 2 * size, seed, "users", scale)
        things = rows(n_items, 2 * size, seed, "items", scale)
        return cls(people, things, np.concatenate(parts), sizes)


def tower_sizes(embedding_size: int, layers: Sequence[int]) -> Longs:
    """The user's and the item's row side by side, then layer after layer."""
    return np.array([2 * embedding_size, *layers], np.int64)


def taken_apart(dense: Floats, sizes: Longs) -> Net:
    layers = []
    at = 0
    for n, m in pairwise(sizes.tolist()):
        layers.append((dense[at : at + m * n].reshape(m, n), dense[at + m * n : at + m * n + m]))
        at += m * n + m
    return Net(layers, dense[at : at + m], dense[at + m : -1], dense[-1:])


def blocks(n: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, n)) for first in range(0, n, size))


def first_layer(net: Net, rows: Floats, whose: Literal["user", "item"]) -> Floats:
    """What the MLP parts of rows (..., 2d) bring to the first layer; the user's brings the biases along."""
    (weights, biases) = net.layers[0]
    d = len(net.gmf)
    if whose == "user":
        return rows[..., d:] @ weights[:, :d].T + biases
    share: Floats = rows[..., d:] @ weights[:, d:].T
    return share


def climb(net: Net, below: Floats) -> list[Floats]:
    """The activations (..., out) of layer after layer, from what comes into the first one, which is overwritten."""
    levels = [np.maximum(below, 0, out=below)]
    for weights, biases in net.layers[1:]:
        x = levels[-1] @ weights.T
        x += biases
        levels.append(np.maximum(x, 0, out=x))
    return levels


def by_gmf(net: Net, p: Floats, q: Floats) -> Floats:
    """(users, items), with the bias; q is (items, 2d), or (users, items, 2d)."""
    d = len(net.gmf)
    scores: Floats = np.einsum(
        "ud,id->ui" if q.ndim == 2 else "ud,uid->ui", p[:, :d] * net.gmf, q[..., :d]
    )
    return scores + net.bias


# A newcomer's row: as for GMF, but y is no longer linear in it, so every step goes by y's slopes where it stands.


def fit_row(model: NeuMF, start: Floats, history: Ints, negatives: int, reg: float) -> Floats:
    """Gauss and Newton's method from the average person's row; a step that does not help is halved."""
    target, weight = weigh(len(model.item_rows), history, negatives)
    ridge = reg * float(weight.sum())
    p = start.astype(np.float64)
    loss, gradient, curvature = _bend(model, p, target, weight, ridge)
    for _ in range(STEPS):
        step = np.linalg.solve(curvature + 1e-6 * np.eye(len(p)), gradient)
        for _ in range(HALVINGS):
            bent = _bend(model, p - step, target, weight, ridge)
            if bent[0] < loss:
                break
            step /= 2
        else:
            break
        p = p - step
        enough = loss - bent[0] < ENOUGH * loss
        loss, gradient, curvature = bent
        if enough:
            break
    return p.astype(np.float32)


def _bend(
    model: NeuMF, p: Doubles, target: Doubles, weight: Doubles, ridge: float
) -> tuple[float, Doubles, Doubles]:
    """The loss at p, its gradient, and Gauss and Newton's curvature."""
    net = taken_apart(model.dense, model.sizes)
    loss = ridge / 2 * float(p @ p)
    gradient = ridge * p
    curvature = ridge * np.eye(len(p))
    for some in blocks(len(model.item_rows), net.pairs_at_a_time()):
        y, gradients = gradients_by_row(net, p.astype(np.float32), model.item_rows[some])
        chance = np.exp(-np.logaddexp(0, -y))
        loss += float(weight[some] @ (np.logaddexp(0, y) - target[some] * y))
        gradient = gradient + gradients.T @ (weight[some] * (chance - target[some]))
        curvature += (gradients * (weight[some] * chance * (1 - chance))[:, None]).T @ gradients
    return loss, gradient, curvature


def gradients_by_row(net: Net, p: Floats, q: Floats) -> tuple[Doubles, Doubles]:
    """y of one person for some items (items, 2d), and dy/dp (items, 2d)."""
    d = len(net.gmf)
    levels = climb(net, first_layer(net, p, "user") + first_layer(net, q, "item"))
    back = np.broadcast_to(net.tower, levels[-1].shape)
    for (weights, _), x in zip(net.layers[::-1], levels[::-1], strict=True):
        back = (back * (x > 0)) @ weights
    gradients = np.concatenate([q[:, :d] * net.gmf, back[:, :d]], axis=1)
    y = levels[-1] @ net.tower + gradients[:, :d] @ p[:d] + net.bias
    return y.astype(np.float64), gradients.astype(np.float64)
