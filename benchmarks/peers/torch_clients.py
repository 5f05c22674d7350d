"""GMF and PFedRec on one client in PyTorch, as published federated recommenders write them.

Both peers use it: the loop over clients and Flower's simulation. It needs PyTorch alone.

PFedRec follows the authors' program (repository Zhangcx19/IJCAI-23-PFedRec): every client has a
module, a DataLoader and two optimizers, and trains twice on a batch, first the score function,
then its item table. The program also copies every client's parameters four times in a round, has
users in its data sets, and shuffles; all of that is left out here, so that the peer is faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class ClientGMF(nn.Module):
    """y = h . (p * q_i) + b for one user; every client has a copy of the whole item table."""

    def __init__(self, n_items: int, size: int) -> None:
        super().__init__()
        self.user = nn.Parameter(torch.zeros(size))
        self.items = nn.Embedding(n_items, size)
        self.output = nn.Linear(size, 1)

    def forward(self, items: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the squared norm of the rows used."""
        q = self.items(items)
        logits = self.output(self.user * q)[:, 0]
        return logits, (self.user * self.user).sum() + (q * q).sum(1)


class ClientPFedRec(nn.Module):
    """y = w . q_i + b with a score function of one's own and a copy of the whole item table."""

    def __init__(self, n_items: int, size: int) -> None:
        super().__init__()
        self.items = nn.Embedding(n_items, size)
        self.output = nn.Linear(size, 1)

    def forward(self, items: Tensor) -> Tensor:
        return torch.sigmoid(self.output(self.items(items)))[:, 0]


@dataclass(frozen=True, slots=True)
class Job:
    """A round: the samples of every client, the parameters before it, and how to train."""

    algorithm: str

    starts: np.ndarray  # (clients + 1,) where the samples of every client begin
    items: np.ndarray  # (samples,)
    targets: np.ndarray  # (samples,) 1 or 0
    own: np.ndarray  # (clients, ...) what a client does not share: a user row or score function
    item_rows: np.ndarray  # (items, size)
    dense: np.ndarray  # output layer and bias, if they are shared
    batch_size: int
    learning_rate: float
    item_learning_rate: float
    reg: float
    slices: bool = False
    """Whether batches are slices of the tensors, which is faster than a DataLoader."""

    @classmethod
    def read(cls, path: Path) -> Job:
        with np.load(path) as arrays:
            return cls(**{name: a if a.ndim else a.item() for name, a in arrays.items()})

    def write(self, path: Path) -> None:
        np.savez(path, **{name: getattr(self, name) for name in self.__slots__})

    @property
    def n_clients(self) -> int:
        return len(self.starts) - 1

    def shared(self) -> dict[str, Tensor]:
        """What the server sends to every client, as a part of its module's state."""
        items = {"items.weight": torch.tensor(self.item_rows)}
        return items | layer(torch.tensor(self.dense)) if len(self.dense) else items

    def weight(self, client: int) -> int:
        """The weight of a client in the mean: its samples, or 1 in PFedRec."""
        return 1 if self.algorithm == "pfedrec" else int(np.diff(self.starts)[client])

    def samples(self, client: int) -> tuple[Tensor, Tensor]:
        part = slice(self.starts[client], self.starts[client + 1])
        return torch.tensor(self.items[part], dtype=torch.int64), torch.tensor(self.targets[part])

    def batches(self, client: int) -> Iterable[tuple[Tensor, Tensor]]:
        items, targets = self.samples(client)
        if self.slices:
            parts = [slice(s, s + self.batch_size) for s in range(0, len(items), self.batch_size)]
            return [(items[part], targets[part]) for part in parts]
        return DataLoader(TensorDataset(items, targets), batch_size=self.batch_size)


def layer(values: Tensor) -> dict[str, Tensor]:
    """An output layer, with its bias behind it, as a part of a module's state."""
    return {"output.weight": values[None, :-1], "output.bias": values[-1:]}


def train_client(
    job: Job, client: int, shared: Mapping[str, Tensor], own: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """One local epoch on the client's samples, in their order. Returns what it shares and keeps."""
    return CLIENTS[job.algorithm](job, client, shared, own)


def train_gmf(
    job: Job, client: int, shared: Mapping[str, Tensor], own: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    model = ClientGMF(*job.item_rows.shape)
    model.load_state_dict({**shared, "user": own})
    optimizer = torch.optim.SGD(model.parameters(), lr=job.learning_rate)
    loss = nn.BCEWithLogitsLoss(reduction="none")
    for items, targets in job.batches(client):
        optimizer.zero_grad()
        logits, norms = model(items)
        (loss(logits, targets) + job.reg / 2 * norms).mean().backward()
        optimizer.step()
    state = dict(model.state_dict())
    return state, state.pop("user")


def train_pfedrec(
    job: Job, client: int, shared: Mapping[str, Tensor], own: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    model = ClientPFedRec(*job.item_rows.shape)
    model.load_state_dict({**shared, **layer(own)})
    steps = (
        torch.optim.SGD(model.output.parameters(), lr=job.learning_rate),
        torch.optim.SGD(model.items.parameters(), lr=job.item_learning_rate),
    )
    loss = nn.BCELoss()
    for items, targets in job.batches(client):
        for optimizer in steps:
            optimizer.zero_grad()
            loss(model(items), targets).backward()
            optimizer.step()
    state = dict(model.state_dict())
    own = torch.cat([state.pop("output.weight")[0], state.pop("output.bias")])
    return state, own


CLIENTS = {"fedavg": train_gmf, "pfedrec": train_pfedrec}
