"""GPFedRec once more, slow and obvious: PyTorch's layers and whole tables, in double precision."""

from __future__ import annotations

import numpy as np
import torch
from drawn_batches import Batch
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss


class Client(torch.nn.Module):
    """A user row, an item table and a network, filled from a flat vector of our layout."""

    def __init__(self, theta: np.ndarray, sizes: list[int], q: np.ndarray) -> None:
        super().__init__()
        d = q.shape[1]
        self.p = torch.nn.Parameter(torch.tensor(theta[:d], dtype=torch.float64))
        self.q = torch.nn.Parameter(torch.tensor(q, dtype=torch.float64))
        self.layers = torch.nn.ModuleList()
        at = d
        for n, m in zip(sizes, [*sizes[1:], 1], strict=True):
            layer = torch.nn.Linear(n, m, dtype=torch.float64)
            weight = theta[at : at + n * m].reshape(n, m).T
            layer.weight.data = torch.tensor(weight, dtype=torch.float64)
            layer.bias.data = torch.tensor(theta[at + n * m : at + n * m + m], dtype=torch.float64)
            at += n * m + m
            self.layers.append(layer)
        assert at == len(theta)

    def forward(self, items: list[int]) -> torch.Tensor:
        x = torch.cat([self.p.expand(len(items), -1), self.q[items]], dim=1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)[:, 0]

    def flat(self) -> np.ndarray:
        parts = [self.p.detach().numpy()]
        for layer in self.layers:
            parts += [layer.weight.detach().numpy().T.ravel(), layer.bias.detach().numpy()]
        return np.concatenate(parts)


def client_update(
    client: Client,
    guide: np.ndarray,
    batches: list[Batch],
    rates: tuple[float, float, float],
    reg: float,
) -> None:
    """Trains the client; `rates` are those of the network, the user row and the item rows."""
    network, user, items = rates
    optimiser = torch.optim.SGD(
        [
            {"params": client.layers.parameters(), "lr": network},
            {"params": [client.p], "lr": user},
            {"params": [client.q], "lr": items},
        ]
    )
    r = torch.tensor(guide, dtype=torch.float64)
    for batch in batches:
        targets = torch.tensor([target for _, target in batch], dtype=torch.float64)
        predicted = client([item for item, _ in batch])
        loss = binary_cross_entropy_with_logits(predicted, targets) + reg * mse_loss(client.q, r)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def graph_aggregation(
    tables: list[np.ndarray], authors: bool, threshold: float
) -> tuple[list[np.ndarray], np.ndarray]:
    """(r_u of every user, q), by loops over pairs of users."""
    n = len(tables)
    similarity = np.empty((n, n))
    for u in range(n):
        for v in range(n):
            a = tables[u].ravel()
            b = tables[v].ravel()
            cosine = a @ b / np.sqrt((a @ a) * (b @ b))
            similarity[u, v] = 1 - cosine if authors else cosine
    limit = similarity.mean() * threshold
    guides = []
    for u in range(n):
        near = [v for v in range(n) if similarity[u, v] > limit] or [u]
        guides.append(sum(tables[v] for v in near) / len(near))
    return guides, sum(guides) / n
