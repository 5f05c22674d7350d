"""FedALS: implicit ALS, computed exactly from sums over clients.

The objective is that of Rendle, Krichene, Zhang, Koren. Revisiting the performance of iALS on item
recommendation benchmarks. RecSys 2022 (`local/least_squares.py`). With the items Y fixed, a user's
vector depends on the user's own history alone; with the users fixed, an item's vector depends on
two sums over its users. So a federation computes ALS without moving a history:

    foreach round
        S sends Y to the clients of the round
        each solves for its own vector, exactly     x = (Y^T C Y + ridge I)^-1 Y^T C p
        S receives sums over clients                sum x x^T over all of them, and
                                                    sum x x^T, sum x and the count of every item
        and solves for every item                   y_i = (X^T C_i X + ridge_i I)^-1 X^T C_i p_i

With all clients in every round this is ALS. Vectors travel in fixed point, and products of two of
them are integers, so the sums have the same bits with and without secure aggregation.

What a client sends. Under secure aggregation: its part of the sums, items * (d (d + 1) / 2 + d + 1)
numbers, which the server sees only added up. Sums over few clients still reveal them: see
docs/privacy.md. In the clear: x and the ids of its items, from which the server computes that part.
That is about 1 kB, and it tells the server everything.

Blocks (Rendle et al. iALS++. arXiv:2110.14044, 2021). With `block_size` k a round solves for k
coordinates of every item, the next round for the next k. A client then sends
items * (k (k + 1) / 2 + k + 1) numbers, in d / k rounds instead of one. The right sides are those
that remain when the other coordinates are predicted.

Some of the clients. Where only m of n members reply, the server keeps sqrt(1 - m / n) of its sums
of earlier rounds, and scales all sums to n members. More memory holds older vectors, less memory
holds fewer clients: on MovieLens-1M, with a tenth of the clients in each of 60 rounds, 1 - m / n
ends 0.002 lower. After a round of all members nothing is kept.

Clients keep nothing between rounds: a vector is solved anew from Y whenever it is needed, which
also serves people who never took part.

Ratings (feedback=explicit): squared error on observed ratings alone. Clients send ratings, too; the
server adds them up to a bias for every item, and vectors explain what is left. In the first round
there are no biases yet, so that it only collects ratings.

Under a privacy budget (epsilon) clients send less, and the server adds noise: `private_als.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator
from threadpoolctl import threadpool_limits

from coterie import kernels
from coterie.algorithms import fedavg, private_als
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local import least_squares
from coterie.algorithms.local.least_squares import LeastSquares, RightSides
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import parallel
from coterie.core.fixed_point import quantise
from coterie.core.records import Record
from coterie.core.settings import DataSize
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    PrivateSum,
    SecureSum,
    SinglePass,
    Sums,
    World,
)
from coterie.federated.privacy.plan import plan_for, with_noise
from coterie.federated.privacy.settings import noise_kernels
from coterie.models.factors import rows
from coterie.models.new_user import NewUser
from coterie.models.private_factors import PrivateFactors
from coterie.types import (
    SCALE,
    TOO_LARGE,
    Doubles,
    Floats,
    Ints,
    Longs,
    Message,
    Rows,
    Sizes,
    Updates,
)

RATING_SCALE = SCALE >> 4
"""Ratings travel in fixed point, too; they may be below 128."""
PRIOR_RATINGS = 5
"""Ratings at the overall mean that the bias of every item starts with."""
BLOCK = 64
"""Items that a thread takes at a time."""


class FedALS(LeastSquares, CohortSettings):
    trial_steps: ClassVar[int | None] = 20

    rounds: int = Field(10, ge=1)
    """Rounds of communication. Under a privacy budget 2 by default: it is shared among them."""
    participation: float = Field(1.0, gt=0, le=1)
    """Share of the users that takes part in a round."""
    embedding_size: int = Field(64, ge=1, le=512)
    """Length of every user and item row. Under a privacy budget 16 by default."""
    reg: float | None = Field(None, gt=0)
    """Regularisation of all rows. By default it follows from the numbers of users, items and
    interactions. Under a privacy budget it is 0.03 by default, and that of user rows alone."""

    @model_validator(mode="before")
    @classmethod
    def _other_defaults_under_a_budget(cls, values: object) -> object:
        if not isinstance(values, dict) or values.get("epsilon") is None:
            return values
        defaults = {"rounds": private_als.ROUNDS, "embedding_size": private_als.EMBEDDING_SIZE}
        return defaults | values

    def for_data(self, size: DataSize) -> Self:
        if self.epsilon is not None and self.reg is None:
            return self.model_copy(update={"reg": private_als.REG})
        return super().for_data(size)


@dataclass(frozen=True, slots=True)
class FedALSState(Record):
    item_rows: Floats  # Y
    item_bias: Floats  # of ratings; zeros with implicit feedback
    item_sums: Doubles  # (blocks, items, width) kept from earlier rounds; no items if none are
    user_sums: Doubles  # (blocks, d (d + 1) / 2) kept from earlier rounds
    weights: Doubles  # (blocks,) of the clients in the sums


def init(world: World[FedALS]) -> FedALSState:
    s = world.settings
    if s.epsilon is not None:
        private_als.check(s.block_size, world.rated)
    n_blocks = len(blocks(s))
    return FedALSState(
        item_rows=rows(world.n_items, s.embedding_size, world.seed, "items", s.start_scale),
        item_bias=np.zeros(world.n_items, np.float32),
        item_sums=np.zeros((n_blocks, 0, item_width(world, blocks(s)[0]))),
        user_sums=np.zeros((n_blocks, triangle(s.embedding_size))),
        weights=np.zeros(n_blocks),
    )


class CoordinateBlock(NamedTuple):
    """CoordinateBlock that a round solves for."""

    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.begin


def blocks(settings: FedALS) -> list[CoordinateBlock]:
    """All coordinates in blocks. The last one overlaps where the size does not divide them."""
    d = settings.embedding_size
    size = min(settings.block_size or d, d)
    begins = [min(begin, d - size) for begin in range(0, d, size)]
    return [CoordinateBlock(begin, begin + size) for begin in begins]


def block_of(settings: FedALS, t: int) -> tuple[int, CoordinateBlock]:
    """The block of round t, and its number."""
    all_blocks = blocks(settings)
    number = t % len(all_blocks)
    return number, all_blocks[number]


def triangle(k: int) -> int:
    """The numbers of a symmetric matrix, on and above the diagonal."""
    return k * (k + 1) // 2


def item_width(world: World[FedALS], block: CoordinateBlock) -> int:
    """The numbers that are summed for every item."""
    return triangle(block.size) + block.size + 1 + world.rated


# S sends Y


def broadcast(world: World[FedALS], state: FedALSState, cohort: Ints, t: int) -> Message:
    common: dict[str, np.ndarray] = {"item_rows": state.item_rows}
    if world.rated:
        common["item_bias"] = state.item_bias
    return Message(t, cohort, common, {})


# Each solves for its own vector


def solve(
    history: Rows, Y: Floats, settings: FedALS, ratings: Floats | None, bias: Floats
) -> Floats:
    """x of clients with these histories."""
    if ratings is None:
        return least_squares.solve(history, Y, settings)
    d = Y.shape[1]
    ridge = least_squares.ridges(history.counts, 0, settings)
    right = RightSides(ratings - bias[history.items], np.empty((0, d)))
    return least_squares.solve_rows(history, Y, np.zeros((d, d)), 1.0, ridge, right)


class Solved(NamedTuple):
    """What the clients of a message know: their histories and vectors in fixed point."""

    history: Rows
    vectors: Ints  # (n, d)
    ratings: Ints  # (interactions, 1), or (interactions, 0) with implicit feedback


def solve_clients(world: World[FedALS], message: Message, node: NodeData) -> Solved:
    places = node.positions(message.users)
    positives = node.training.positives
    history = positives.of_users(places)
    ratings = None
    sent = np.empty((len(history.items), 0), np.int32)
    if node.training.ratings is not None:
        ratings = node.training.ratings[positives.places(places)]
        sent = quantise(ratings[:, None] / (SCALE / RATING_SCALE))
    bias = message.common.get("item_bias", np.empty(0, np.float32))
    if world.rated and not bias.any():
        d = message.common["item_rows"].shape[1]
        return Solved(history, np.zeros((len(places), d), np.int32), sent)
    X = solve(history, message.common["item_rows"], world.settings, ratings, bias)
    private = world.settings.epsilon is not None
    return Solved(history, private_als.unit_vectors(X) if private else quantise(X), sent)


def client_update(world: World[FedALS], message: Message, node: NodeData) -> Updates:
    history, vectors, ratings = solve_clients(world, message, node)
    n = len(vectors)
    return Updates(
        users=message.users,
        # The length of a history is not disclosed.
        samples=np.ones(n, np.int64),
        offsets=history.offsets,
        items=history.items,
        item_rows=ratings,
        user_rows=np.empty((n, 0), np.int32),
        dense=vectors,
    )


def sizes(world: World[FedALS], state: FedALSState) -> Sizes:
    return Sizes(world.n_items, int(world.rated), 0, state.item_rows.shape[1])


# S receives sums over clients


def add_up(world: World[FedALS], message: Message, updates: Updates) -> Sums:
    history = Rows(updates.offsets, updates.items)
    return sums(world, message, Solved(history, updates.dense, updates.item_rows))


def sums(world: World[FedALS], message: Message, solved: Solved) -> Sums:
    """sum x x^T over clients, and sum x x^T, sum e x and the count over those of every item."""
    plan = plan_for(world, PRIVATE_SUM)
    if plan is not None:
        scale = private_als.scales(plan)
        return private_als.private_sums(solved.history, solved.vectors, world.n_items, scale)
    _, block = block_of(world.settings, message.round)
    return {"items": sums_by_item(world, message, solved, block), "users": gram(solved.vectors)}


def sums_by_item(
    world: World[FedALS], message: Message, solved: Solved, block: CoordinateBlock
) -> Longs:
    Y = message.common["item_rows"]
    n = len(solved.vectors)
    user = np.repeat(np.arange(n, dtype=np.int32), solved.history.counts)
    # A stable sort by item keeps the order of users.
    order = np.argsort(solved.history.items, kind="stable")
    counts = np.bincount(solved.history.items, minlength=world.n_items)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    users = user[order]
    ratings = solved.ratings[order].ravel()
    biases = np.empty(0)
    if world.rated:
        biases = message.common["item_bias"].astype(np.float64) * RATING_SCALE
    total = np.empty((world.n_items, item_width(world, block)), np.int64)
    kernel = kernels.load("als_sums").sum_by_item
    share = predicted_share(world)
    parallel.over(
        lambda low, high: kernel(
            offsets,
            users,
            ratings,
            biases,
            solved.vectors,
            Y,
            share,
            block.begin,
            block.end,
            low,
            high,
            total,
        ),
        offsets,
        BLOCK,
    )
    return total


def predicted_share(world: World[FedALS]) -> float:
    """The factor of a prediction in e: that of alpha x . y in 1 + alpha; in units of ratings."""
    if world.rated:
        return RATING_SCALE / SCALE
    return float(world.settings.alpha) / (1.0 + float(world.settings.alpha))


def gram(vectors: Ints) -> Longs:
    """(d (d + 1) / 2,) the sum of x x^T."""
    parts: list[Longs] = []
    kernel = kernels.load("als_sums").sum_over_users

    def part(first: int, last: int) -> None:
        total = np.zeros(triangle(vectors.shape[1]), np.int64)
        kernel(vectors, first, last, total)
        parts.append(total)

    parallel.over(part, len(vectors), BLOCK)
    whole: Longs = np.sum(parts, axis=0)
    return whole


# S solves for every item


def solve_items(
    world: World[FedALS], state: FedALSState, sums: Sums, accepted: Accepted, t: int
) -> FedALSState:
    if world.settings.epsilon is not None:
        return replace(state, item_rows=solve_noisy(world, sums, accepted))
    number, block = block_of(world.settings, t)
    kept = keep(world, state, sums, accepted, number)
    if world.rated and not state.item_bias.any():
        return replace(state, item_bias=mean_ratings(kept.items))
    scale = world.n_members / kept.weight
    after = np.empty_like(state.item_rows)
    weights = system_weights(world, scale)
    G = np.zeros((after.shape[1], after.shape[1]))
    if not world.rated:
        G = symmetric(kept.users * scale, len(G))
    kernel = kernels.load("als_sums").solve_sums
    parallel.over(
        lambda low, high: kernel(
            kept.items,
            state.item_rows,
            G,
            weights.outer_products,
            weights.right,
            world.settings.known_reg,
            weights.others,
            scale,
            float(world.settings.reg_exponent),
            block.begin,
            block.end,
            low,
            high,
            after,
        ),
        world.n_items,
        BLOCK,
    )
    return FedALSState(
        item_rows=after,
        item_bias=mean_ratings(kept.items) if world.rated else state.item_bias,
        **sums_to_keep(world, state, kept, accepted, number),
    )


def solve_noisy(world: World[FedALS], sums: Sums, accepted: Accepted) -> Floats:
    """Y, from the noisy sums of this round alone: those of earlier rounds are of another basis."""
    plan = plan_for(world, PRIVATE_SUM)
    assert plan is not None
    draws = 1 if world.settings.noise == "central" else len(accepted.users)
    sigma = math.sqrt(draws) * (1 << plan.log2_sigma)
    noisy = private_als.noisy_sums(sums, private_als.scales(plan), sigma)
    # The size of a Poisson sample is not public; the expected size is.
    n_clients = fedavg.cohort_size(world)
    with threadpool_limits(1, "blas"):
        return private_als.solve_items(noisy, n_clients, float(world.settings.alpha))


class Kept(NamedTuple):
    """Sums of this round and what is kept of earlier ones, in units of one."""

    items: Doubles
    users: Doubles
    weight: float
    """Of the clients in the sums."""


def keep(
    world: World[FedALS], state: FedALSState, sums: Sums, accepted: Accepted, number: int
) -> Kept:
    """The sums of a round and sqrt(1 - m / n) of those before, where m of n members replied."""
    m = len(accepted.users)
    share = math.sqrt(1 - m / world.n_members)
    units = column_units(world, sums["items"].shape[1])
    before = state.item_sums[number]
    items = np.empty(sums["items"].shape)

    def part(low: int, high: int) -> None:
        np.multiply(sums["items"][low:high], units, out=items[low:high])
        if len(before):
            items[low:high] += share * before[low:high]

    parallel.over(part, world.n_items, BLOCK)
    users = sums["users"] / SCALE**2
    weight = float(m)
    if len(before):
        users = users + share * state.user_sums[number]
        weight += share * float(state.weights[number])
    return Kept(items, users, weight)


def sums_to_keep(
    world: World[FedALS], state: FedALSState, kept: Kept, accepted: Accepted, number: int
) -> dict[str, Doubles]:
    """The sums of the state after a round. A block whose round had all members keeps none."""
    weights = state.weights.copy()
    everybody = len(accepted.users) == world.n_members
    weights[number] = 0.0 if everybody else kept.weight
    if not weights.any():
        return {
            "item_sums": state.item_sums[:, :0],
            "user_sums": np.zeros_like(state.user_sums),
            "weights": weights,
        }
    item_sums = np.zeros((len(weights), *kept.items.shape))
    if state.item_sums.shape[1]:
        item_sums[:] = state.item_sums
    user_sums = state.user_sums.copy()
    item_sums[number] = 0.0 if everybody else kept.items
    user_sums[number] = 0.0 if everybody else kept.users
    return {"item_sums": item_sums, "user_sums": user_sums, "weights": weights}


def column_units(world: World[FedALS], width: int) -> Doubles:
    """The value of the integer 1 in the columns of `sum_by_item`."""
    units = np.full(width, 1.0 / SCALE**2)
    if not world.rated:
        units[-1] = 1
        return units
    block = blocks(world.settings)[0]
    units[triangle(block.size) : -2] = 1.0 / (SCALE * RATING_SCALE)
    units[-2] = 1
    units[-1] = 1.0 / RATING_SCALE
    return units


class SystemWeights(NamedTuple):
    """How sums enter the system of an item."""

    outer_products: float
    right: float
    others: float
    """Added to the count in the regularisation."""


def system_weights(world: World[FedALS], scale: float) -> SystemWeights:
    alpha = float(world.settings.alpha)
    if world.rated:
        return SystemWeights(scale, scale, 0.0)
    others = world.n_users / alpha if alpha else 0.0
    return SystemWeights(alpha * scale, (1 + alpha) * scale, others)


def symmetric(upper: Doubles, d: int) -> Doubles:
    """The matrix with these numbers on and above the diagonal, row by row."""
    G = np.zeros((d, d))
    G[np.triu_indices(d)] = upper
    below: Doubles = np.triu(G, 1).T
    return np.ascontiguousarray(G + below)


def mean_ratings(items: Doubles) -> Floats:
    """The mean rating of every item, which a few ratings at the overall mean come first in."""
    counts = items[:, -2]
    total = items[:, -1]
    overall = total.sum() / max(counts.sum(), 1)
    means: Doubles = (total + PRIOR_RATINGS * overall) / (counts + PRIOR_RATINGS)
    return means.astype(np.float32)


# The exchange in a single pass


def single_pass(world: World[FedALS], message: Message, node: NodeData) -> SinglePass | None:
    """The same sums without checking updates one by one; None where one would be refused."""
    solved = solve_clients(world, message, node)
    largest = max((np.abs(a.astype(np.int64)).max(initial=0) for a in solved[1:]), default=0)
    if largest >= TOO_LARGE:
        return None
    n = len(solved.vectors)
    return SinglePass(
        sums=sums(world, message, solved),
        accepted=Accepted(message.users, np.ones(n, np.int64), np.empty((n, 0), np.int32)),
        n_rows=solved.history.counts,
        private_state={},
    )


# The model


def model(world: World[FedALS], state: FedALSState) -> PrivateFactors:
    return PrivateFactors(ON_CLIENTS, state.item_rows, state.item_bias)


def own_vectors(world: World[FedALS], state: FedALSState, node: NodeData) -> PrivateState:
    """Every client solves for its vector with the latest items."""
    training = node.training
    X = solve(
        training.positives, state.item_rows, world.settings, training.ratings, state.item_bias
    )
    return {"user_rows": X}


def score_new_user(model: PrivateFactors, user: NewUser, settings: FedALS) -> Floats:
    """A new user solves for x as in a round, and sends nothing; without items, the average x."""
    if not len(user.items):
        return model.score_row(model.average_row())
    history = Rows(np.array([0, len(user.items)]), user.items)
    return model.score_row(least_squares.solve(history, model.item_rows, settings)[0])


PRIVATE_SUM = PrivateSum(
    releases=lambda world: world.settings.rounds,
    cohort_size=fedavg.cohort_size,
    drawn_anew=True,
)

EXCHANGE = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=solve_items,
    sizes=sizes,
    fast=FastPaths(single_pass=single_pass),
    secure_sum=with_noise(
        SecureSum(
            by_item=("items",),
            whole_rows=True,
            reveals="sums of x x^T give away the history of a client with an item of its own, and "
            "those of all clients where they are no more than embedding_size",
        ),
        PRIVATE_SUM,
    ),
    private_sum=PRIVATE_SUM,
)

ALGORITHM = Algorithm(
    "implicit ALS computed exactly from sums over clients",
    FedALS,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        client_model=own_vectors,
        client_model_needs=("item_rows", "item_bias"),
    ),
    state=FedALSState,
    kernels=lambda settings: ("als", "als_sums", "sums", "clusters", *noise_kernels(settings)),
    explicit=True,
    paper="Rendle et al. 2022",
    score_new_user=score_new_user,
    in_the_clear="its whole history, and its vector",
)
