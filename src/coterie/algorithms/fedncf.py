"""FedNCF: neural collaborative filtering whose user rows stay on the clients.

Perifanis, Efraimidis. Federated neural collaborative filtering. Knowledge-Based Systems 242, 2022.
The models are those of He et al. 2017: GMF, an MLP over two embeddings, and NeuMF, which has both.
Item rows and the network are shared; the row of a user is the client's own.

    foreach round
        S sends the item rows and the network to the clients of the round
        each trains a copy of them and its own row on its positives and drawn negatives
        and sends the copies                   the row of the user stays where it is
        S averages, matrix factorisation and network apart
            an item row over the clients that trained on it
            the network over all clients of the round, by their numbers of samples

This is FedAvg (`fedavg`) except for two things: `fedavg` sends user rows, which then are on the
server, and its literal formula (`average=all`) counts clients that did not train on a row.

The paper sums under a secure aggregation of its own, against a server that is honest but curious;
here `--secure-aggregation` does. What it leaves open:

- `weights`: in sums that hide single clients, numbers of samples are not public. `users` counts
  every client once, and then a server sees nothing but sums; `samples` is FedAvg's weighting, and
  sends them.
- Ratings, which the paper does not train on, are left out.
- Clients send changes of rows instead of rows; the average is the same.
- `mlp` is NeuMF with a GMF part that is zero and stays zero. It is not sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from coterie.algorithms import fedavg
from coterie.algorithms.algorithm import Algorithm, score_by_sampled_loss
from coterie.algorithms.local import learner
from coterie.algorithms.local.neumf import sizes_of, without_gmf
from coterie.algorithms.local.samples import draw
from coterie.algorithms.local.settings import Federated
from coterie.core import streams
from coterie.core.records import Record
from coterie.federated.federation import (
    ON_CLIENTS,
    Accepted,
    ClientResult,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
    SecureSum,
    Sums,
    World,
)
from coterie.models.private_gmf import PrivateGMF
from coterie.models.private_neumf import PrivateNeuMF
from coterie.models.recommender import Recommender
from coterie.types import TOO_LARGE, Floats, Ints, Message, Sizes, Updates


class FedNCF(Federated):
    model: Literal["gmf", "mlp", "neumf"] = "neumf"
    """Model to train; mlp is neumf without its GMF part."""
    local_epochs: int = Field(2, ge=1)
    """Passes of a client over its own data in a round."""
    learning_rate: float = Field(0.1, gt=0)
    """Learning rate of the clients."""
    reg: float = Field(0.001, ge=0)
    """Regularisation of user and item rows."""
    average: Literal["all", "touched"] = "touched"
    """Item rows are averaged over the clients that trained on them, or over the whole cohort."""
    weights: Literal["users", "samples"] = "users"
    """What a client counts in averages: 1, or its number of samples, which it then sends."""

    @model_validator(mode="after")
    def _moments_stay_on_clients(self) -> FedNCF:
        if self.moments == "averaged":
            raise ValueError(
                "setting 'moments' is 'averaged', but the moments of user rows would have to leave "
                "the clients; expected 'fresh'. Set moments=fresh"
            )
        return self


@dataclass(frozen=True, slots=True)
class FedNCFState(Record):
    private: ClassVar[tuple[str, ...]] = ("user_rows",)
    item_rows: Floats  # (items, width)
    dense: Floats  # the network
    user_rows: Floats  # (users, width), on the clients


def init(world: World[FedNCF]) -> FedNCFState:
    start = learner(world.settings.model).start(world)
    return FedNCFState(start.item_rows, start.dense, ON_CLIENTS)


def init_clients(world: World[FedNCF], node: NodeData) -> PrivateState:
    """The initial row of every user."""
    s = world.settings
    width = s.embedding_size if s.model == "gmf" else 2 * s.embedding_size
    keys = streams.keys(node.seed, "start users", last=node.users)
    rows = (streams.normal(keys, width) * s.start_scale).astype(np.float32)
    return {"user_rows": without_gmf(s, rows)}


# The GMF part of `mlp` is not sent


def first_sent(settings: FedNCF) -> int:
    """The first column of an item row that is sent."""
    return settings.embedding_size if settings.model == "mlp" else 0


def widened(settings: FedNCF, rows: Floats) -> Floats:
    """Item rows as they are trained on, from those that were sent."""
    missing = np.zeros((len(rows), first_sent(settings)), np.float32)
    return np.concatenate([missing, rows], axis=1)


def broadcast(world: World[FedNCF], state: FedNCFState, cohort: Ints, t: int) -> Message:
    sent = np.ascontiguousarray(state.item_rows[:, first_sent(world.settings) :])
    return Message(t, cohort, {"item_rows": sent, "dense": state.dense}, {})


# Clients train


def client_update(world: World[FedNCF], message: Message, node: NodeData) -> ClientResult:
    """Changes of item rows and of the network. The row of the user changes on the client."""
    s = world.settings
    before = message.private_state["user_rows"]
    common = message.common | {"item_rows": widened(s, message.common["item_rows"])}
    given = replace(message, common=common, own={"user_rows": before})
    samples = draw(world, message.users, message.round, node)
    trained = fedavg.train_on(samples, world, given, node)
    n = len(trained)
    updates = replace(
        trained,
        samples=trained.samples if s.weights == "samples" else np.ones(n, np.int64),
        item_rows=np.ascontiguousarray(trained.item_rows[:, first_sent(s) :]),
        user_rows=np.empty((n, 0), np.int32),
        dense=refused_with_row(trained),
    )
    return updates, {"user_rows": fedavg.moved(before, trained.user_rows)}


def refused_with_row(trained: Updates) -> Ints:
    """Changes of the network; out of range where the change of the user's own row is.

    The server does not see that row, so it would accept an update of a client that diverged.
    """
    too_large = np.abs(trained.user_rows.astype(np.int64)).max(axis=1, initial=0) >= TOO_LARGE
    dense = trained.dense.copy()
    dense[too_large] = TOO_LARGE
    return dense


def sizes(world: World[FedNCF], state: FedNCFState) -> Sizes:
    width = state.item_rows.shape[1] - first_sent(world.settings)
    return Sizes(world.n_items, width, 0, len(state.dense))


# S averages


def average(
    world: World[FedNCF], state: FedNCFState, sums: Sums, accepted: Accepted, t: int
) -> FedNCFState:
    """Item rows over the clients that trained on them, the network over all of them."""
    s = world.settings
    n = max(int(sums["samples"][0]), 1)
    weights = sums["touched"] if s.average == "touched" else np.full(world.n_items, n)
    rows = np.ascontiguousarray(state.item_rows[:, first_sent(s) :])
    return replace(
        state,
        item_rows=widened(s, fedavg.move_items(rows, sums["items"], weights[:, None])),
        dense=fedavg.moved(state.dense, sums["dense"] / n),
    )


def model(world: World[FedNCF], state: FedNCFState) -> Recommender:
    if world.settings.model == "gmf":
        output = state.dense[:-1]
        return PrivateGMF(state.user_rows, state.item_rows, output, state.dense[-1:])
    return PrivateNeuMF(state.user_rows, state.item_rows, state.dense, sizes_of(world))


EXCHANGE: Exchange[FedNCFState, FedNCF] = Exchange(
    broadcast=broadcast,
    client_update=client_update,
    aggregate=fedavg.weigh_by_samples,
    server_update=average,
    sizes=sizes,
    secure_sum=SecureSum(by_item=("items", "touched")),
    visible="how many samples they have",
    hides_visible=lambda world: world.settings.weights == "users",
)

ALGORITHM = Algorithm(
    "neural collaborative filtering; user rows stay on the clients",
    FedNCF,
    Federation(
        init=init,
        sample=fedavg.sample,
        exchanges=(EXCHANGE,),
        model=model,
        init_clients=init_clients,
    ),
    state=FedNCFState,
    kernels=lambda settings: (*learner(settings.model).kernels(settings), "clusters"),
    paper="Perifanis and Efraimidis 2022",
    score_new_user=score_by_sampled_loss,
    popularity_prior=1.0,
    in_the_clear="the items it trained on, and the changes of their rows and of the network",
)
