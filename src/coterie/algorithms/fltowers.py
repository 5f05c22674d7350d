"""Two towers trained the naive way: a device has all item texts and trains both towers.

Huang et al. 2020, as in Figure 2b of STTFedRec (Qin et al. 2022).

    foreach round
        S sends Theta_u and Theta_v to K users
        each draws T items as in STTFedRec and sends dL_k / dTheta_u and dL_k / dTheta_v
        S takes a step of FedAdam with the mean of each

The same seed draws the same users, items and dropout as `sttfedrec-dssm` and `sttfedrec-clsm`,
which take the same steps, send half the parameters and put no item texts on devices.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.algorithms import sttfedrec
from coterie.algorithms.sttfedrec import (
    as_algorithm,
    item_dropout_keys,
    updates_in_memory,
)
from coterie.algorithms.two_tower import gpu_rounds
from coterie.algorithms.two_tower.batches import InputRows
from coterie.algorithms.two_tower.both_towers import BothTowers
from coterie.algorithms.two_tower.device_arrays import to_host_together
from coterie.algorithms.two_tower.distinct import distinct_items
from coterie.algorithms.two_tower.gradients import PairOfGradients
from coterie.algorithms.two_tower.item_requests import (
    client_content,
    draw_requests,
    unit_weights,
    user_inputs,
)
from coterie.algorithms.two_tower.settings import FederatedTowers
from coterie.algorithms.two_tower.training import TowerOps
from coterie.data.content import Content
from coterie.data.text_features import read
from coterie.data.training_set import TrainingSet
from coterie.federated.aggregation import update_bytes
from coterie.federated.costs import Costs
from coterie.federated.federation import (
    Accepted,
    Exchange,
    FastPaths,
    Federation,
    NodeData,
    PrivateSum,
    SinglePass,
    Sums,
    World,
    unweighted,
)
from coterie.federated.privacy.clipping import clipped
from coterie.federated.wire import message_size
from coterie.types import TOO_LARGE, Ints, Message, Sizes, Updates


def content_of(training: TrainingSet, settings: FederatedTowers) -> tuple[Content, Content]:
    """Devices have downloaded all item texts."""
    whole = read(
        training, settings.kind.reads, settings.inputs, settings.most_words, settings.person
    )
    return replace(whole, users=None), whole


def init(world: World[FederatedTowers]) -> BothTowers:
    return BothTowers.start(world.settings, world.seed)


def broadcast(world: World[FederatedTowers], state: BothTowers, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"tower": state.user_tower, "item_tower": state.item_tower}, {})


def gradients(
    world: World[FederatedTowers],
    message: Message,
    node: NodeData,
    items_at_a_time: int | None = None,
) -> PairOfGradients:
    """dL_k / dTheta_u and dL_k / dTheta_v, summed over all users of a message."""
    content = client_content(node)
    t = message.round
    assert content.items is not None
    drawn = draw_requests(world, node, message.users, t)
    # The padding -1 comes first among the distinct items; its vector is computed and not used.
    items, positions = distinct_items(drawn.items)
    return TowerOps(world.settings).joint_gradients(
        (message.common["tower"], message.common["item_tower"]),
        user_inputs(node, message, drawn),
        InputRows(content.items, np.maximum(items, 0), item_dropout_keys(world, items, t)),
        content,
        positions,
        drawn,
        items_at_a_time,
    )


def client_update(world: World[FederatedTowers], message: Message, node: NodeData) -> Updates:
    """The gradients of every device by itself."""
    n = len(message.users)
    none = np.empty(0, np.int32)
    size = TowerOps(world.settings).size
    dense = np.empty((n, 2 * size), np.int32)
    for k in range(n):
        of_one = gradients(world, message.to(np.array([k])), node)
        of_one.encode(dense[k, :size], dense[k, size:])
    return Updates(
        users=message.users,
        samples=unit_weights(n),
        offsets=np.zeros(n + 1, np.int64),
        items=none,
        item_rows=none.reshape(0, 0),
        user_rows=np.empty((n, 0), np.int32),
        dense=dense,
    )


def sizes(world: World[FederatedTowers], state: BothTowers) -> Sizes:
    return Sizes(0, 0, 0, 2 * TowerOps(world.settings).size)


def chunk_size(world: World[FederatedTowers], state: BothTowers) -> int:
    return updates_in_memory(sizes(world, state).dense)


def add_up(world: World[FederatedTowers], message: Message, updates: Updates) -> Sums:
    user, item = np.split(updates.dense.sum(axis=0, dtype=np.int64), 2)
    return {"user": user, "item": item}


def single_pass(
    world: World[FederatedTowers], message: Message, node: NodeData
) -> SinglePass | None:
    """All devices in one batch: the sum of the gradients is the gradient of the summed loss."""
    by = gradients(world, message, node).in_fixed_point()
    n = len(message.users)
    largest, by_user, by_item = to_host_together([by.largest, by.first, by.second])
    if largest.max() >= n * TOO_LARGE:
        return None
    return SinglePass(
        sums={"user": by_user, "item": by_item},
        accepted=Accepted(message.users, unit_weights(n), np.empty((n, 0), np.int32)),
        n_rows=np.zeros(n, np.int64),
        private_state={},
    )


def whole_round(
    world: World[FederatedTowers], node: NodeData, state: BothTowers, cohort: Ints, t: int
) -> tuple[BothTowers, Costs] | None:
    """A round on a GPU without messages; None where an update would be refused."""
    if not world.settings.on_gpu:
        return None
    n = len(cohort)
    drawn = sttfedrec.draw_round(world, node, cohort, t)
    running = sttfedrec.start_round(gpu_rounds.naive_step, world, state, drawn, t)
    # The GPU computes the towers meanwhile.
    costs = Costs(
        users=cohort,
        accepted=n,
        bytes_up=update_bytes(np.zeros(n, np.int64), sizes(world, state)),
        bytes_down=n * message_size(broadcast(world, state, cohort, t)),
    )
    after, largest = gpu_rounds.finish(running)
    if largest.max() >= n * TOO_LARGE:
        return None
    return after, costs


def move_towers(
    world: World[FederatedTowers], state: BothTowers, sums: Sums, accepted: Accepted, t: int
) -> BothTowers:
    settings = world.settings
    n = len(accepted.users)
    return state.stepped(sums["user"], sums["item"], n, settings, settings.learning_rate_at(t))


EXCHANGE = clipped(
    Exchange(
        broadcast=broadcast,
        client_update=client_update,
        aggregate=add_up,
        server_update=move_towers,
        sizes=sizes,
        fast=FastPaths(chunk_size=chunk_size, single_pass=single_pass, whole_round=whole_round),
        secure_sum=unweighted(),
    ),
    PrivateSum(
        releases=lambda world: world.settings.rounds,
        cohort_size=lambda world: min(world.settings.users_per_round, world.n_members),
        drawn_anew=True,
    ),
)
FEDERATION = Federation(
    init=init,
    sample=sttfedrec.sample,
    exchanges=(EXCHANGE,),
    model=sttfedrec.model,
    content=content_of,
    client_model=sttfedrec.client_model,
    client_model_needs=("user_tower",),
)


class FLTowersCLSM(FederatedTowers):
    tower: str = "clsm"
    """The network that reads items and users: dssm or clsm."""


DSSM = as_algorithm(
    "two towers (DSSM), both trained on devices",
    FederatedTowers,
    FEDERATION,
    BothTowers,
    "Huang et al. 2020",
)
CLSM = as_algorithm(
    "two towers (CLSM), both trained on devices",
    FLTowersCLSM,
    FEDERATION,
    BothTowers,
    "Huang et al. 2020",
)
