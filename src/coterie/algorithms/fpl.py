"""FPL, federated pair-wise learning: users decide which part of their updates they disclose.

Anelli, Deldjoo, Di Noia, Ferrara, Narducci. User-controlled federated matrix factorization for
recommender systems. Journal of Intelligent Information Systems, 2022 (Section 4). Item vectors are
on the server; the vector of a user is on the user's device.

    Distribution to devices    S sends Q and b to the users U- of the round
    Federated optimisation     each draws T triples (u, i, j) of its own, i chosen and j not, and
                               for each, by Eqs. 3 to 5,
                                   e    = 1 / (1 + exp(x)),   x = b_i + p_u . q_i - b_j - p_u . q_j
                                   dp_u = e (q_i - q_j) - reg_user p_u
                                   dq_i = e p_u - reg_positive q_i     db_i = e - reg_bias b_i
                                   dq_j = -e p_u - reg_negative q_j    db_j = -e - reg_bias b_j
                               p_u <- p_u + rate dp_u (Eq. 6)
    Transmission to server     every (dq_j, db_j); of (dq_i, db_i) only a share pi, by a coin for
                               every triple
    Global aggregation         Q <- Q + rate sum_u dQ_u, the same for b (Eq. 7)

Two readings of Eq. 6 (`reading`): in the authors' code a user's vector moves from triple to triple
while the items do not change; literally it does not change either, and moves once by the sum. T is
the same for all users: int(X+ / |U|) in the plus modes.

Two lengths of an epoch (`schedule`): Section 5.2 has |U-| T rpe = X+, as many triples as an epoch
of BPR-MF. The authors' code has int(X+ / |U-|) rounds whatever T is, so an epoch of a plus mode
trains on T times as many triples. Table 4 counts the latter.

pi is a disclosure rate, not a privacy guarantee: the sign of an update tells positive from negative
items, and items that are never sent reveal something too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from coterie import kernels
from coterie.algorithms import clustering as clusters
from coterie.algorithms.algorithm import Algorithm
from coterie.core import parallel, streams
from coterie.core.records import Record
from coterie.core.settings import SearchSpace
from coterie.federated.disclosure import Disclosing, hidden, rates
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
    SequentialRounds,
    Sums,
    World,
    unweighted,
)
from coterie.federated.privacy.clipping import clipped
from coterie.federated.privacy.settings import clipping_kernels
from coterie.federated.robust.multiples import Multiples
from coterie.models.factors import rows, rows_of, score_by_pairs
from coterie.models.new_user import NewUser
from coterie.models.private_factors import PrivateFactors
from coterie.types import Floats, Ints, Longs, Message, Sizes, Updates


class FPL(Disclosing):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.003, 0.5),
        "reg_user": (1e-4, 0.1),
        "reg_positive": (1e-4, 0.1),
        "reg_negative": (1e-4, 0.1),
        "reg_bias": [0.0, 0.01],
        "disclosure": [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0],
        "start_scale": [0.01, 0.03, 0.1],
        "embedding_size": [10, 20, 50],
    }

    embedding_size: int = Field(16, ge=1, le=4096)
    """Length of every user and item row."""
    epochs: int = Field(50, ge=1)
    """Epochs; `schedule` says how many rounds each has."""
    users_per_round: int = Field(0, ge=0)
    """Users selected in a round; 0 selects all."""
    triples: int = Field(0, ge=0)
    """Triples a user trains on in a round (T); 0 means the mean length of a history, X+ / |U|."""
    rounds_an_epoch: int = Field(0, ge=0)
    """Rounds in an epoch (rpe); 0 means as many as `schedule` says."""
    schedule: Literal["triples", "authors"] = "triples"
    """Rounds in an epoch: as many as train on X+ triples, as in the paper, or X+ / |U-| whatever T
    is, as in the authors' code. The modes with T = 1 do not change."""
    learning_rate: float = Field(0.05, gt=0)
    """Step size, on the device and on the server."""
    reg_user: float | None = Field(None, ge=0)
    """Regularisation of the user's row; by default 1/20 of the learning rate, as in the paper."""
    reg_positive: float | None = Field(None, ge=0)
    """Regularisation of the row of the chosen item; 1/20 of the learning rate by default."""
    reg_negative: float | None = Field(None, ge=0)
    """Regularisation of the row of the other item; 1/200 of the learning rate by default."""
    reg_bias: float = Field(0.0, ge=0)
    """Regularisation of item biases; the paper uses none."""
    start_scale: float = Field(0.1, ge=0)
    """Standard deviation of the initial values of rows."""
    bias_start_scale: float = Field(0.0, ge=0)
    """Standard deviation of the initial item biases; 0.1 in the authors' code."""
    reading: Literal["authors", "literal"] = "authors"
    """Whether a user's vector moves from triple to triple, as in the authors' code, or once per
    round, as in Eq. 6."""

    @property
    def n_steps(self) -> int:
        return self.epochs

    def selecting_more(self, factor: float) -> Self:
        return self.model_copy(update={"users_per_round": math.ceil(self.users_per_round * factor)})

    def regularisation(self) -> tuple[float, float, float]:
        """Of the rows of the user, the chosen item and the other item (Section 5.3)."""
        rate = self.learning_rate
        user = rate / 20 if self.reg_user is None else self.reg_user
        positive = rate / 20 if self.reg_positive is None else self.reg_positive
        negative = rate / 200 if self.reg_negative is None else self.reg_negative
        return user, positive, negative


@dataclass(frozen=True, slots=True)
class FPLState(Record):
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    item_rows: Floats  # Q
    item_bias: Floats  # b
    user_rows: Floats  # p, on the devices


# Rounds and epochs (Section 5.2)


def triples(world: World[FPL]) -> int:
    """T"""
    return world.settings.triples or max(world.n_positives // n_members(world), 1)


def n_members(world: World[FPL]) -> int:
    return max(world.n_members, 1)


def users_per_round(world: World[FPL]) -> int:
    """|U-|"""
    return min(world.settings.users_per_round or n_members(world), n_members(world))


def rounds_an_epoch(world: World[FPL]) -> int:
    """rpe: |U-| * T * rpe = X+, or |U-| * rpe = X+ with the authors' schedule."""
    T = 1.0 if world.settings.schedule == "authors" else triples_not_rounded(world)
    rpe = round(world.n_positives / (users_per_round(world) * T), 9)
    return world.settings.rounds_an_epoch or max(int(rpe), 1)


def triples_not_rounded(world: World[FPL]) -> float:
    """T, where X+ / |U| may be a fraction."""
    return world.settings.triples or world.n_positives / n_members(world)


def init(world: World[FPL]) -> FPLState:
    settings = world.settings
    size = settings.embedding_size
    return FPLState(
        rows(world.n_items, size, world.seed, "items", settings.start_scale),
        start_biases(world),
        ON_CLIENTS,
    )


def start_biases(world: World[FPL]) -> Floats:
    """b before the first round: zero, or Gaussian as in the authors' code."""
    scale = world.settings.bias_start_scale
    if not scale:
        return np.zeros(world.n_items, np.float32)
    return rows(world.n_items, 1, world.seed, "biases", scale)[:, 0]


def init_clients(world: World[FPL], node: NodeData) -> PrivateState:
    """The initial vector of every user."""
    settings = world.settings
    return {
        "user_rows": rows_of(
            node.users, settings.embedding_size, node.seed, "users", settings.start_scale
        )
    }


def disclosed(world: World[FPL], node: NodeData, users: Ints, rounds: Longs) -> Floats:
    """pi of each user in its round. Users choose it for themselves."""
    return rates(world.settings, node, users, 1 + rounds // rounds_an_epoch(world))


# Distribution to devices


def sample(world: World[FPL], state: FPLState, t: int) -> Ints:
    """U-"""
    n = users_per_round(world)
    if n == 1:
        return one_user(world, range(t, t + 1))
    return clusters.draw_users(world.present, n, world.seed, t)


def one_user(world: World[FPL], rounds: range) -> Ints:
    """The only user of each of some rounds, in constant time per round."""
    members = np.flatnonzero(world.present).astype(np.int32)
    ts = np.arange(rounds.start, rounds.stop)
    words = streams.words(streams.keys(world.seed, "one user", last=ts), 0)
    return members[streams.below(words, np.full(len(rounds), len(members)))]


def broadcast(world: World[FPL], state: FPLState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows, "item_bias": state.item_bias}, {})


# Federated optimisation and transmission to server


def client_update(world: World[FPL], message: Message, node: NodeData) -> ClientResult:
    """Eqs. 3 to 6 on every device. Its vector and what its coin does not disclose stay there."""
    settings = world.settings
    history = node.training
    n = len(message.users)
    T = triples(world)
    positions = node.positions(message.users)
    kernel = kernels.load("fpl")
    keys = streams.keys(node.seed, "triples", message.round, last=message.users)
    pi = disclosed(world, node, message.users, np.full(n, message.round))
    n_rows = np.empty(n, np.int64)
    drawn = Drawn.room_for(n, T)
    parallel.over(
        lambda first, last: kernel.draw(
            positions,
            history.positives.offsets,
            history.positives.items,
            hidden(node),
            history.excluded.offsets,
            history.excluded.items,
            world.n_items,
            pi,
            keys,
            first,
            last,
            n_rows,
            *drawn.arrays(),
        ),
        n,
        32,
    )
    offsets = np.concatenate([[0], np.cumsum(n_rows)])
    items = np.empty(offsets[-1], np.int32)
    changes = np.empty((offsets[-1], settings.embedding_size + 1), np.int32)
    kernels.load("samples").pack(np.arange(n) * 2 * T, offsets, drawn.rows.reshape(-1), items)
    after = np.empty_like(message.private_state["user_rows"])
    regularisation = settings.regularisation()
    parallel.over(
        lambda first, last: kernel.train(
            offsets,
            drawn.places,
            drawn.chosen,
            drawn.others,
            drawn.disclosed,
            message.private_state["user_rows"],
            message.common["item_rows"],
            message.common["item_bias"],
            settings.learning_rate,
            *regularisation,
            settings.reg_bias,
            settings.reading == "literal",
            first,
            last,
            after,
            changes,
        ),
        n,
        8,
    )
    none = np.empty((n, 0), np.int32)
    updates = Updates(
        users=message.users,
        samples=np.full(n, T, np.int64),
        offsets=offsets,
        items=items,
        item_rows=changes,
        user_rows=none,
        dense=none,
    )
    # A user who chose every item has no triples, and sends no update.
    sending = np.flatnonzero(n_rows > 0)
    return updates if len(sending) == n else updates.take(sending), {"user_rows": after}


@dataclass(frozen=True, slots=True)
class Drawn:
    """The triples of a cohort, and which items each user sends."""

    rows: Ints  # (users, 2 T) the items that are sent, ascending
    places: Ints  # (users, 2 T) positions in `rows`: of every j, then of every disclosed i
    chosen: Ints  # (users, T) i
    others: Ints  # (users, T) j
    disclosed: Ints  # (users, T) whether the coin lets i be sent

    @classmethod
    def room_for(cls, n: int, T: int) -> Drawn:
        """Arrays for a kernel to fill."""
        return cls(*(np.empty((n, width), np.int32) for width in (2 * T, 2 * T, T, T, T)))

    def arrays(self) -> tuple[Ints, ...]:
        return self.rows, self.places, self.chosen, self.others, self.disclosed


def sizes(world: World[FPL], state: FPLState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1] + 1, 0, 0)


# Global aggregation


def add_up(world: World[FPL], message: Message, updates: Updates) -> Sums:
    """sum_u of dQ_u and db_u, over the items that at least one user sent."""
    sent = np.flatnonzero(np.bincount(updates.items, minlength=world.n_items))
    position = np.zeros(world.n_items, np.int32)
    position[sent] = np.arange(len(sent), dtype=np.int32)
    total = np.zeros((len(sent), updates.item_rows.shape[1]), np.int64)
    touched = np.zeros(len(sent), np.int64)
    unit_weights = np.ones(len(updates), np.int64)
    positions = position[updates.items]
    kernel = kernels.load("sums").by_samples
    parallel.over(
        lambda low, high: kernel(
            updates.offsets, positions, updates.item_rows, unit_weights, low, high, total, touched
        ),
        len(sent),
    )
    return {"sent": sent, "items": total}


def combine(first: Sums, second: Sums) -> Sums:
    """The sums over two groups of users, over the items that at least one group sent."""
    sent = np.union1d(first["sent"], second["sent"])
    total = np.zeros((len(sent), first["items"].shape[1]), np.int64)
    for part in (first, second):
        total[np.searchsorted(sent, part["sent"])] += part["items"]
    return {"sent": sent, "items": total}


def aggregate(
    world: World[FPL], state: FPLState, sums: Sums, accepted: Accepted, t: int
) -> FPLState:
    """Eq. 7"""
    after = replace(state, item_rows=state.item_rows.copy(), item_bias=state.item_bias.copy())
    rate = world.settings.learning_rate
    kernel = kernels.load("fpl").apply
    parallel.over(
        lambda low, high: kernel(
            sums["sent"], sums["items"], rate, low, high, after.item_rows, after.item_bias
        ),
        len(sums["sent"]),
    )
    return after


# Secure aggregation, which must hide which items were sent: a row for every item


def rows_of_all_items(world: World[FPL], sums: Sums) -> Sums:
    items = np.zeros((world.n_items, sums["items"].shape[1]), np.int64)
    items[sums["sent"]] = sums["items"]
    return {"items": items}


def rows_that_changed(world: World[FPL], sums: Sums) -> Sums:
    sent = np.flatnonzero(sums["items"].any(axis=1))
    return {"sent": sent, "items": sums["items"][sent]}


# Rounds of one user each, in one kernel call


def sequential(
    world: World[FPL], node: NodeData, state: FPLState, rounds: range
) -> SequentialRounds[FPLState] | None:
    """The same rounds, bit for bit. Each update changes the item rows before the next round."""
    settings = world.settings
    if users_per_round(world) != 1 or settings.client_dropout:
        return None
    users = one_user(world, rounds)
    history = node.training
    ts = np.arange(rounds.start, rounds.stop)
    round_keys = streams.keys(node.seed, "triples", last=ts)
    keys = streams.mix_array(round_keys ^ (users.astype(np.uint64) + np.uint64(streams.GOLDEN)))
    after = replace(
        state,
        item_rows=state.item_rows.copy(),
        item_bias=state.item_bias.copy(),
        user_rows=state.user_rows.copy(),
    )
    n_rows = np.empty(len(rounds), np.int64)
    faults = np.empty(len(rounds), np.int64)
    kernels.load("fpl").sequential(
        node.positions(users),
        keys,
        history.positives.offsets,
        history.positives.items,
        hidden(node),
        history.excluded.offsets,
        history.excluded.items,
        disclosed(world, node, users, ts),
        triples(world),
        settings.learning_rate,
        *settings.regularisation(),
        settings.reg_bias,
        settings.reading == "literal",
        after.user_rows,
        after.item_rows,
        after.item_bias,
        n_rows,
        faults,
    )
    return SequentialRounds(after, users, n_rows, faults)


def model(world: World[FPL], state: FPLState) -> PrivateFactors:
    return PrivateFactors(state.user_rows, state.item_rows, state.item_bias)


# Costs (Section 6.3)


def vectors_per_epoch(world: World[FPL], node: NodeData) -> float:
    """CCE = rpe |U-| (|I| + T (1 + pi)), with the mean initial pi of all users."""
    return rounds_an_epoch(world) * users_per_round(world) * _vectors_per_client(world, node)


def _vectors_per_client(world: World[FPL], node: NodeData) -> float:
    users = np.flatnonzero(world.members).astype(np.int32)
    initial = disclosed(world, node, users, np.zeros(len(users), np.int64))
    pi = float(initial.mean(dtype=np.float64))
    return world.n_items + triples(world) * (1 + pi)


def user_choices(world: World[FPL], node: NodeData, epoch: int) -> dict[str, Floats]:
    return {"disclosure": rates(world.settings, node, node.users, np.full(len(node.users), epoch))}


def not_private(world: World[FPL]) -> str:
    """Why the settings rule out a privacy budget."""
    if world.settings.triples and world.settings.rounds_an_epoch:
        return ""
    return (
        "triples or rounds_an_epoch is 0, and then follows from the number of interactions, which "
        "is not public (set both)"
    )


def bounds(world: World[FPL]) -> Multiples:
    """With one triple, most clients have little left to learn, and a few send long rows.

    With more, the server adds up rows that point in many directions. Colluders add up in one, so
    that they must not be longer than most honest clients, nor set the length of an item's row.
    """
    if triples(world) == 1:
        return Multiples(rows=200, updates=200)
    return Multiples(rows=1.25, updates=1, agreeing=0.014)


EXCHANGE = clipped(
    Exchange(
        broadcast=broadcast,
        client_update=client_update,
        aggregate=add_up,
        server_update=aggregate,
        sizes=sizes,
        fast=FastPaths(combine=combine, sequential_rounds=sequential),
        secure_sum=unweighted(
            by_item=("items",), to_table=rows_of_all_items, from_table=rows_that_changed
        ),
        bounds=bounds,
    ),
    PrivateSum(
        releases=lambda world: world.settings.epochs * rounds_an_epoch(world),
        cohort_size=users_per_round,
        drawn_anew=True,
    ),
)
FEDERATION = Federation(
    init=init,
    sample=sample,
    exchanges=(EXCHANGE,),
    model=model,
    init_clients=init_clients,
    rounds_per_step=rounds_an_epoch,
    vectors_per_step=vectors_per_epoch,
    user_choices=user_choices,
    not_private=not_private,
)


class SFPL(FPL):
    users_per_round: int = Field(1, ge=0)
    """Users selected in a round; 0 selects all."""
    triples: int = Field(1, ge=0)
    """Triples a user trains on in a round (T); 0 means the mean length of a history, X+ / |U|."""


class SFPLPlus(FPL):
    users_per_round: int = Field(1, ge=0)
    """Users selected in a round; 0 selects all."""


class PFPL(FPL):
    triples: int = Field(1, ge=0)
    """Triples a user trains on in a round (T); 0 means the mean length of a history, X+ / |U|."""


def score_new_user(model: PrivateFactors, user: NewUser, settings: FPL) -> Floats:
    """A new user fits a row to all pairs of their items and others, and sends nothing."""
    return score_by_pairs(model, user, settings.regularisation()[0])


def _mode(summary: str, settings: type[FPL]) -> Algorithm:
    return Algorithm(
        summary,
        settings,
        FEDERATION,
        state=FPLState,
        kernels=lambda settings: (
            "fpl",
            "samples",
            "sums",
            "clusters",
            *clipping_kernels(settings),
        ),
        paper="Anelli et al. 2022",
        score_new_user=score_new_user,
        popularity_prior=1.0,
        in_the_clear="rows of the items it compared, and of a share of those it chose (disclosure)",
    )


SEQUENTIAL = _mode("pair-wise learning, one user and one triple per round", SFPL)
SEQUENTIAL_PLUS = _mode("pair-wise learning, one user per round", SFPLPlus)
PARALLEL = _mode("pair-wise learning, all users in every round, one triple each", PFPL)
PARALLEL_PLUS = _mode("pair-wise learning, all users in every round", FPL)
