"""FedRecAttack: public interactions give away users, for whom the target is made to win.

Rong, Ye, Zhao, Yuen, Chen, He. FedRecAttack: model poisoning attack to federated recommendation.
ICDE 2022:

    approximate   users' vectors from the public part of their interactions and the item rows
    loss          over users: how far the target is below the items that a user is recommended
    send          the gradient of at most `max_rows` item rows, each at most `norm` long

Here with U the approximated users, T(u) their k best items and s the scores,

    L = sum_u sum_{i in T(u)} softplus(s_ui - s_ut)

Deviations: users' vectors are solved by least squares, in place of gradient descent on the
recommender's loss. The loss is softplus. The gradient is scaled so that its longest row has the
length `norm`; the paper's clients do so over rounds. Needs scores that are linear in item rows.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from coterie.algorithms.local.settings import Federated
from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.item_updates import (
    item_table,
    value_columns,
    with_rows,
    within_range,
)
from coterie.attacks.poisoning.surface import Surface, needs_item_rows
from coterie.types import Doubles, Rows, Updates


class FedRecAttack(AttackSettings):
    max_rows: int = Field(60, ge=1)
    """Item rows that a colluder sends at most, the target's among them."""
    norm: float = Field(4.0, gt=0)
    """Length of the longest row."""
    k: int = Field(10, ge=1)
    """Length of the lists that the target is to enter."""
    ridge: float = Field(0.1, gt=0)
    """Regularisation of the approximated users."""


def poison(view: AttackView, settings: FedRecAttack) -> Updates:
    table = item_table(view)
    features = table[:, : value_columns(view.world, table.shape[1])] * output_weights(view)
    public = view.colluders.public
    known = np.flatnonzero(public.counts > 0)
    if not len(known):
        return view.honest
    histories = public.of_users(known)
    users = approximate_users(histories, features, settings.ridge)
    gradient = loss_gradient(users, features, histories, view.target, settings.k)
    gradient *= output_weights(view)
    items = strongest(gradient, view.target, settings.max_rows)
    longest = max(float(np.linalg.norm(gradient[items], axis=1).max()), 1e-12)
    change = np.zeros((len(items), table.shape[1]))
    change[:, : gradient.shape[1]] = -gradient[items] * (settings.norm / longest)
    return with_rows(view.honest, items.astype(np.int32), within_range(change))


def output_weights(view: AttackView) -> Doubles:
    """(width,) factors of a product of rows in a score: GMF's output layer, else ones."""
    width = value_columns(view.world, view.honest.item_rows.shape[1])
    if isinstance(view.world.settings, Federated):
        return view.message.common["dense"][:width].astype(np.float64)
    return np.ones(width)


def approximate_users(histories: Rows, features: Doubles, ridge: float) -> Doubles:
    """(users, width) the vectors that score public interactions 1, and all other items 0."""
    gram = features.T @ features / len(features)
    users = np.empty((len(histories.counts), features.shape[1]))
    for n in range(len(users)):
        own = features[histories.of(n)]
        system = own.T @ own + gram + ridge * np.eye(len(gram))
        users[n] = np.linalg.solve(system, own.sum(axis=0))
    return users


def loss_gradient(
    users: Doubles, features: Doubles, histories: Rows, target: int, k: int
) -> Doubles:
    """(items, width) dL / d item rows."""
    scores = users @ features.T
    of_target = scores[:, target].copy()
    row = np.repeat(np.arange(len(users)), histories.counts)
    scores[row, histories.items] = -np.inf
    scores[:, target] = -np.inf
    k = min(k, scores.shape[1] - 1)
    best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    gap = np.take_along_axis(scores, best, axis=1) - of_target[:, None]
    # A user may have fewer unseen items than k: those gaps are minus infinity, and weigh nothing.
    weight = 1 / (1 + np.exp(-np.clip(gap, -50, 50)))
    weight[~np.isfinite(gap)] = 0
    gradient = np.zeros_like(features)
    np.add.at(gradient, best, weight[:, :, None] * users[:, None, :])
    gradient[target] = -(weight.sum(axis=1)[:, None] * users).sum(axis=0)
    return gradient


def strongest(gradient: Doubles, target: int, n: int) -> np.ndarray:
    """The target and the items with the longest gradients, ascending, at most n."""
    lengths = np.linalg.norm(gradient, axis=1)
    lengths[target] = np.inf
    first = np.argsort(-lengths, kind="stable")[:n]
    return np.sort(first[lengths[first] > 0])


def refusal(surface: Surface) -> str:
    linear = "" if surface.is_linear else "its scores are not linear in item rows"
    return needs_item_rows(surface) or linear


FEDRECATTACK = AttackKind(
    summary="approximates users from public interactions, and makes the target win for them",
    settings=FedRecAttack,
    poison=poison,
    paper="Rong et al. 2022",
    refusal=refusal,
    is_targeted=True,
)
