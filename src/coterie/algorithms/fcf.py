"""FCF, federated collaborative filtering: every device solves for the vector of its user.

Ammad-ud-din, Ivannikova, Khan, Oyomno, Fu, Tan, Flanagan. Federated collaborative filtering for
privacy-preserving personalized recommendation system. arXiv:1901.09888, 2019. The model is that of
implicit feedback (Hu, Koren, Volinsky 2008):

    J = sum_ui c_ui (p_ui - x_u . y_i)^2 + lambda (sum_u |x_u|^2 + sum_i |y_i|^2)
    p_ui = 1 if u did i, else 0;   c_ui = 1 + alpha r_ui, with r_ui = p_ui here

    foreach round
        S sends Y to the users of the round
        each solves for its own vector, exactly     x_u = (Y^T C_u Y + lambda I)^-1 Y^T C_u p_u
        and sends for every item                    f(u, i) = c_ui (p_ui - x_u . y_i) x_u
        S adds up                                   dJ/dy_i = -2 sum_u f(u, i) + 2 lambda y_i
        and takes a step of Adam                    Y <- Y - rate m' / (sqrt(v') + epsilon)

x_u never leaves the device, but the update reveals it: every row is a multiple of x_u, and the rows
of the user's items are other multiples than those of the rest. Do not call this private.

Deviation: f is sent in units of 1 + alpha, the largest confidence, so that it fits into fixed point
for any alpha; the server knows alpha and scales back. With fewer users than all, the gradient of a
round is that of its users, and of all of lambda |Y|^2.

Settings. beta1, beta2 and epsilon are Adam's own (Kingma and Ba 2015). lambda = 0.1 and
start_scale = 0.1 are those of the FCF in FPL's experiments. alpha and the learning rate are the
best on the validation part of MovieLens-100K, of 1, 5, 20 and 0.02, 0.05, 0.1, 0.2. The defaults
are not the paper's values.

The FCF in FPL's experiments is plain (sciueferrara/fcf-huawei): no confidence (`alpha=0`) and a
gradient step, Y <- Y - rate dJ/dY (`optimiser=gradient`). In its parallel version, which is the
one with lambda = 1, missing interactions do not count either (`missing_weight=0`): c_ui = p_ui, so
x_u is solved from the user's own items, and only those send a row other than zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local import least_squares
from coterie.algorithms.local.least_squares import RightSides, gram
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import parallel
from coterie.core.records import Record
from coterie.core.settings import SearchSpace
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    ClientResult,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    PrivateSum,
    SinglePass,
    Sums,
    World,
    unweighted,
)
from coterie.federated.privacy.clipping import clipped
from coterie.federated.privacy.settings import clipping_kernels
from coterie.federated.robust.multiples import Multiples
from coterie.models.factors import rows
from coterie.models.new_user import NewUser
from coterie.models.private_factors import PrivateFactors
from coterie.types import SCALE, Doubles, Floats, Ints, Longs, Message, Rows, Sizes, Updates

EPSILON = 1e-8
UPDATE_MEMORY = 1 << 27
"""Bytes of updates that are held in memory at a time, or one update if that is larger."""
BLOCK = 1024


class FCF(CohortSettings):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.003, 0.5),
        "alpha": (0.3, 50.0),
        "reg": (0.1, 100.0),
        "embedding_size": [10, 20, 50],
    }

    embedding_size: int = Field(16, ge=1, le=512)
    """Length of every user and item row."""
    rounds: int = Field(50, ge=1)
    """Rounds of communication."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the users that takes part in a round."""
    alpha: float = Field(5.0, ge=0)
    """Extra confidence of observed interactions."""
    missing_weight: float = Field(1.0, ge=0, le=1)
    """Confidence in a missing interaction: 1 in the paper. With 0 only a user's own items count."""
    reg: float = Field(0.1, gt=0)
    """Regularisation of all rows (lambda)."""
    optimiser: Literal["adam", "gradient"] = "adam"
    """How the server moves rows: by Adam, or by the learning rate times the gradient."""
    learning_rate: float = Field(0.1, gt=0)
    """Step size of the server."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """Decay of Adam's mean gradient."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """Decay of Adam's mean squared gradient."""
    start_scale: float = Field(0.1, gt=0)
    """Standard deviation of the initial item rows."""


@dataclass(frozen=True, slots=True)
class FCFState(Record):
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    item_rows: Floats  # Y
    first_moment: Floats  # m, as Y
    second_moment: Floats  # v, as Y
    steps: int  # of Adam
    user_rows: Floats  # X, on the devices


def init(world: World[FCF]) -> FCFState:
    settings = world.settings
    Y = rows(world.n_items, settings.embedding_size, world.seed, "items", settings.start_scale)
    return FCFState(
        item_rows=Y,
        first_moment=np.zeros_like(Y),
        second_moment=np.zeros_like(Y),
        steps=0,
        user_rows=ON_CLIENTS,
    )


def init_clients(world: World[FCF], node: NodeData) -> PrivateState:
    """x_u = 0, which is also the solution of a user without history."""
    return {"user_rows": np.zeros((len(node.users), world.settings.embedding_size), np.float32)}


# S sends Y


def broadcast(world: World[FCF], state: FCFState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows}, {})


# Each solves for its own vector, and sends a row for every item


class SideTerms(NamedTuple):
    """Terms of the users' linear systems that come from user features."""

    left: Doubles  # (d, d) the same for all users
    right: Doubles  # (n, d) of each user


def solve(
    world: World[FCF], message: Message, node: NodeData, side: SideTerms | None = None
) -> tuple[Rows, Floats]:
    """The histories of a message's users, and x_u."""
    history = node.training.positives.of_users(node.positions(message.users))
    return history, solve_rows(history, message.common["item_rows"], world.settings, side)


def solve_rows(history: Rows, Y: Floats, s: FCF, side: SideTerms | None = None) -> Floats:
    """x_u of the users with these histories.

    Y^T C_u Y is w Y^T Y, which is the same for all users, plus a term for each item of the user.
    w is the confidence in a missing interaction.
    """
    d = Y.shape[1]
    left, extra = side or SideTerms(np.zeros((d, d)), np.empty((0, d)))
    w = s.missing_weight
    system = w * gram(Y) + left
    if w != 1:
        # The systems have 1 + alpha' times the user's rows on the right, for a matrix with alpha'.
        extra = (extra if len(extra) else 0.0) - (1 - w) * sums_of_rows(history, Y)
    alpha = s.alpha + (1 - w)
    ridge = np.full(len(history.counts), float(s.reg))
    right = RightSides(np.empty(0, np.float32), extra)
    return least_squares.solve_rows(history, Y, system, alpha, ridge, right)


def sums_of_rows(history: Rows, Y: Floats) -> Doubles:
    """(users, d) the sum of each user's item rows, in double precision."""
    total = np.zeros((len(history.offsets) - 1, Y.shape[1]))
    user = np.repeat(np.arange(len(total)), history.counts)
    np.add.at(total, user, Y[history.items].astype(np.float64))
    return total


def client_update(world: World[FCF], message: Message, node: NodeData) -> ClientResult:
    """f(u, i) for every item, as rows in fixed point."""
    history, X = solve(world, message, node)
    no_dense = np.empty((len(X), 0), np.int32)
    return update(world, message, history, X, no_dense), {"user_rows": X}


def update(world: World[FCF], message: Message, history: Rows, X: Floats, dense: Ints) -> Updates:
    f = gradient_rows(X, history, message.common["item_rows"], lowest_confidence(world))
    n, d = X.shape
    return Updates(
        users=message.users,
        samples=unit_weights(n),
        offsets=np.arange(n + 1) * world.n_items,
        items=np.tile(np.arange(world.n_items, dtype=np.int32), n),
        item_rows=f.reshape(-1, d),
        user_rows=np.empty((n, 0), np.int32),
        dense=dense,
    )


def gradient_rows(X: Floats, positives: Rows, Y: Floats, unit: float) -> Ints:
    """(users, items, d) c (p - x . y) x in fixed point; c is 1 for positives, else `unit`."""
    padded_x = pad_to_lanes(X)
    padded_y = pad_to_lanes(Y)
    kernel = kernels.load("fcf").changes
    f = np.empty((len(X), *Y.shape), np.int32)
    parallel.over(
        lambda first, last: kernel(
            padded_x, padded_y, positives.offsets, positives.items, unit, first, last, f
        ),
        len(X),
    )
    return f


def pad_to_lanes(numbers: Floats) -> Floats:
    """Pad with zeros to whole SIMD lanes and to multiples of four rows, as the kernels need it."""
    kernel = kernels.load("fcf")
    n, d = numbers.shape
    padded = np.zeros((n + -n % kernel.FOUR, d + -d % kernel.LANES), np.float32)
    padded[:n, :d] = numbers
    return padded


def lowest_confidence(world: World[FCF]) -> float:
    """The confidence in a missing interaction, in units of the largest."""
    return float(world.settings.missing_weight) / (1.0 + float(world.settings.alpha))


def unit_weights(n: int) -> Longs:
    """Every client has the weight 1: the length of its history is not disclosed."""
    return np.ones(n, np.int64)


def sizes(world: World[FCF], state: FCFState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, 0)


def chunk_size(world: World[FCF], state: FCFState) -> int:
    """An update is as large as the catalogue: those of a cohort may not fit into memory."""
    update_bytes: int = 4 * world.n_items * (1 + state.item_rows.shape[1])
    return max(UPDATE_MEMORY // update_bytes, 1)


# S adds up, and takes a step


def add_up(world: World[FCF], message: Message, updates: Updates) -> Sums:
    """sum_u f(u, i)"""
    total = np.zeros((world.n_items, updates.item_rows.shape[1]), np.int64)
    touched = np.zeros(world.n_items, np.int64)
    weights = unit_weights(len(updates))
    kernel = kernels.load("sums").by_samples
    parallel.over(
        lambda low, high: kernel(
            updates.offsets, updates.items, updates.item_rows, weights, low, high, total, touched
        ),
        world.n_items,
    )
    return {"items": total}


def descend(world: World[FCF], state: FCFState, sums: Sums, accepted: Accepted, t: int) -> FCFState:
    """dJ/dY out of fixed point, and a step."""
    before = AdamRows(state.item_rows, state.first_moment, state.second_moment)
    step = state.steps + 1
    after = descend_rows(world, before, sums["items"], unit_of_rows(world), step)
    return FCFState(after.rows, after.first_moment, after.second_moment, step, state.user_rows)


def unit_of_rows(world: World[FCF]) -> float:
    """The value of the integer 1 in the fixed point of f(u, i)."""
    return (1.0 + float(world.settings.alpha)) / SCALE


class AdamRows(NamedTuple):
    """Rows that Adam updates, and its moments."""

    rows: Floats
    first_moment: Floats
    second_moment: Floats

    @classmethod
    def begin(cls, rows: Floats) -> AdamRows:
        return cls(rows, np.zeros_like(rows), np.zeros_like(rows))


def descend_rows(
    world: World[FCF], before: AdamRows, total: Longs, unit: float, step: int
) -> AdamRows:
    """A descent step with the gradient 2 (lambda rows - unit total)."""
    if world.settings.optimiser == "gradient":
        return gradient_step(world, before, total, unit)
    return adam(world, before, total, unit, step)


def gradient_step(world: World[FCF], before: AdamRows, total: Longs, unit: float) -> AdamRows:
    """rows - rate gradient, in double precision. The moments stay zero."""
    s = world.settings
    rows = before.rows.astype(np.float64)
    after = rows - s.learning_rate * 2 * (s.reg * rows - unit * total)
    return before._replace(rows=after.astype(np.float32))


def adam(world: World[FCF], before: AdamRows, total: Longs, unit: float, step: int) -> AdamRows:
    """A step of Adam with the gradient 2 (lambda rows - unit total)."""
    s = world.settings
    kernel = kernels.load("fcf").adam
    after = AdamRows(*(np.empty_like(part) for part in before))
    parallel.over(
        lambda low, high: kernel(
            *before,
            total,
            unit,
            s.reg,
            s.learning_rate,
            s.beta1,
            s.beta2,
            EPSILON,
            step,
            low,
            high,
            *after,
        ),
        len(total),
        BLOCK,
    )
    return after


# The exchange in a single pass


def single_pass(world: World[FCF], message: Message, node: NodeData) -> SinglePass | None:
    """The same sums, bit for bit, without writing f(u, i) to memory.

    On Foursquare-Italy that saves 34 million rows per round.
    """
    history, X = solve(world, message, node)
    total = summed_gradients(X, history, message.common["item_rows"], lowest_confidence(world))
    return None if total is None else accept_all(world, message, {"items": total}, X)


def summed_gradients(X: Floats, positives: Rows, Y: Floats, unit: float) -> Longs | None:
    """(items, d) `gradient_rows` summed over users; None where an update may be out of range."""
    padded_x = pad_to_lanes(X)
    padded_y = pad_to_lanes(Y)
    kernel = kernels.load("fcf").add_up
    user = np.repeat(np.arange(len(X), dtype=np.int32), positives.counts)
    by_item = Rows.build(positives.items, user, len(Y))
    largest = np.abs(padded_x).max(axis=1)
    total = np.zeros(Y.shape, np.int64)
    in_range: list[bool] = []

    def add_up(low: int, high: int) -> None:
        users = by_item.items
        fits = kernel(padded_x, largest, padded_y, by_item.offsets, users, unit, low, high, total)
        in_range.append(fits)

    parallel.over(add_up, len(Y))
    return total if all(in_range) else None


def accept_all(world: World[FCF], message: Message, sums: Sums, X: Floats) -> SinglePass:
    """The result of a single pass in which every update is valid."""
    n = len(X)
    return SinglePass(
        sums=sums,
        accepted=Accepted(message.users, unit_weights(n), np.empty((n, 0), np.int32)),
        n_rows=np.full(n, world.n_items),
        private_state={"user_rows": X},
    )


def model(world: World[FCF], state: FCFState) -> PrivateFactors:
    return PrivateFactors(state.user_rows, state.item_rows, np.zeros(world.n_items, np.float32))


def score_new_user(model: PrivateFactors, user: NewUser, settings: FCF) -> Floats:
    """A new user solves for x_u as in a round, and sends nothing; without items, the average x."""
    if not len(user.items):
        return model.score_row(model.average_row())
    history = Rows(np.array([0, len(user.items)]), user.items)
    return model.score_row(solve_rows(history, model.item_rows, settings)[0])


EXCHANGE = clipped(
    Exchange(
        broadcast=broadcast,
        client_update=client_update,
        aggregate=add_up,
        server_update=descend,
        sizes=sizes,
        fast=FastPaths(chunk_size=chunk_size, single_pass=single_pass),
        secure_sum=unweighted(by_item=("items",)),
        # A client sends a row for every item, most of them tiny.
        bounds=lambda world: Multiples(rows=12),
    ),
    PrivateSum(
        releases=lambda world: world.settings.rounds,
        cohort_size=fedavg.cohort_size,
        drawn_anew=True,
    ),
)

IN_THE_CLEAR = "gradients of all items, which reveal its history in one round"
ALGORITHM = Algorithm(
    "federated collaborative filtering: devices solve for user vectors and send item gradients",
    FCF,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        init_clients=init_clients,
    ),
    state=FCFState,
    kernels=lambda settings: ("fcf", "als", "sums", "clusters", *clipping_kernels(settings)),
    paper="Ammad-ud-din et al. 2019",
    score_new_user=score_new_user,
    in_the_clear=IN_THE_CLEAR,
)
