"""STTFedRec: two towers, of which a device trains only the one that reads its user.

Qin, Zhang, Liu, Qian. Split two-tower model for efficient and privacy-preserving cross-device federated recommendation. 2022
(Section 3.3). Three roles: devices, a recommendation server (item data, item tower) and an aggregation server (user tower).

    Step 1  initialisation            both towers from N(0, 0.1); K users for the round
    Step 2  obfuscated item request   a device asks the recommendation server for T items: a share rho of them it did not click
                                      I_k = M_v(V_k, Theta_v)                                               (6)
    Step 3  local training            u_k = M_u(x_k, Theta_u)                                               (7)
                                      L_k = -1/T sum_j r_j log softmax_j(cos(u_k, i_kj))                    (8)
                                      g_k = dL_k / dTheta_u                                                 (9)
    Step 4  aggregation               the aggregation server learns the mean of g_k                         (12)
    Step 5  user tower                Theta_u <- Theta_u - rate m / (sqrt(v) + tau)                         (13)
    Step 6  item tower                the same, by what comes back from the items' vectors                  (14, 15)

Deviations. The paper sends the mean of the losses back to the recommendation server, which cannot be differentiated there: a device
sends dL_k / di_kj for the items it asked for, the aggregation server adds them up and hands on the sum, and the recommendation server
goes back from it through its tower. That is exact: `fl-dssm` takes the same steps (a test says so). Eqs. 13 and 15 add a step along
the slope of a loss, and put tau into the root or beside it: here the step is subtracted, and tau stands beside.

The aggregation server does not learn which items it adds up: the recommendation server numbers those of a round anew (slots).
Gradients travel in units of 2^-24, since their entries are small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from coterie.algorithms import clustering as clusters
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.two_tower import requests, slots
from coterie.algorithms.two_tower.requests import Requests, user_texts
from coterie.algorithms.two_tower.settings import FederatedTowers, SplitTowers
from coterie.algorithms.two_tower.slots import Slots
from coterie.algorithms.two_tower.training import (
    NON_FINITE,
    Gradients,
    InputRows,
    TowerOps,
    TowerState,
    fedadam,
    mean_gradient,
    sum_rows_at,
)
from coterie.core import streams
from coterie.core.records import Record
from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.data.text_features import read
from coterie.data.training_set import TrainingSet
from coterie.federated.federation import (
    AGGREGATION,
    RECOMMENDATION,
    Accepted,
    AnyFederation,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    Relay,
    SecureSum,
    SinglePass,
    Sums,
    World,
)
from coterie.federated.secagg.server import assign_rings
from coterie.models.directions import Directions, quantize_rows
from coterie.types import NOT_FINITE, TOO_LARGE, Floats, Ints, Longs, Message, Sizes, Updates


@dataclass(frozen=True, slots=True)
class STTFedRecState(Record):
    roles: ClassVar = {
        RECOMMENDATION: ("item_tower", "item_mean", "item_square", "askers", "asked"),
        AGGREGATION: ("user_tower", "user_mean", "user_square", "cut", "heard", "merged"),
    }
    user_tower: Floats  # Theta_u
    user_mean: Floats
    user_square: Floats
    item_tower: Floats  # Theta_v
    item_mean: Floats
    item_square: Floats
    askers: Ints  # (n,) who asked in this round; nobody between rounds
    asked: Ints  # (n, T) for what, ascending; -1 first where there are fewer
    cut: Longs  # (slots, k) the sum of slopes by the items' vectors, in units; empty between rounds
    heard: int  # of how many users
    merged: Ints  # (slots,) one number for an item whatever ring asked for it; empty between rounds


# Step 1. Initialisation


def content_of(training: TrainingSet, settings: FederatedTowers) -> tuple[Content, Content]:
    """A device knows the titles of what its user did, and its user; items' texts are the recommendation server's."""
    whole = read(
        training, settings.kind.reads, settings.inputs, settings.most_words, settings.person
    )
    return replace(whole, users=None), replace(whole, items=None)


def init(world: World[FederatedTowers]) -> STTFedRecState:
    towers = TowerOps(world.settings)
    user, item = (towers.start(world.seed, what) for what in ("user tower", "item tower"))
    zeros = np.zeros_like(user)
    T = world.settings.compared
    nobody = np.empty(0, np.int32)
    nothing = np.empty((0, T), np.int32)
    return STTFedRecState(
        user, zeros, zeros, item, zeros, zeros, nobody, nothing, no_gradients(world), 0, nobody
    )


def no_gradients(world: World[FederatedTowers]) -> Longs:
    return np.empty((0, world.settings.widths[-1]), np.int64)


def sample(world: World[FederatedTowers], state: object, t: int) -> Ints:
    """C_k: K users at random."""
    everybody = np.where(world.present, 0, -1).astype(np.int32)
    return clusters.draw(everybody, np.array([world.settings.users_per_round]), world.seed, t)


# Step 2. Obfuscated item request


def invite(world: World[FederatedTowers], state: STTFedRecState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {}, {})


HELD = 1 << 28
"""Bytes of updates that are held at a time."""
DRAWN = WeakCache()
"""What a node's devices drew last."""


def drawn_by(world: World[FederatedTowers], node: NodeData, users: Ints, t: int) -> Requests:
    """V_k and its labels: a device draws the same ones whenever it needs them, and need not draw them twice in a round."""
    what = (world.settings, node.seed, t, users.tobytes())
    last = DRAWN.get(node.users)
    if last is not None and last[0] == what:
        drawn: Requests = last[1]
        return drawn
    keys = streams.keys(node.seed, "request", t, last=users)
    sticky = (
        streams.keys(node.seed, "decoys", last=users)
        if world.settings.request_policy == "sticky"
        else None
    )
    drawn = requests.draw(node.training, node.positions(users), world.settings, keys, sticky)
    DRAWN.put(node.users, (what, drawn))
    return drawn


def request(world: World[FederatedTowers], message: Message, node: NodeData) -> Updates:
    """Numbers of items, and nothing about them; or not even those."""
    drawn = drawn_by(world, node, message.users, message.round)
    n = len(message.users)
    there = drawn.valid & (world.settings.request_policy != "whole")
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    none = np.empty((n, 0), np.int32)
    return Updates(
        message.users,
        once(n),
        offsets,
        drawn.items[there],
        np.empty((offsets[-1], 0), np.int32),
        none,
        none,
    )


def once(n: int) -> Longs:
    """Everybody counts once."""
    return np.ones(n, np.int64)


def sizes_of_requests(world: World[FederatedTowers], state: STTFedRecState) -> Sizes:
    return Sizes(world.n_items, 0, 0, 0)


def put_together(world: World[FederatedTowers], message: Message, updates: Updates) -> Sums:
    """Who asks for what is what this server must know; there is nothing to add up."""
    T = world.settings.compared
    counts = np.minimum(np.diff(updates.offsets), world.settings.compared)
    asked = np.full((len(updates), T), -1, np.int64)
    row = np.repeat(np.arange(len(updates)), counts)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    asked[row, T - np.repeat(counts, counts) + place] = updates.items[
        np.repeat(updates.offsets[:-1], counts) + place
    ]
    return {"asked": asked}


def note(
    world: World[FederatedTowers], state: STTFedRecState, sums: Sums, delegates: Accepted, t: int
) -> STTFedRecState:
    return replace(state, askers=delegates.users, asked=sums["asked"].astype(np.int32))


def numbered(world: World[FederatedTowers], state: STTFedRecState, t: int) -> Slots:
    """The items asked for, numbered anew; for each ring apart, where there are rings."""
    rings = [state.askers]
    if world.settings.secure_aggregation == "ring":
        rings = assign_rings(sample(world, state, t), world.settings.ring_size, world.seed, t)
    askers = [np.flatnonzero(np.isin(state.askers, ring)) for ring in rings]
    return slots.assign_slots(world, state.asked, askers, streams.at(world.seed, "slots", t))


def embed(world: World[FederatedTowers], state: STTFedRecState, cohort: Ints, t: int) -> Message:
    """I_k (Eq. 6): the vectors that each asked for, and their slots."""
    numbers = numbered(world, state, t)
    T = world.settings.compared
    distinct, place = numbers.distinct()
    vectors = vectors_of(world, state, distinct, t)
    if world.settings.request_policy == "whole":
        return Message(
            t,
            cohort,
            {"embeddings": vectors, "slots": np.argsort(numbers.items).astype(np.int32)},
            {},
        )
    given = np.full((len(cohort), T), -1, np.int32)
    places = np.full((len(cohort), T), -1, np.int64)
    askers = np.searchsorted(cohort, state.askers)
    given[askers] = numbers.requested
    places[askers] = np.where(numbers.requested < 0, -1, place[numbers.requested])
    padded = np.vstack([vectors, np.zeros((1, vectors.shape[1]), np.float32)])
    return Message(t, cohort, {}, {"embeddings": padded[places], "slots": given})


def send_slots(
    world: World[FederatedTowers], state: STTFedRecState, t: int
) -> tuple[STTFedRecState, dict[str, np.ndarray]]:
    """Which slots of different rings are one item; not which item."""
    return state, {"slots": merged(world, state, t)[0]}


def merged(world: World[FederatedTowers], state: STTFedRecState, t: int) -> tuple[Ints, Ints]:
    """One number for an item whatever ring asked for it: of every slot, and the item of each number."""
    return numbered(world, state, t).merged(streams.at(world.seed, "merged slots", t))


def receive_slots(
    world: World[FederatedTowers], state: STTFedRecState, told: dict[str, np.ndarray], t: int
) -> STTFedRecState:
    return replace(state, merged=told["slots"])


def vectors_of(world: World[FederatedTowers], state: STTFedRecState, items: Ints, t: int) -> Floats:
    return TowerOps(world.settings).vectors(
        state.item_tower, items_read(world, items, t), catalogue(world)
    )


def items_read(world: World[FederatedTowers], items: Ints, t: int) -> InputRows:
    content = catalogue(world)
    assert content.items is not None
    return InputRows(content.items, items, of_items(world, items, t))


def of_items(world: World[FederatedTowers], items: Ints, t: int) -> np.ndarray:
    """Keys of what dropout hides in the item tower: the same for everybody who asks for an item in a round."""
    return streams.keys(world.seed, "dropout of items", t, last=items)


def catalogue(world: World[FederatedTowers]) -> Content:
    assert world.content is not None  # the recommendation server's own
    return world.content


# Step 3. Local training


def send_tower(
    world: World[FederatedTowers], state: STTFedRecState, cohort: Ints, t: int
) -> Message:
    return Message(t, cohort, {"tower": state.user_tower}, {})


def with_what_they_need(world: World[FederatedTowers], message: Message, node: NodeData) -> Message:
    """Devices that were given all vectors look up those that they need."""
    if "slots" in message.own:
        return message
    drawn = drawn_by(world, node, message.users, message.round)
    vectors, slots = (
        np.concatenate([message.common[name], none]) for name, none in nothing_more(world).items()
    )
    own = {
        "embeddings": vectors[drawn.items],
        "slots": slots[drawn.items],
    }  # -1 reads the last: nothing
    return replace(message, own=own)


def nothing_more(world: World[FederatedTowers]) -> dict[str, np.ndarray]:
    return {
        "embeddings": np.zeros((1, world.settings.widths[-1]), np.float32),
        "slots": np.full(1, -1, np.int32),
    }


def gradients(world: World[FederatedTowers], message: Message, node: NodeData) -> Gradients:
    """Eqs. 7 to 9 for all users of a message: the sum of g_k, and dL_k / di_kj of each, in fixed point."""
    drawn = drawn_by(world, node, message.users, message.round)
    return TowerOps(world.settings).user_gradients(
        message.common["tower"],
        people_read(node, message, drawn),
        own_content(node),
        message.own["embeddings"],
        drawn,
    )


def people_read(node: NodeData, message: Message, drawn: Requests) -> InputRows:
    told = user_texts(own_content(node), node.positions(message.users), drawn.profiles)
    keys = streams.keys(node.seed, "dropout of people", message.round, last=message.users)
    return InputRows(told, np.arange(len(message.users)), keys)


def own_content(node: NodeData) -> Content:
    assert node.training.content is not None  # what devices were told
    return node.training.content


def client_update(world: World[FederatedTowers], message: Message, node: NodeData) -> Updates:
    """One device after the other: everybody's own gradient."""
    message = with_what_they_need(world, message, node)
    message = message.to(
        np.flatnonzero((message.own["slots"] >= 0).any(axis=1))
    )  # who was given nothing says nothing
    given = message.own["slots"]
    k = world.settings.widths[-1]
    size = TowerOps(world.settings).size
    n = len(given)
    cuts = np.empty((*given.shape, k), np.int32)
    dense = np.empty((len(given), size), np.int32)
    for one in range(n):
        by = gradients(world, message.to(np.array([one])), node)
        cuts[one] = fixed(by.second[0])
        dense[one] = fixed(by.first)
    order = np.argsort(given, axis=1, kind="stable")
    slots = np.take_along_axis(given, order, axis=1)
    cuts = np.take_along_axis(cuts, order[:, :, None], axis=1)
    offsets = np.concatenate([[0], np.cumsum((slots >= 0).sum(axis=1))])
    none = np.empty((n, 0), np.int32)
    return Updates(
        message.users, once(n), offsets, slots[slots >= 0], cuts[slots >= 0], none, dense
    )


def fixed(units: Longs) -> Ints:
    """As they travel; what is no number or too large says so, and is refused."""
    bad = np.where(np.abs(units) == NON_FINITE, NOT_FINITE, TOO_LARGE)
    return np.where(np.abs(units) < TOO_LARGE, units, bad).astype(np.int32)


def sizes(world: World[FederatedTowers], state: STTFedRecState | None = None) -> Sizes:
    return Sizes(
        slots.slot_count(world), world.settings.widths[-1], 0, TowerOps(world.settings).size
    )


def chunk_size(world: World[FederatedTowers], state: Any) -> int:
    """An update is as large as a tower: those of a large cohort together can be more than a machine has."""
    return held_at_once(sizes(world).dense + world.settings.compared * world.settings.widths[-1])


def held_at_once(size: int) -> int:
    """How many updates of so many numbers."""
    return max(HELD // (4 * size), 1)


# Step 4. Aggregation


def add_up(world: World[FederatedTowers], message: Message, updates: Updates) -> Sums:
    return {
        "tower": updates.dense.sum(axis=0, dtype=np.int64),
        "cut": by_slot(world, updates.items, updates.item_rows),
    }


def by_slot(world: World[FederatedTowers], at: Ints, rows: np.ndarray) -> Longs:
    """The sum of the rows of every slot."""
    return sum_rows_at(at, rows, sizes(world).items, world.settings.device)


def single_pass(
    world: World[FederatedTowers], message: Message, node: NodeData
) -> SinglePass | None:
    """All devices in one batch: the sum of everybody's gradient is the gradient of the sum."""
    message = with_what_they_need(world, message, node)
    given = message.own["slots"]
    n = len(message.users)
    if not (given >= 0).any(axis=1).all():
        return None
    by = gradients(world, message, node)
    if by.largest[0] >= n * TOO_LARGE or by.largest[1] >= TOO_LARGE:
        return None
    everybody = Accepted(message.users, once(n), np.empty((n, 0), np.int32))
    at, rows = (
        (given, by.second) if (given >= 0).all() else (given[given >= 0], by.second[given >= 0])
    )
    sums = {"tower": by.first, "cut": by_slot(world, at, rows)}
    return SinglePass(sums, everybody, (given >= 0).sum(axis=1), {})


# Step 5. Global user model update


def move_user_tower(
    world: World[FederatedTowers], state: STTFedRecState, sums: Sums, delegates: Accepted, t: int
) -> STTFedRecState:
    settings = world.settings
    n = len(delegates.users)
    before = TowerState(state.user_tower, state.user_mean, state.user_square)
    after = fedadam(before, sums["tower"], n, settings, settings.learning_rate_at(t))
    return replace(
        state,
        user_tower=after.parameters,
        user_mean=after.mean,
        user_square=after.square,
        cut=by_item(world, state, sums["cut"]),
        heard=n,
    )


def by_item(world: World[FederatedTowers], state: STTFedRecState, cut: Longs) -> Longs:
    """The sums of all rings by item, whichever it is."""
    used = state.merged >= 0
    return sum_rows_at(
        state.merged[used], cut[used], int(state.merged.max()) + 1, world.settings.device
    )


# Step 6. Global item model update


def hand_on(
    world: World[FederatedTowers], state: STTFedRecState, t: int
) -> tuple[STTFedRecState, dict[str, np.ndarray]]:
    """What comes back to the items' vectors."""
    told = {"cut": state.cut, "samples": np.array([state.heard], np.int64)}
    return replace(state, cut=no_gradients(world), heard=0, merged=state.merged[:0]), told


def move_item_tower(
    world: World[FederatedTowers], state: STTFedRecState, heard: dict[str, np.ndarray], t: int
) -> STTFedRecState:
    """Eq. 14 by the chain rule, and Eq. 15; the round is over, and who asked for what is forgotten."""
    settings = world.settings
    n = int(heard["samples"][0])
    forgotten = replace(state, askers=state.askers[:0], asked=state.asked[:0])
    if not n:
        return forgotten
    items = merged(world, state, t)[1]
    order = np.argsort(items)
    cut = mean_gradient(heard["cut"][order], n, settings.device)
    by = TowerOps(settings).item_gradients(
        state.item_tower, items_read(world, items[order], t), catalogue(world), cut
    )
    after = fedadam(
        TowerState(state.item_tower, state.item_mean, state.item_square),
        by,
        1,
        settings,
        settings.learning_rate_at(t),
    )
    return replace(
        forgotten, item_tower=after.parameters, item_mean=after.mean, item_square=after.square
    )


# Online inferring


def model(world: World[FederatedTowers], state: Any) -> Directions:
    """The items' vectors go out to devices; people's stay there."""
    content = catalogue(world)
    assert content.items is not None
    rows = TowerOps(world.settings).directions(state.item_tower, content.items, content)
    nobody = np.empty((0, rows.shape[1]), np.float32)
    return Directions(nobody, *quantize_rows(rows, world.settings.precision))


def client_model(world: World[FederatedTowers], state: Any, node: NodeData) -> PrivateState:
    """u_k, which a device makes once and keeps."""
    content = own_content(node)
    settings = world.settings
    keys = streams.keys(node.seed, "profile", last=node.users)
    people = np.arange(len(node.users))
    titles = requests.profiles(node.training, people, settings.titles, keys)
    return {
        "user_rows": TowerOps(settings).directions(
            state.user_tower, user_texts(content, people, titles), content
        )
    }


REQUEST: Exchange[STTFedRecState, FederatedTowers] = Exchange(
    broadcast=invite,
    client_update=request,
    aggregate=put_together,
    server_update=note,
    sizes=sizes_of_requests,
    fast=FastPaths(combine=None),
    role=RECOMMENDATION,
    visible="the items they request and, for an item that only one client requested, its gradient, "
    "which shows whether it was clicked (neither with requests=whole)",
    hides_visible=lambda world: world.settings.request_policy == "whole",
)
TRAIN = Exchange(
    broadcast=send_tower,
    client_update=client_update,
    aggregate=add_up,
    server_update=move_user_tower,
    sizes=sizes,
    fast=FastPaths(chunk_size=chunk_size, single_pass=single_pass),
    role=AGGREGATION,
    other_broadcasts=((RECOMMENDATION, embed),),
    secure_sum=SecureSum(by_item=("cut",), rows=slots.ring_slots),
)
SLOTS = Relay(sender=RECOMMENDATION, receiver=AGGREGATION, send=send_slots, receive=receive_slots)
RETURN = Relay(sender=AGGREGATION, receiver=RECOMMENDATION, send=hand_on, receive=move_item_tower)
FEDERATION = Federation(
    init=init,
    sample=sample,
    exchanges=(REQUEST, SLOTS, TRAIN, RETURN),
    model=model,
    content=content_of,
    client_model=client_model,
    client_model_needs=("user_tower",),
)


class STTFedRecCLSM(SplitTowers):
    tower: str = "clsm"
    """What reads items and people: dssm or clsm."""


def as_algorithm(
    summary: str,
    settings: type[FederatedTowers],
    federation: AnyFederation,
    state: type[Record],
    paper: str,
) -> Algorithm:
    return Algorithm(
        summary,
        settings,
        federation,
        state,
        lambda settings: settings.n_steps,
        ("sums", "clusters"),
        paper=paper,
    )


SPLIT = "split: devices train the user's, a server the items'"
DSSM = as_algorithm(
    f"two towers (DSSM), {SPLIT}", SplitTowers, FEDERATION, STTFedRecState, "Qin et al. 2022"
)
CLSM = as_algorithm(
    f"two towers (CLSM), {SPLIT}", STTFedRecCLSM, FEDERATION, STTFedRecState, "Qin et al. 2022"
)
