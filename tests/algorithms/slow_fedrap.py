"""FedRAP once more, slow and obvious: PyTorch differentiates the loss of whole tables.

In double precision, with PyTorch's own optimiser, weight decay and scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from drawn_batches import Batch
from torch.nn.functional import binary_cross_entropy_with_logits, l1_loss, mse_loss


@dataclass
class Client:
    """What a client has between rounds."""

    w: np.ndarray  # (d,)
    b: float
    D: np.ndarray  # (items, d)

    def scores(self, C: np.ndarray) -> np.ndarray:
        return (self.D + C) @ self.w + self.b


@dataclass
class Options:
    learning_rate: float
    item_learning_rate: float
    step_decay: float
    reg: float
    apart: float
    sparse: float
    epochs: int
    tolerance: float


def client_update(
    client: Client, C: np.ndarray, batches: list[Batch], options: Options
) -> tuple[Client, np.ndarray]:
    """The client after its epochs, and its copy of C."""
    w, b, D, C_u = (
        torch.tensor(array, dtype=torch.float64, requires_grad=True)
        for array in (client.w, client.b, client.D, C)
    )
    groups = [
        {"params": [w, b], "lr": options.learning_rate},
        {"params": [D, C_u], "lr": options.item_learning_rate},
    ]
    optimiser = torch.optim.SGD(groups, weight_decay=options.reg)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimiser, options.step_decay)
    before = np.inf
    for _ in range(options.epochs):
        total = 0.0
        for batch in batches:
            items = [item for item, _ in batch]
            targets = torch.tensor([target for _, target in batch], dtype=torch.float64)
            own, shared = D[items], C_u[items]
            loss = (
                binary_cross_entropy_with_logits((own + shared) @ w + b, targets)
                - options.apart * mse_loss(own, shared)
                + options.sparse * l1_loss(shared, torch.zeros_like(shared))
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            scheduler.step()
            total += loss.item() * len(batch)
        mean = total / sum(map(len, batches))
        if abs(mean - before) < options.tolerance * abs(before):
            break
        before = mean
    after = Client(w.detach().numpy(), b.item(), D.detach().numpy())
    return after, C_u.detach().numpy()
