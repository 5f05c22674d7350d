"""GMF on one client in PyTorch, as published federated recommenders write it.

Both peers use it: the loop over clients and Flower's simulation. It needs PyTorch alone.
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


@dataclass(frozen=True, slots=True)
class Job:
    """A round: the samples of every client, the parameters before it, and how to train."""

    starts: np.ndarray  # (clients + 1,) where the samples of every client begin
    items: np.ndarray  # (samples,)
    targets: np.ndarray  # (samples,) 1 or 0
    user_rows: np.ndarray  # (clients, size)
    item_rows: np.ndarray  # (items, size)
    dense: np.ndarray  # (size + 1,) output layer and bias
    batch_size: int
    learning_rate: float
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
        """What the server sends to every client, as a state of `ClientGMF` without its user."""
        return {
            "items.weight": torch.tensor(self.item_rows),
            "output.weight": torch.tensor(self.dense[None, :-1]),
            "output.bias": torch.tensor(self.dense[-1:]),
        }

    def samples(self, client: int) -> tuple[Tensor, Tensor]:
        part = slice(self.starts[client], self.starts[client + 1])
        return torch.tensor(self.items[part], dtype=torch.int64), torch.tensor(self.targets[part])

    def batches(self, client: int) -> Iterable[tuple[Tensor, Tensor]]:
        items, targets = self.samples(client)
        if self.slices:
            parts = [slice(s, s + self.batch_size) for s in range(0, len(items), self.batch_size)]
            return [(items[part], targets[part]) for part in parts]
        return DataLoader(TensorDataset(items, targets), batch_size=self.batch_size)


def train_client(
    job: Job, client: int, shared: Mapping[str, Tensor], user_row: Tensor
) -> dict[str, Tensor]:
    """One local epoch on the client's samples, in their order. Returns the client's model."""
    model = ClientGMF(*job.item_rows.shape)
    model.load_state_dict({**shared, "user": user_row})
    optimizer = torch.optim.SGD(model.parameters(), lr=job.learning_rate)
    loss = nn.BCEWithLogitsLoss(reduction="none")
    for items, targets in job.batches(client):
        optimizer.zero_grad()
        logits, norms = model(items)
        (loss(logits, targets) + job.reg / 2 * norms).mean().backward()
        optimizer.step()
    return dict(model.state_dict())
