"""STTFedRec: two towers, of which a device trains only the one that reads its user.

Qin, Zhang, Liu, Qian. Split two-tower model for efficient and privacy-preserving cross-device
federated recommendation. 2022 (Section 3.3). Three roles: devices, a recommendation server (item
data, item tower) and an aggregation server (user tower).

    Step 1  initialisation     both towers from N(0, 0.1); K users for the round
    Step 2  obfuscated         a device requests T items from the recommendation server, a share
            item request       rho of which its user did not click
                               I_k = M_v(V_k, Theta_v)                                       (6)
    Step 3  local training     u_k = M_u(x_k, Theta_u)                                       (7)
                               L_k = -1/T sum_j r_j log softmax_j(cos(u_k, i_kj))            (8)
                               g_k = dL_k / dTheta_u                                         (9)
    Step 4  aggregation        the aggregation server computes the mean of g_k               (12)
    Step 5  user tower         Theta_u <- Theta_u - rate m / (sqrt(v) + tau)                 (13)
    Step 6  item tower         the same, with the gradient by the item vectors           (14, 15)

Deviations. The paper sends the mean of the losses back to the recommendation server, which cannot
differentiate it. Here a device sends dL_k / di_kj for the items it requested, the aggregation
server returns the sums, and the recommendation server backpropagates them through its tower. That
is exact: `fl-dssm` takes the same steps (tested). Eqs. 13 and 15 add the step and put tau inside
the root or outside: here the step is subtracted, and tau is outside.

The aggregation server does not learn which items it sums over: the recommendation server assigns
slots to the items of a round at random. Gradients travel in units of 2^-24, since their entries
are small. Devices' part of step 2 is in `two_tower/item_requests.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from coterie.algorithms import clustering as clusters
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.two_tower import gpu_rounds, item_requests, requests, slots
from coterie.algorithms.two_tower.batches import InputRows
from coterie.algorithms.two_tower.both_towers import BothTowers
from coterie.algorithms.two_tower.device_arrays import to_host, to_host_together
from coterie.algorithms.two_tower.distinct import distinct_items
from coterie.algorithms.two_tower.gpu_rounds import DrawnRound, RoundStep, Running
from coterie.algorithms.two_tower.gradients import PairOfGradients, mean_gradients_at, sum_rows_at
from coterie.algorithms.two_tower.item_requests import (
    client_content,
    draw_requests,
    look_up_vectors,
    unit_weights,
    user_inputs,
)
from coterie.algorithms.two_tower.new_user import score_new_user
from coterie.algorithms.two_tower.optimiser import TowerState, fedadam
from coterie.algorithms.two_tower.requests import Requests, user_texts
from coterie.algorithms.two_tower.settings import (
    POPULARITY_PRIOR,
    FederatedTowers,
    SplitTowers,
)
from coterie.algorithms.two_tower.slots import Slots
from coterie.algorithms.two_tower.training import TowerOps
from coterie.core import streams
from coterie.core.records import Record
from coterie.core.weak_cache import WeakCache
from coterie.data.content import Content
from coterie.data.text_features import read
from coterie.data.training_set import TrainingSet
from coterie.federated.aggregation import update_bytes
from coterie.federated.costs import Costs
from coterie.federated.federation import (
    AGGREGATION,
    RECOMMENDATION,
    Accepted,
    AnyFederation,
    Arrays,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateState,
    Relay,
    SinglePass,
    Sums,
    World,
    unweighted,
)
from coterie.federated.privacy.settings import clipping_kernels
from coterie.federated.secagg.server import assign_groups
from coterie.federated.wire import message_size
from coterie.models.directions import Directions, quantize_rows
from coterie.types import TOO_LARGE, Floats, Ints, Longs, Message, Sizes, Updates

if TYPE_CHECKING:
    from torch import Tensor

UPDATE_MEMORY = 1 << 28
"""Bytes of updates that are held in memory at a time."""
LAST_SLOTS = WeakCache()
"""The last slots that were assigned for an array of requests."""
LAST_MERGED = WeakCache()
"""The numbers of the slots in an array of assigned items."""


@dataclass(frozen=True, slots=True)
class STTFedRecState(Record):
    roles: ClassVar = {
        RECOMMENDATION: ("item_tower", "item_mean", "item_square", "requesters", "requested"),
        AGGREGATION: ("user_tower", "user_mean", "user_square", "cut", "n_aggregated", "merged"),
    }
    user_tower: Floats  # Theta_u
    user_mean: Floats
    user_square: Floats
    item_tower: Floats  # Theta_v
    item_mean: Floats
    item_square: Floats
    requesters: Ints  # (n,) clients who requested items in this round; empty between rounds
    requested: Ints  # (n, T) the items, ascending; padded with -1 in front
    cut: Longs  # (slots, k) summed gradients by item vectors, in units; empty between rounds
    n_aggregated: int  # clients in these sums
    merged: Ints  # (slots,) a number for each item, the same in all rings; empty between rounds

    @property
    def towers(self) -> BothTowers:
        return BothTowers(
            self.user_tower,
            self.user_mean,
            self.user_square,
            self.item_tower,
            self.item_mean,
            self.item_square,
        )

    def with_towers(self, after: BothTowers) -> STTFedRecState:
        return replace(
            self,
            user_tower=after.user_tower,
            user_mean=after.user_mean,
            user_square=after.user_square,
            item_tower=after.item_tower,
            item_mean=after.item_mean,
            item_square=after.item_square,
        )


# Step 1. Initialisation


def content_of(training: TrainingSet, settings: FederatedTowers) -> tuple[Content, Content]:
    """Item texts for the recommendation server; titles of their own items for devices."""
    whole = read(
        training, settings.kind.reads, settings.inputs, settings.most_words, settings.person
    )
    return replace(whole, users=None), replace(whole, items=None)


def init(world: World[FederatedTowers]) -> STTFedRecState:
    towers = TowerOps(world.settings)
    user_tower = towers.start(world.seed, "user tower")
    item_tower = towers.start(world.seed, "item tower")
    zeros = np.zeros_like(user_tower)
    return STTFedRecState(
        user_tower=user_tower,
        user_mean=zeros,
        user_square=zeros,
        item_tower=item_tower,
        item_mean=zeros,
        item_square=zeros,
        requesters=np.empty(0, np.int32),
        requested=np.empty((0, world.settings.compared), np.int32),
        cut=no_gradients(world),
        n_aggregated=0,
        merged=np.empty(0, np.int32),
    )


def no_gradients(world: World[FederatedTowers]) -> Longs:
    return np.empty((0, world.settings.widths[-1]), np.int64)


def sample(world: World[FederatedTowers], state: object, t: int) -> Ints:
    """C_k: K users at random."""
    return clusters.draw_users(world.present, world.settings.users_per_round, world.seed, t)


# Step 2. Obfuscated item request


def invite(world: World[FederatedTowers], state: STTFedRecState, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {}, {})


def store_requests(
    world: World[FederatedTowers], state: STTFedRecState, sums: Sums, accepted: Accepted, t: int
) -> STTFedRecState:
    requested = sums["requested"].astype(np.int32)
    return replace(state, requesters=accepted.users, requested=requested)


def assign_slots(world: World[FederatedTowers], state: STTFedRecState, t: int) -> Slots:
    """Slots of the requested items, assigned at random; separately for every ring.

    The server needs the same slots three times in a round. The cache saves assigning them again.
    """
    assigned_for = (world.settings, world.seed, t)
    last = LAST_SLOTS.get(state.requested)
    if last is not None and last[0] == assigned_for:
        assigned: Slots = last[1]
        return assigned
    assigned = _assign_slots(world, state, t)
    LAST_SLOTS.put(state.requested, (assigned_for, assigned))
    return assigned


def _assign_slots(world: World[FederatedTowers], state: STTFedRecState, t: int) -> Slots:
    rows = [np.arange(len(state.requesters))]
    if world.settings.secure_aggregation != "none":
        rings = assign_groups(world, sample(world, state, t), t)
        rows = [np.flatnonzero(np.isin(state.requesters, ring)) for ring in rings]
    return slots.assign_slots(world, state.requested, rows, streams.at(world.seed, "slots", t))


def embed(world: World[FederatedTowers], state: STTFedRecState, cohort: Ints, t: int) -> Message:
    """I_k (Eq. 6): the vectors that each client requested, and their slots."""
    assigned = assign_slots(world, state, t)
    items, position = assigned.distinct()
    towers = TowerOps(world.settings)
    inputs = item_inputs(world, items, t)
    if world.settings.request_policy == "whole":
        vectors = towers.vectors(state.item_tower, inputs, catalogue(world))
        slot_of_item = np.argsort(assigned.items).astype(np.int32)
        return Message(t, cohort, {"embeddings": vectors, "slots": slot_of_item}, {})
    T = world.settings.compared
    slots_of = np.full((len(cohort), T), -1, np.int32)
    positions = np.full((len(cohort), T), -1, np.int64)
    requesters = np.searchsorted(cohort, state.requesters)
    slots_of[requesters] = assigned.requested
    positions[requesters] = np.where(assigned.requested < 0, -1, position[assigned.requested])
    embeddings = towers.vectors_at(state.item_tower, inputs, catalogue(world), positions)
    return Message(t, cohort, {}, {"embeddings": embeddings, "slots": slots_of})


def send_slots(
    world: World[FederatedTowers], state: STTFedRecState, t: int
) -> tuple[STTFedRecState, Arrays]:
    """Which slots of different rings are the same item, without telling which item."""
    return state, {"slots": merge_slots(world, state, t)[0]}


def merge_slots(world: World[FederatedTowers], state: STTFedRecState, t: int) -> tuple[Ints, Ints]:
    """The number of every slot's item, the same in all rings, and the item of every number."""
    assigned = assign_slots(world, state, t)
    merged: tuple[Ints, Ints] | None = LAST_MERGED.get(assigned.items)
    if merged is None:
        merged = assigned.merged(streams.at(world.seed, "merged slots", t))
        LAST_MERGED.put(assigned.items, merged)
    return merged


def receive_slots(
    world: World[FederatedTowers], state: STTFedRecState, received: Arrays, t: int
) -> STTFedRecState:
    return replace(state, merged=received["slots"])


def item_inputs(world: World[FederatedTowers], items: Ints, t: int) -> InputRows:
    content = catalogue(world)
    assert content.items is not None
    return InputRows(content.items, items, item_dropout_keys(world, items, t))


def item_dropout_keys(world: World[FederatedTowers], items: Ints, t: int) -> np.ndarray:
    """Keys of dropout in the item tower: the same for all clients in a round."""
    return streams.keys(world.seed, "dropout of items", t, last=items)


def catalogue(world: World[FederatedTowers]) -> Content:
    assert world.content is not None  # only the recommendation server calls this
    return world.content


# Step 3. Local training


def send_tower(
    world: World[FederatedTowers], state: STTFedRecState, cohort: Ints, t: int
) -> Message:
    return Message(t, cohort, {"tower": state.user_tower}, {})


def gradients(world: World[FederatedTowers], message: Message, node: NodeData) -> PairOfGradients:
    """Eqs. 7 to 9 for all users of a message: the sum of g_k, and each dL_k / di_kj."""
    drawn = draw_requests(world, node, message.users, message.round)
    return TowerOps(world.settings).user_gradients(
        message.common["tower"],
        user_inputs(node, message, drawn),
        client_content(node),
        message.own["embeddings"],
        drawn,
    )


def client_update(world: World[FederatedTowers], message: Message, node: NodeData) -> Updates:
    """The gradients of every device by itself."""
    message = look_up_vectors(world, message, node)
    # A client without a single vector sends no update.
    message = message.to(np.flatnonzero((message.own["slots"] >= 0).any(axis=1)))
    slots_of = message.own["slots"]
    n = len(slots_of)
    cuts = np.empty((*slots_of.shape, world.settings.widths[-1]), np.int32)
    dense = np.empty((n, TowerOps(world.settings).size), np.int32)
    for k in range(n):
        gradients(world, message.to(np.array([k])), node).encode(dense[k], cuts[k])
    order = np.argsort(slots_of, axis=1, kind="stable")
    ascending = np.take_along_axis(slots_of, order, axis=1)
    cuts = np.take_along_axis(cuts, order[:, :, None], axis=1)
    return Updates(
        users=message.users,
        samples=unit_weights(n),
        offsets=np.concatenate([[0], np.cumsum((ascending >= 0).sum(axis=1))]),
        items=ascending[ascending >= 0],
        item_rows=cuts[ascending >= 0],
        user_rows=np.empty((n, 0), np.int32),
        dense=dense,
    )


def sizes(world: World[FederatedTowers], state: object = None) -> Sizes:
    return Sizes(
        slots.slot_count(world), world.settings.widths[-1], 0, TowerOps(world.settings).size
    )


def chunk_size(world: World[FederatedTowers], state: object) -> int:
    """An update is as large as a tower: the updates of a large cohort may not fit into memory."""
    cut = world.settings.compared * world.settings.widths[-1]
    return updates_in_memory(sizes(world).dense + cut)


def updates_in_memory(entries: int) -> int:
    """How many updates with that many entries are held in memory at a time."""
    return max(UPDATE_MEMORY // (4 * entries), 1)


# Step 4. Aggregation


def add_up(world: World[FederatedTowers], message: Message, updates: Updates) -> Sums:
    return {
        "tower": updates.dense.sum(axis=0, dtype=np.int64),
        "cut": to_host(sum_by_slot(world, updates.items, updates.item_rows)),
    }


def sum_by_slot(world: World[FederatedTowers], slots_of: Ints, rows: Ints | Tensor) -> Tensor:
    return sum_rows_at(slots_of, rows, slots.slot_count(world), world.settings.device)


def single_pass(
    world: World[FederatedTowers], message: Message, node: NodeData
) -> SinglePass | None:
    """All devices in one batch: the sum of the gradients is the gradient of the summed loss."""
    message = look_up_vectors(world, message, node)
    slots_of = message.own["slots"]
    valid = slots_of >= 0
    n = len(message.users)
    if not valid.any(axis=1).all():
        return None
    by = gradients(world, message, node).in_fixed_point()
    by_slot = sum_by_slot(world, slots_of, by.second)
    largest, tower, cut = to_host_together([by.largest, by.first, by_slot])
    if largest[0] >= n * TOO_LARGE or largest[1] >= TOO_LARGE:
        return None
    return SinglePass(
        sums={"tower": tower, "cut": cut},
        accepted=Accepted(message.users, unit_weights(n), np.empty((n, 0), np.int32)),
        n_rows=valid.sum(axis=1),
        private_state={},
    )


def whole_round(
    world: World[FederatedTowers], node: NodeData, state: STTFedRecState, cohort: Ints, t: int
) -> tuple[STTFedRecState, Costs] | None:
    """A round on a GPU without messages; None where an update would be refused or not sent."""
    if not world.settings.on_gpu:
        return None
    drawn = draw_round(world, node, cohort, t)
    if not drawn.requests.valid.any(axis=1).all():
        return None
    running = start_round(gpu_rounds.split_step, world, state.towers, drawn, t)
    # The GPU computes the towers meanwhile.
    costs = costs_of(world, drawn.requests, cohort, t)
    after, largest = gpu_rounds.finish(running)
    if largest[0] >= len(cohort) * TOO_LARGE or largest[1] >= TOO_LARGE:
        return None
    return state.with_towers(after), costs


def draw_round(world: World[FederatedTowers], node: NodeData, cohort: Ints, t: int) -> DrawnRound:
    """What the clients of a round compare."""
    requested = draw_requests(world, node, cohort, t)
    content = catalogue(world)
    assert content.items is not None
    # The padding -1 comes first among the distinct items; its vector is computed and not used.
    items, places = distinct_items(requested.items)
    keys = item_dropout_keys(world, items, t)
    return DrawnRound(
        requested,
        user_inputs(node, Message(t, cohort, {}, {}), requested),
        InputRows(content.items, np.maximum(items, 0), keys),
        places,
        client_content(node),
        content,
    )


def start_round(
    step: RoundStep, world: World[FederatedTowers], before: BothTowers, drawn: DrawnRound, t: int
) -> Running:
    """Start to compute the towers after round t."""
    settings = world.settings
    network = TowerOps(settings).network
    return gpu_rounds.start(step, settings, network, before, drawn, settings.learning_rate_at(t))


def costs_of(world: World[FederatedTowers], requested: Requests, cohort: Ints, t: int) -> Costs:
    """What the messages of a round cost in which every client replies."""
    n = len(cohort)
    n_rows = requested.valid.sum(axis=1)
    is_whole = world.settings.request_policy == "whole"
    invited = message_size(Message(t, cohort, {}, {}))
    return Costs(
        users=cohort,
        accepted=n,
        bytes_up=update_bytes(n_rows * (not is_whole), item_requests.sizes(world, None))
        + update_bytes(n_rows, sizes(world)),
        bytes_down=n * (invited + message_size(message_to_train(world, cohort, t))),
    )


def message_to_train(world: World[FederatedTowers], cohort: Ints, t: int) -> Message:
    """The message of step 3 with zeros in it, for its size."""
    settings = world.settings
    is_whole = settings.request_policy == "whole"
    shape = (world.n_items,) if is_whole else (len(cohort), settings.compared)
    vectors = {
        "embeddings": np.broadcast_to(np.float32(0), (*shape, settings.widths[-1])),
        "slots": np.broadcast_to(np.int32(0), shape),
    }
    tower = {"tower": np.broadcast_to(np.float32(0), TowerOps(settings).size)}
    if is_whole:
        return Message(t, cohort, tower | vectors, {})
    return Message(t, cohort, tower, vectors)


# Step 5. Global user model update


def move_user_tower(
    world: World[FederatedTowers], state: STTFedRecState, sums: Sums, accepted: Accepted, t: int
) -> STTFedRecState:
    settings = world.settings
    n = len(accepted.users)
    before = TowerState(state.user_tower, state.user_mean, state.user_square)
    cut = sum_by_item(world, state, sums["cut"])
    after = fedadam(before, sums["tower"], n, settings, settings.learning_rate_at(t))
    return replace(
        state,
        user_tower=after.parameters,
        user_mean=after.mean,
        user_square=after.square,
        cut=to_host(cut),
        n_aggregated=n,
    )


def sum_by_item(world: World[FederatedTowers], state: STTFedRecState, cut: Longs) -> Tensor:
    """The sums of all rings by item, whose index this server does not know."""
    n_items = int(state.merged.max()) + 1
    return sum_rows_at(state.merged, cut, n_items, world.settings.device)


# Step 6. Global item model update


def return_gradients(
    world: World[FederatedTowers], state: STTFedRecState, t: int
) -> tuple[STTFedRecState, Arrays]:
    """The summed gradients by item vectors, and the number of clients in them."""
    sent = {"cut": state.cut, "samples": np.array([state.n_aggregated], np.int64)}
    after = replace(state, cut=no_gradients(world), n_aggregated=0, merged=state.merged[:0])
    return after, sent


def move_item_tower(
    world: World[FederatedTowers], state: STTFedRecState, received: Arrays, t: int
) -> STTFedRecState:
    """Eq. 14 by the chain rule, and Eq. 15. The requests of the round are deleted."""
    settings = world.settings
    n = int(received["samples"][0])
    without_requests = replace(
        state, requesters=state.requesters[:0], requested=state.requested[:0]
    )
    if not n:
        return without_requests
    items = merge_slots(world, state, t)[1]
    order = np.argsort(items)
    cut = mean_gradients_at(order, received["cut"], n, settings.device)
    inputs = item_inputs(world, items[order], t)
    by = TowerOps(settings).item_gradients(state.item_tower, inputs, catalogue(world), cut)
    before = TowerState(state.item_tower, state.item_mean, state.item_square)
    after = fedadam(before, by, 1, settings, settings.learning_rate_at(t))
    return replace(
        without_requests,
        item_tower=after.parameters,
        item_mean=after.mean,
        item_square=after.square,
    )


# Online inference


def model(world: World[FederatedTowers], state: STTFedRecState | BothTowers) -> Directions:
    """Item vectors are sent to devices; user vectors stay there."""
    content = catalogue(world)
    assert content.items is not None
    texts = InputRows(content.items, np.arange(len(content.items)))
    rows = TowerOps(world.settings).directions(state.item_tower, texts, content)
    no_users = np.empty((0, rows.shape[1]), np.float32)
    sent = quantize_rows(rows, world.settings.precision)
    return Directions(no_users, *sent, user_tower=state.user_tower)


def client_model(
    world: World[FederatedTowers], state: STTFedRecState | BothTowers, node: NodeData
) -> PrivateState:
    """u_k, which a device computes once and stores."""
    content = client_content(node)
    settings = world.settings
    keys = streams.keys(node.seed, "profile", last=node.users)
    users = np.arange(len(node.users))
    titles = requests.profiles(node.training, users, settings.titles, keys)
    texts = InputRows(*user_texts(content, users, titles))
    return {"user_rows": TowerOps(settings).directions(state.user_tower, texts, content)}


REQUEST: Exchange[STTFedRecState, FederatedTowers] = Exchange(
    broadcast=invite,
    client_update=item_requests.request,
    aggregate=item_requests.collect,
    server_update=store_requests,
    sizes=item_requests.sizes,
    fast=FastPaths(
        single_pass=item_requests.request_at_once, combine=None, whole_round=whole_round
    ),
    role=RECOMMENDATION,
    visible="the items they request and, for an item that only one client requested, its gradient, "
    "which shows whether it was clicked (neither with requests=whole)",
    hides_visible=lambda world: world.settings.request_policy == "whole",
)
TRAIN: Exchange[STTFedRecState, FederatedTowers] = Exchange(
    broadcast=send_tower,
    client_update=client_update,
    aggregate=add_up,
    server_update=move_user_tower,
    sizes=sizes,
    fast=FastPaths(chunk_size=chunk_size, single_pass=single_pass),
    role=AGGREGATION,
    other_broadcasts=((RECOMMENDATION, embed),),
    secure_sum=unweighted(by_item=("cut",), rows=slots.ring_slots),
)
SLOTS = Relay(sender=RECOMMENDATION, receiver=AGGREGATION, send=send_slots, receive=receive_slots)
RETURN = Relay(
    sender=AGGREGATION, receiver=RECOMMENDATION, send=return_gradients, receive=move_item_tower
)
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
    """The network that reads items and users: dssm or clsm."""


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
        kernels=lambda settings: (
            "requests",
            "sums",
            "clusters",
            "fixed_point",
            *clipping_kernels(settings),
        ),
        paper=paper,
        score_new_user=score_new_user,
        popularity_prior=POPULARITY_PRIOR,
    )


SPLIT = "split: devices train the user tower, a server the item tower"
DSSM = as_algorithm(
    f"two towers (DSSM), {SPLIT}", SplitTowers, FEDERATION, STTFedRecState, "Qin et al. 2022"
)
CLSM = as_algorithm(
    f"two towers (CLSM), {SPLIT}", STTFedRecCLSM, FEDERATION, STTFedRecState, "Qin et al. 2022"
)
