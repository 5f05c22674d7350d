"""FedMVMF: federated collaborative filtering with features of users, kept on devices, and of items.

Flanagan, Oyomno, Grigorievskiy, Tan, Khan, Ammad-ud-din. Federated multi-view matrix factorization
for personalized recommendations. ECML PKDD 2020, arXiv:2004.04256. Three views share their factors:
R ~ P Q^T, X ~ P U^T and Y ~ Q V^T, where R are the interactions, X the features of users and Y
those of items:

    J = sum_ui c_ui (r_ui - p_u . q_i)^2
        + lambda1 [sum_ud (x_ud - p_u . u_d)^2 + sum_id (y_id - q_i . v_d)^2]
        + lambda2 (|P|^2 + |Q|^2 + |U|^2 + |V|^2)
    c_ui = 1 + alpha r_ui,  r_ui = 1 if u did i, else 0

    foreach round
        S sends Q and U to the users of the round
        each solves for its own vector, exactly
            p_u = (Q^T C_u Q + lambda1 U^T U + lambda2 I)^-1 (Q^T C_u r_u + lambda1 U^T x_u)
        and sends for every item           f(u, i) = c_ui (r_ui - p_u . q_i) p_u
        and for every feature of users     f(u, d) = (x_ud - p_u . u_d) p_u
        S takes a step of Adam on U        dJ/du_d = -2 lambda1 sum_u f(u, d) + 2 lambda2 u_d
        S sends Q to I, the server that has Y and V
        I sends back for every item        f(i)    = lambda1 sum_d (y_id - q_i . v_d) v_d
        and takes a step of Adam on V
            dJ/dv_d = -2 lambda1 sum_i (y_id - q_i . v_d) q_i + 2 lambda2 v_d
        S takes a step of Adam on Q        dJ/dq_i = -2 (sum_u f(u, i) + f(i)) + 2 lambda2 q_i

All gradients of a round are those at its start. p_u and x_u never leave the device, Y never leaves
the server I, and I receives nothing from devices. But the updates reveal p_u and x_u: rows of the
features that a user has are other multiples of p_u than those of the rest, as FCF's item rows are.
Do not call this private. S knows which features exist, not which user has them.

Deviations. Features are not the paper's. A user's are one-hot, one for each name and value (an age
of 25), without names of more than `most_values` values (zip codes). An item's are the letter
trigrams that towers read (title, categories, body), scaled to length one. Without features of users
or texts of items that view is empty, and the rest works the same. With fewer users than all, the
gradients of a round are those of its users, and of all of Y and lambda2. A user without history
does not take part and has p_u = 0, whatever the features.

Fixed point. f(u, i) is sent in units of 1 + alpha, like FCF's rows. f(u, d) is sent without
lambda1, which S knows: then it is as large as the row of a positive item, and fits wherever that
does, unless p_u . u_d is far above one; then the update is refused. f(i) has the units of f(u, i),
and is added to their sum as one more integer.

Settings. Settings that FCF has too have FCF's defaults. The authors tuned theirs, lambda1 among
them, and we could not confirm their numbers; STTFedRec says only that it used theirs. `side`
(lambda1) is the best on the validation part of MovieLens-100K, of 0, 0.1, 0.3, 1, 3, 10, 20, 30 and
100: NDCG@10 0.531, mean of three seeds, against 0.527 without features, which is within the
deviation of seeds; from 20 on it is worse than without. With short histories, a larger `side` helps
(tested). `inputs` is that of the towers that STTFedRec compares it with; `most_values` is ours, and
excludes only zip codes on MovieLens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import Field
from scipy import sparse

from coterie.algorithms import fcf, fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.fcf import AdamRows
from coterie.algorithms.local import least_squares
from coterie.core.records import Record
from coterie.core.settings import SearchSpace
from coterie.data.content import Content
from coterie.data.text import Ragged
from coterie.data.text_features import features, read
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import (
    AGGREGATION,
    ON_CLIENTS,
    RECOMMENDATION,
    Accepted,
    Arrays,
    ClientResult,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    Relay,
    SecureSum,
    SinglePass,
    Sums,
    World,
)
from coterie.models.factors import rows
from coterie.models.private_factors import PrivateFactors
from coterie.types import SCALE, Doubles, Floats, Ints, Longs, Message, Rows, Sizes, Updates

# S, the server that devices communicate with, has the role AGGREGATION; I has RECOMMENDATION.

FINE_UNIT = 2.0**-40
"""The unit of gradients by V, which the server I computes alone: far below single precision."""
LARGEST = 2.0**62
"""Gradients are clipped to this many units, so that sums fit into 64 bits."""


class FedMVMF(fcf.FCF):
    search_space: ClassVar[SearchSpace] = {
        "learning_rate": (0.003, 0.5),
        "alpha": (0.3, 50.0),
        "reg": (0.1, 100.0),
        "side": (0.1, 100.0),
        "embedding_size": [10, 20, 50],
    }

    side: float = Field(3.0, ge=0)
    """Weight of the features of users and items, relative to interactions (lambda1)."""
    inputs: int = Field(1100, ge=1, le=1 << 20)
    """Number of inputs that the letter trigrams of item texts are hashed into."""
    most_values: int = Field(100, ge=1)
    """User features with more distinct values are left out."""


@dataclass(frozen=True, slots=True)
class FedMVMFState(Record):
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    roles: ClassVar = {
        AGGREGATION: (
            "item_rows",
            "first_moment",
            "second_moment",
            "user_view",
            "user_view_first",
            "user_view_second",
            "steps",
            "item_sums",
        ),
        RECOMMENDATION: (
            "item_view",
            "item_view_first",
            "item_view_second",
            "item_view_steps",
            "answer",
        ),
    }
    item_rows: Floats  # Q (items, k)
    first_moment: Floats  # Adam's, as Q
    second_moment: Floats
    user_view: Floats  # U (features of users, k)
    user_view_first: Floats
    user_view_second: Floats
    steps: int  # of Adam on Q and U
    item_sums: Longs  # (items, k) sum_u f(u, i); empty between rounds, and without any update
    item_view: Floats  # V (inputs, k)
    item_view_first: Floats
    item_view_second: Floats
    item_view_steps: int
    answer: Longs  # (items, k) f(i); empty between rounds
    user_rows: Floats  # P, on the devices


# X, which devices have, and Y, which the server I has


def content_of(training: TrainingSet, settings: FedMVMF) -> tuple[Content, Content]:
    """Texts of items for the server I, and one-hot features of users for devices."""
    nothing = Ragged(Rows(np.zeros(1, np.int64), np.empty(0, np.int32)), np.empty(0, np.float32))
    users, n = one_hot(training, settings.most_values)
    words = Rows(np.arange(n + 1), np.arange(n, dtype=np.int32))
    items = trigrams(training, settings.inputs)
    return (
        Content(items, nothing, None, nothing.rows, "bags"),
        Content(None, nothing, users, words, "bags"),
    )


def trigrams(training: TrainingSet, n_inputs: int) -> Ragged | None:
    """Letter trigrams of the texts of every item, scaled to length one; None without texts."""
    if training.item_texts is None:
        return None
    bags = read(training, "bags", n_inputs, 0, "titles").items
    assert bags is not None
    owner = np.repeat(np.arange(len(bags)), bags.rows.counts)
    lengths = np.sqrt(np.bincount(owner, bags.weights.astype(np.float64) ** 2, len(bags)))
    return Ragged(bags.rows, (bags.weights / lengths[owner]).astype(np.float32))


def one_hot(training: TrainingSet, most_values: int) -> tuple[Ragged, int]:
    """The one-hot features of every user, and the number of distinct features."""
    columns = zip(*features(training), strict=True)
    coded = [np.unique(column, return_inverse=True) for column in columns]
    fields = [(len(values), code) for values, code in coded if len(values) <= most_values]
    first = np.cumsum([0, *(n for n, _ in fields)])
    indices = [start + code for start, (_, code) in zip(first, fields, strict=False)]
    flat = np.empty(0, np.int32)
    if indices:
        flat = np.stack(indices, axis=1).ravel().astype(np.int32)
    offsets = np.arange(training.n_users + 1) * len(indices)
    return Ragged(Rows(offsets, flat), np.ones(len(flat), np.float32)), int(first[-1])


def init(world: World[FedMVMF]) -> FedMVMFState:
    s = world.settings
    Q = fcf.init(world).item_rows
    n_features = 0 if world.client_content is None else len(world.client_content.letters.counts)
    n_inputs = 0 if world.content is None or world.content.items is None else s.inputs
    U = rows(n_features, s.embedding_size, world.seed, "features of people", s.start_scale)
    V = rows(n_inputs, s.embedding_size, world.seed, "features of items", s.start_scale)
    return FedMVMFState(
        *AdamRows.begin(Q),
        *AdamRows.begin(U),
        steps=0,
        item_sums=no_gradients(Q),
        item_view=V,
        item_view_first=np.zeros_like(V),
        item_view_second=np.zeros_like(V),
        item_view_steps=0,
        answer=no_gradients(Q),
        user_rows=ON_CLIENTS,
    )


def no_gradients(Q: Floats) -> Longs:
    return np.empty((0, Q.shape[1]), np.int64)


# S sends Q and U


def broadcast(world: World[FedMVMF], state: FedMVMFState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_rows": state.item_rows, "dense": state.user_view}, {})


# Each solves for its own vector, and sends a row for every item and every feature


def solve(world: World[FedMVMF], message: Message, node: NodeData) -> tuple[Rows, Rows, Floats]:
    """The features and histories of the users of a message, and p_u."""
    U = message.common["dense"]
    side = world.settings.side
    own = features_of(message, node)
    ones = np.ones(len(own.items))
    x = sparse.csr_array((ones, own.items, own.offsets), (len(message.users), len(U)))
    terms = fcf.SideTerms(side * least_squares.gram(U), side * (x @ U.astype(np.float64)))
    return own, *fcf.solve(world, message, node, terms)


def features_of(message: Message, node: NodeData) -> Rows:
    """x_u of every user of a message; empty rows where a node has no features."""
    content = node.training.content
    if content is None or content.users is None:
        return Rows(np.zeros(len(message.users) + 1, np.int64), np.empty(0, np.int32))
    return content.users.rows.of_users(node.positions(message.users))


def client_update(world: World[FedMVMF], message: Message, node: NodeData) -> ClientResult:
    """f(u, i) for every item as item rows, and f(u, d) for every feature as the dense part."""
    own, history, P = solve(world, message, node)
    dense = fcf.gradient_rows(P, own, message.common["dense"], 1.0).reshape(len(P), -1)
    return fcf.update(world, message, history, P, dense), {"user_rows": P}


def sizes(world: World[FedMVMF], state: FedMVMFState) -> Sizes:
    return Sizes(world.n_items, state.item_rows.shape[1], 0, state.user_view.size)


def chunk_size(world: World[FedMVMF], state: FedMVMFState) -> int:
    """An update has a row for every item and feature: those of a cohort may not fit into memory."""
    entries = world.n_items * (1 + state.item_rows.shape[1]) + state.user_view.size
    update_bytes: int = 4 * entries
    return max(fcf.UPDATE_MEMORY // update_bytes, 1)


# S adds up, and takes a step of Adam on U


def add_up(world: World[FedMVMF], message: Message, updates: Updates) -> Sums:
    """sum_u f(u, i) and sum_u f(u, d)"""
    U = message.common["dense"]
    of_features = fedavg.dense_sums(updates.samples, updates.dense)["dense"].reshape(U.shape)
    return fcf.add_up(world, message, updates) | {"dense": of_features}


def single_pass(world: World[FedMVMF], message: Message, node: NodeData) -> SinglePass | None:
    """The same sums, bit for bit, without writing the updates to memory."""
    own, history, P = solve(world, message, node)
    Q = message.common["item_rows"]
    of_items = fcf.summed_gradients(P, history, Q, fcf.lowest_confidence(world))
    of_features = fcf.summed_gradients(P, own, message.common["dense"], 1.0)
    if of_items is None or of_features is None:
        return None
    return fcf.accept_all(world, message, {"items": of_items, "dense": of_features}, P)


def move_user_view(
    world: World[FedMVMF], state: FedMVMFState, sums: Sums, accepted: Accepted, t: int
) -> FedMVMFState:
    """The step on U. The step on Q needs f(i): the sums by items are stored until I answers."""
    U = AdamRows(state.user_view, state.user_view_first, state.user_view_second)
    after = fcf.descend_rows(world, U, sums["dense"], world.settings.side / SCALE, state.steps + 1)
    return replace(
        state,
        user_view=after.rows,
        user_view_first=after.first_moment,
        user_view_second=after.second_moment,
        item_sums=sums["items"],
    )


# S sends Q to I, which takes a step of Adam on V


def send_items(world: World[FedMVMF], state: FedMVMFState, t: int) -> tuple[FedMVMFState, Arrays]:
    """Q; no rows if no update was accepted, so that I takes no step."""
    return state, {"item_rows": state.item_rows if len(state.item_sums) else state.item_rows[:0]}


def move_item_view(
    world: World[FedMVMF], state: FedMVMFState, received: Arrays, t: int
) -> FedMVMFState:
    """f(i) and the step on V, both with V before the step."""
    Q = received["item_rows"]
    V = state.item_view
    Y = features_of_items(world)
    if not len(Q):
        return state
    by_items, by_view = side_gradients(Q, V, Y)
    side = world.settings.side
    step = state.item_view_steps + 1
    before = AdamRows(V, state.item_view_first, state.item_view_second)
    total = in_fixed_point(side * by_view, FINE_UNIT)
    after = fcf.descend_rows(world, before, total, FINE_UNIT, step)
    return replace(
        state,
        item_view=after.rows,
        item_view_first=after.first_moment,
        item_view_second=after.second_moment,
        item_view_steps=step,
        answer=in_fixed_point(side * by_items, fcf.unit_of_rows(world)),
    )


def side_gradients(Q: Floats, V: Floats, Y: sparse.csr_array) -> tuple[Doubles, Doubles]:
    """(Y - Q V^T) V and (Y - Q V^T)^T Q, without computing Q V^T.

    Without BLAS, whose rounding depends on the number of threads.
    """
    q = Q.astype(np.float64)
    v = V.astype(np.float64)
    by_items = Y @ v - np.einsum("ik,kl->il", q, least_squares.gram(V), optimize=False)
    by_view = Y.T @ q - np.einsum("dk,kl->dl", v, least_squares.gram(Q), optimize=False)
    return by_items, by_view


def features_of_items(world: World[FedMVMF]) -> sparse.csr_array:
    """Y (items, inputs); (items, 0) without texts."""
    bags = None if world.content is None else world.content.items
    if bags is None:
        return sparse.csr_array((world.n_items, 0))
    shape = (world.n_items, world.settings.inputs)
    weights = bags.weights.astype(np.float64)
    return sparse.csr_array((weights, bags.rows.items, bags.rows.offsets), shape)


def in_fixed_point(gradients: Doubles, unit: float) -> Longs:
    """In fixed point, like sums over devices."""
    return np.clip(np.rint(gradients / unit), -LARGEST, LARGEST).astype(np.int64)


# I answers, and S takes a step of Adam on Q


def send_answer(world: World[FedMVMF], state: FedMVMFState, t: int) -> tuple[FedMVMFState, Arrays]:
    """f(i), under the name `cut`."""
    return replace(state, answer=state.answer[:0]), {"cut": state.answer}


def move_items(
    world: World[FedMVMF], state: FedMVMFState, received: Arrays, t: int
) -> FedMVMFState:
    """The step on Q. The sums over clients are deleted."""
    if not len(received["cut"]):
        return state
    Q = AdamRows(state.item_rows, state.first_moment, state.second_moment)
    step = state.steps + 1
    total = state.item_sums + received["cut"]
    after = fcf.descend_rows(world, Q, total, fcf.unit_of_rows(world), step)
    return replace(
        state,
        item_rows=after.rows,
        first_moment=after.first_moment,
        second_moment=after.second_moment,
        steps=step,
        item_sums=no_gradients(after.rows),
    )


def model(world: World[FedMVMF], state: FedMVMFState) -> PrivateFactors:
    return PrivateFactors(state.user_rows, state.item_rows, np.zeros(world.n_items, np.float32))


TRAIN = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=add_up,
    server_update=move_user_view,
    sizes=sizes,
    fast=FastPaths(chunk_size=chunk_size, single_pass=single_pass),
    role=AGGREGATION,
    secure_sum=SecureSum(by_item=("items",)),
    bounds=fcf.EXCHANGE.bounds,
)
SEND_ITEMS = Relay(
    sender=AGGREGATION, receiver=RECOMMENDATION, send=send_items, receive=move_item_view
)
SEND_ANSWER = Relay(
    sender=RECOMMENDATION, receiver=AGGREGATION, send=send_answer, receive=move_items
)

ALGORITHM = Algorithm(
    "federated multi-view matrix factorisation: FCF with features of users and items",
    FedMVMF,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(TRAIN, SEND_ITEMS, SEND_ANSWER),
        model=model,
        init_clients=fcf.init_clients,
        content=content_of,
    ),
    state=FedMVMFState,
    kernels=("fcf", "als", "sums", "clusters"),
    paper="Flanagan et al. 2020",
    # Features of the new user are not read: p_u is that of FCF.
    score_new_user=fcf.score_new_user,
    in_the_clear=fcf.IN_THE_CLEAR,
)
