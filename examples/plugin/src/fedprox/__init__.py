"""FedProx (Li et al. 2020): FedAvg with mu / 2 |w - w_t|^2 in the clients' loss."""

from dataclasses import replace

from pydantic import Field

from coterie.algorithms import fedavg
from coterie.algorithms.local.samples import draw


class FedProx(fedavg.FedAvg):
    mu: float = Field(0.1, ge=0)
    """Weight of the proximal term."""


def client_update(world, message, node):
    mu = world.settings.mu

    def proximal(now, sent):  # users (n, d), items (n, batch, d), dense (n, size)
        own = ((now.users - sent.users) ** 2).sum(1, keepdim=True)
        dense = ((now.dense - sent.dense) ** 2).sum(1, keepdim=True)
        return mu / 2 * (own + dense + ((now.items - sent.items) ** 2).sum(2))

    samples = draw(world, message.users, message.round, node)
    return fedavg.train_on(samples, world, message, node, proximal)


EXCHANGE = replace(fedavg.EXCHANGE, client_update=client_update)
FEDERATION = replace(fedavg.ALGORITHM.train, exchanges=(EXCHANGE,))
ALGORITHM = replace(fedavg.ALGORITHM, summary="FedProx", settings=FedProx, train=FEDERATION)
