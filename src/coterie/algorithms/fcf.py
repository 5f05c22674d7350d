"""FCF, federated collaborative filtering: items live on the server, and every device solves for its user's own vector.

Ammad-ud-din, Ivannikova, Khan, Oyomno, Fu, Tan, Flanagan. Federated collaborative filtering for privacy-preserving personalized
recommendation system. arXiv:1901.09888, 2019. The model is that of implicit feedback (Hu, Koren, Volinsky 2008):

    J = sum_ui c_ui (p_ui - x_u . y_i)^2 + lambda (sum_u |x_u|^2 + sum_i |y_i|^2)
    p_ui = 1 if u did i, else 0;   c_ui = 1 + alpha r_ui, with r_ui = p_ui here

    foreach round
        S sends Y to the users of the round
        each solves for its own vector, exactly     x_u = (Y^T C_u Y + lambda I)^-1 Y^T C_u p_u
        and sends for every item                    f(u, i) = c_ui (p_ui - x_u . y_i) x_u
        S adds up                                   dJ/dy_i = -2 sum_u f(u, i) + 2 lambda y_i
        and takes a step of Adam                    Y <- Y - rate m' / (sqrt(v') + epsilon)

x_u never leaves the device, but what is sent gives it away: every row is a multiple of it, and those of what the user did are other
multiples than those of the rest. Do not call this private.

Deviation: f is sent in units of 1 + alpha, the largest confidence, so that fixed point holds it for any alpha; the server knows
alpha and undoes it. With fewer users than all a round's gradient is that of the users there, and of all of lambda |Y|^2.

Settings. beta1, beta2 and epsilon are Adam's own (Kingma and Ba 2015); lambda = 0.1 and start_scale = 0.1 are what the authors of FPL
run their FCF with, who take no alpha and a plain gradient step in place of Adam; alpha and the learning rate did best on the
validation part of MovieLens-100K, of 1, 5, 20 and 0.02, 0.05, 0.1, 0.2. The paper's own values are not among the defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
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
    SecureSum,
    SinglePass,
    Sums,
    World,
)
from coterie.models.factors import rows
from coterie.models.private_factors import PrivateFactors
from coterie.types import SCALE, Doubles, Floats, Ints, Longs, Message, Rows, Sizes, Updates

EPSILON = 1e-8
HELD = 1 << 27
"""Bytes of updates that are held at a time, about; a single one may be more."""
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
    """Extra confidence in what people did."""
    reg: float = Field(0.1, gt=0)
    """Regularisation of all rows (lambda)."""
    learning_rate: float = Field(0.1, gt=0)
    """Step size of Adam on the server."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """How much of the mean gradient Adam remembers."""
    beta2: float = Field(0.999, ge=0, lt=1)
    """How much of the mean squared gradient Adam remembers."""
    start_scale: float = Field(0.1, gt=0)
    """Standard deviation of the start values of item rows."""


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
    item_rows = rows(
        world.n_items, settings.embedding_size, world.seed, "items", settings.start_scale
    )
    return FCFState(item_rows, np.zeros_like(item_rows), np.zeros_like(item_rows), 0, ON_CLIENTS)


def init_clients(world: World[FCF], node: NodeData) -> PrivateState:
    """x_u = 0, which is also what somebody without history solves for."""
    return {"user_rows": np.zeros((len(node.users), world.settings.embedding_size), np.float32)}


# S sends Y


def broadcast(world: World[FCF], state: FCFState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows}, {})


# Each solves for its own vector, and sends a row for every item


class More(NamedTuple):
    """What stands in everybody's system beside what they did, where more is known of people."""

    left: Doubles  # (d, d) everybody's
    right: Doubles  # (n, d) each user's own


def solve(
    world: World[FCF], message: Message, node: NodeData, more: More | None = None
) -> tuple[Rows, Floats]:
    """What the users of a message did, and x_u: Y^T C_u Y is Y^T Y, which is everybody's, and a little for each own item."""
    Y = message.common["item_rows"]
    settings = world.settings
    kernel = kernels.load("als")
    mine = node.training.positives.of_users(node.positions(message.users))
    d = Y.shape[1]
    X = np.empty((len(message.users), d), np.float32)
    (left, right) = more or (0.0, np.empty((0, d)))
    system = gram(Y) + left
    parallel.over(
        lambda first, last: kernel.solve_rows(
            mine.offsets, mine.items, Y, system, right, settings.alpha, settings.reg, first, last, X
        ),
        mine.offsets,
    )
    return mine, X


def gram(Y: Floats) -> Doubles:
    """Y^T Y"""
    made = np.empty((Y.shape[1], Y.shape[1]))
    kernels.load("als").gram(Y, made)
    return made


def client_update(world: World[FCF], message: Message, node: NodeData) -> ClientResult:
    """f(u, i) for every item, as rows in fixed point."""
    mine, X = solve(world, message, node)
    return update(world, message, mine, X, np.empty((len(X), 0), np.int32)), {"user_rows": X}


def update(world: World[FCF], message: Message, mine: Rows, X: Floats, dense: Ints) -> Updates:
    changes = changed(X, mine, message.common["item_rows"], lowest_confidence(world))
    n, d = X.shape
    everything = np.tile(np.arange(world.n_items, dtype=np.int32), n)
    none = np.empty((n, 0), np.int32)
    offsets = np.arange(n + 1) * world.n_items
    return Updates(message.users, once(n), offsets, everything, changes.reshape(-1, d), none, dense)


def changed(X: Floats, liked: Rows, Y: Floats, unit: float) -> Ints:
    """(users, items, d) c (p - x . y) x in fixed point; c is one where something is liked, and `unit` elsewhere."""
    wide = in_lanes(X)
    items = in_lanes(Y)
    kernel = kernels.load("fcf").changes
    changes = np.empty((len(X), *Y.shape), np.int32)
    parallel.over(
        lambda first, last: kernel(
            wide, items, liked.offsets, liked.items, unit, first, last, changes
        ),
        len(X),
    )
    return changes


def in_lanes(numbers: Floats) -> Floats:
    """With zeros up to whole lanes and to rows in fours, as the kernels take them."""
    kernel = kernels.load("fcf")
    (n, d) = numbers.shape
    wide = np.zeros((n + -n % kernel.FOUR, d + -d % kernel.LANES), np.float32)
    wide[:n, :d] = numbers
    return wide


def lowest_confidence(world: World[FCF]) -> float:
    """In units of the largest."""
    return 1.0 / (1.0 + float(world.settings.alpha))


def once(n: int) -> Longs:
    """Everybody counts once; how much they did is nobody's business."""
    return np.ones(n, np.int64)


def sizes(world: World[FCF], state: FCFState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, 0)


def chunk_size(world: World[FCF], state: FCFState) -> int:
    """An update is as large as the catalogue: all of them together can be more than a machine has."""
    one: int = 4 * world.n_items * (1 + state.item_rows.shape[1])
    return max(HELD // one, 1)


# S adds up, and takes a step of Adam


def add_up(world: World[FCF], message: Message, updates: Updates) -> Sums:
    """sum_u f(u, i)"""
    total = np.zeros((world.n_items, updates.item_rows.shape[1]), np.int64)
    touched = np.zeros(world.n_items, np.int64)
    weights = once(len(updates))
    kernel = kernels.load("sums").by_samples
    parallel.over(
        lambda low, high: kernel(
            updates.offsets, updates.items, updates.item_rows, weights, low, high, total, touched
        ),
        world.n_items,
    )
    return {"items": total}


def descend(
    world: World[FCF], state: FCFState, sums: Sums, delegates: Accepted, t: int
) -> FCFState:
    """dJ/dY out of fixed point, and Adam."""
    before = Moved(state.item_rows, state.first_moment, state.second_moment)
    step = state.steps + 1
    after = adam(world, before, sums["items"], unit_of_rows(world), step)
    return FCFState(after.rows, after.first_moment, after.second_moment, step, state.user_rows)


def unit_of_rows(world: World[FCF]) -> float:
    """What one is in the fixed point of f(u, i)."""
    return (1.0 + float(world.settings.alpha)) / SCALE


class Moved(NamedTuple):
    """Rows that Adam moves, and what it remembers of them."""

    rows: Floats
    first_moment: Floats
    second_moment: Floats

    @classmethod
    def begin(cls, rows: Floats) -> Moved:
        return cls(rows, np.zeros_like(rows), np.zeros_like(rows))


def adam(world: World[FCF], before: Moved, total: Longs, unit: float, step: int) -> Moved:
    """A step down the slope 2 (lambda rows - unit total)."""
    s = world.settings
    kernel = kernels.load("fcf").adam
    after = Moved(*(np.empty_like(part) for part in before))
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


# All of it in one call


def single_pass(world: World[FCF], message: Message, node: NodeData) -> SinglePass | None:
    """The same sums, bit for bit, without a row of them: 34 million rows a round on Foursquare-Italy stay unwritten."""
    mine, X = solve(world, message, node)
    total = summed(X, mine, message.common["item_rows"], lowest_confidence(world))
    return None if total is None else of_everybody(world, message, {"items": total}, X)


def summed(X: Floats, liked: Rows, Y: Floats, unit: float) -> Longs | None:
    """(items, d) what `changed` has, added up over users; None where somebody may be out of range."""
    wide = in_lanes(X)
    items = in_lanes(Y)
    kernel = kernels.load("fcf").add_up
    likers = Rows.build(
        liked.items, np.repeat(np.arange(len(X), dtype=np.int32), liked.counts), len(Y)
    )
    largest = np.abs(wide).max(axis=1)
    total = np.zeros(Y.shape, np.int64)
    fine = []
    parallel.over(
        lambda low, high: fine.append(
            kernel(wide, largest, items, likers.offsets, likers.items, unit, low, high, total)
        ),
        len(Y),
    )
    return total if all(fine) else None


def of_everybody(world: World[FCF], message: Message, sums: Sums, X: Floats) -> SinglePass:
    n = len(X)
    none = np.empty((len(X), 0), np.int32)
    return SinglePass(
        sums, Accepted(message.users, once(n), none), np.full(n, world.n_items), {"user_rows": X}
    )


def model(world: World[FCF], state: FCFState) -> PrivateFactors:
    return PrivateFactors(state.user_rows, state.item_rows, np.zeros(world.n_items, np.float32))


EXCHANGE = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=descend,
    sizes=sizes,
    fast=FastPaths(chunk_size=chunk_size, single_pass=single_pass),
    secure_sum=SecureSum(by_item=("items",)),
)

ALGORITHM = Algorithm(
    "federated collaborative filtering: own vectors solved on devices, gradients of all items sent",
    FCF,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        init_clients=init_clients,
    ),
    state=FCFState,
    kernels=("fcf", "als", "sums", "clusters"),
    paper="Ammad-ud-din et al. 2019",
)
