"""Matrix factorisation by federated SGD, as a plug-in.

server    sends the item matrix Q to the clients of the cohort
client u  has a private vector p, its "taste". For its items i (target 1) and as many negatives
          (target 0): e_i = target - p . q_i,  p <- p + rate (sum_i e_i q_i - reg p),
          and sends e_i p for every item
server    Q <- Q + rate / |cohort| (sum of the clients' rows) - rate reg Q
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from coterie import quantise
from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.local.settings import CohortSettings
from coterie.core import streams
from coterie.core.records import Record
from coterie.core.settings import SearchSpace
from coterie.federated import federation as fl
from coterie.models.private_factors import PrivateFactors
from coterie.types import SCALE, Floats, Ints, Message, Sizes, Updates


class FedSGDMF(CohortSettings):
    embedding_size: int = Field(16, ge=1, le=512)
    """Length of every user and item row."""
    learning_rate: float = Field(0.05, gt=0)
    """Step size of clients and server."""
    reg: float = Field(0.01, ge=0)
    """Regularisation of all rows."""
    search_space: ClassVar[SearchSpace] = {"learning_rate": (0.005, 0.2), "reg": (1e-4, 0.1)}


@dataclass(frozen=True, slots=True)
class State(Record):
    private: ClassVar[tuple[str, ...]] = ("taste",)
    Q: Floats  # (items, d)
    taste: Floats  # (users, d), on the clients


def init(world: fl.World[FedSGDMF]) -> State:
    keys = streams.keys(world.seed, "items", last=np.arange(world.n_items))
    Q = 0.1 * streams.normal(keys, world.settings.embedding_size)
    return State(Q.astype(np.float32), fl.ON_CLIENTS)


def init_clients(world: fl.World[FedSGDMF], node: fl.NodeData) -> fl.PrivateState:
    keys = streams.keys(node.seed, "tastes", last=node.users)
    taste = 0.1 * streams.normal(keys, world.settings.embedding_size)
    return {"taste": taste.astype(np.float32)}


def broadcast(world: fl.World[FedSGDMF], state: State, cohort: Ints, t: int) -> Message:
    return Message(t, cohort, {"item_matrix": state.Q}, {})


def client_update(
    world: fl.World[FedSGDMF], message: Message, node: fl.NodeData
) -> fl.ClientResult:
    rate = world.settings.learning_rate
    Q = message.common["item_matrix"]
    items = []
    rows = []
    tastes = []
    for user, p in zip(message.users, message.private_state["taste"], strict=True):
        liked = node.training.positives.of(int(node.positions(np.array([user]))[0]))
        others = np.setdiff1d(np.arange(world.n_items, dtype=np.int32), liked)
        draw = streams.at(node.seed, "negatives", message.round, int(user))
        negatives = draw.choice(others, min(len(liked), len(others)), replace=False)
        mine = np.sort(np.concatenate([liked, negatives])).astype(np.int32)
        e = np.isin(mine, liked) - Q[mine] @ p
        items.append(mine)
        rows.append(quantise(np.outer(e, p)))
        tastes.append(p + rate * (e @ Q[mine] - world.settings.reg * p))
    updates = Updates.of_item_rows(message.users, items, rows)
    return updates, {"taste": np.array(tastes, np.float32)}


def aggregate(world: fl.World[FedSGDMF], message: Message, updates: Updates) -> fl.Sums:
    total = np.zeros((world.n_items, updates.item_rows.shape[1]), np.int64)
    np.add.at(total, updates.items, updates.item_rows)
    return {"rows": total}


def server_update(
    world: fl.World[FedSGDMF], state: State, sums: fl.Sums, accepted: fl.Accepted, t: int
) -> State:
    s = world.settings
    step = sums["rows"] / SCALE / len(accepted.users) - s.reg * state.Q
    return replace(state, Q=(state.Q + s.learning_rate * step).astype(np.float32))


def model(world: fl.World[FedSGDMF], state: State) -> PrivateFactors:
    return PrivateFactors(state.taste, state.Q, np.zeros(world.n_items, np.float32))


EXCHANGE: fl.Exchange[State, FedSGDMF] = fl.Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=aggregate,
    server_update=server_update,
    sizes=lambda world, state: Sizes(world.n_items, state.Q.shape[1], 0, 0),
    secure_sum=fl.SecureSum(by_item=("rows",)),
)
ALGORITHM = Algorithm(
    "matrix factorisation by federated SGD, with private user vectors",
    FedSGDMF,
    fl.Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        init_clients=init_clients,
    ),
    state=State,
)
