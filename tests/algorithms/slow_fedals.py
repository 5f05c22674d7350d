"""A slow, obvious twin of FedALS: dense matrices, double precision, every contribution kept apart.

Where only some clients reply, their contributions stay, and each later round of the block
multiplies the weight of all earlier ones by sqrt(1 - m / n). After a round in which all clients
reply nothing stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from coterie.data.training_set import TrainingSet


class Contribution(NamedTuple):
    """What one client adds to the sums of a block in one round."""

    weight: float
    x: np.ndarray  # (d,)
    owned: np.ndarray  # (items,) 1 where the client has the item
    ratings: np.ndarray  # (items,)
    others: np.ndarray  # (items,) x . y without the block, as of that round
    bias: np.ndarray  # (items,) as of that round


@dataclass
class Twin:
    settings: Any
    training: TrainingSet
    contributions: dict[int, list[Contribution]] = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Clients that take part at all."""
        return int((self.training.positives.counts > 0).sum())

    def owned(self, user: int) -> np.ndarray:
        owned = np.zeros(self.training.n_items)
        owned[self.training.positives.of(user)] = 1
        return owned

    def ratings(self, user: int) -> np.ndarray:
        found = np.zeros(self.training.n_items)
        if self.training.ratings is not None:
            rows = self.training.positives
            own = slice(rows.offsets[user], rows.offsets[user + 1])
            found[rows.items[own]] = self.training.ratings[own]
        return found

    def ridge(self, count: float, others: int) -> float:
        s = self.settings
        if not s.reg_exponent:
            return s.reg
        if self.training.ratings is not None:
            return s.reg * max(count, 1) ** s.reg_exponent
        return s.reg * max(count + others / s.alpha, 1) ** s.reg_exponent

    def solve_user(self, user: int, Y: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """x = (Y^T C Y + ridge I)^-1 Y^T C p"""
        owned = self.owned(user)
        if self.training.ratings is None:
            c = 1 + self.settings.alpha * owned
            p = owned
        else:
            c = owned
            p = self.ratings(user) - bias
        ridge = self.ridge(owned.sum(), len(Y)) * np.eye(Y.shape[1])
        return np.linalg.solve(Y.T @ np.diag(c) @ Y + ridge, Y.T @ (c * p))

    def blocks(self) -> list[list[int]]:
        """The coordinates of each block; the last k where k does not divide d."""
        d = self.settings.embedding_size
        k = min(self.settings.block_size or d, d)
        starts = list(range(0, d - k + 1, k))
        if starts[-1] + k < d:
            starts.append(d - k)
        return [list(range(start, start + k)) for start in starts]

    def round(
        self, Y: np.ndarray, bias: np.ndarray, replied: list[int], t: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Item rows and biases after round t, in which these clients replied."""
        Y = Y.astype(float)
        bias = bias.astype(float)
        number = t % len(self.blocks())
        B = self.blocks()[number]
        rest = [a for a in range(Y.shape[1]) if a not in B]
        kept = np.sqrt(1 - len(replied) / self.n)
        earlier = self.contributions.get(number, [])
        now = [one._replace(weight=kept * one.weight) for one in earlier]
        for user in replied:
            x = self.solve_user(user, Y, bias)
            others = Y[:, rest] @ x[rest]
            now.append(
                Contribution(1.0, x, self.owned(user), self.ratings(user), others, bias.copy())
            )
        if self.training.ratings is not None and not bias.any():
            return Y, self.biases(now)
        self.contributions[number] = [] if len(replied) == self.n else now
        after = Y.copy()
        for i in range(len(Y)):
            after[i, B] = self.solve_item(i, Y[i], B, rest, now)
        return after, self.biases(now) if self.training.ratings is not None else bias

    def solve_item(
        self, i: int, y: np.ndarray, B: list[int], rest: list[int], now: list[Contribution]
    ) -> np.ndarray:
        """The best coordinates B of an item, where contributions stand for all n clients."""
        alpha = self.settings.alpha
        scale = self.n / sum(one.weight for one in now)
        A = np.zeros((len(B), len(B)))
        b = np.zeros(len(B))
        count = 0.0
        for one in now:
            weight = scale * one.weight
            count += weight * one.owned[i]
            x = one.x[B]
            if self.training.ratings is not None:
                error = one.ratings[i] - one.bias[i] - one.others[i]
                A += weight * one.owned[i] * np.outer(x, x)
                b += weight * one.owned[i] * error * x
                continue
            A += weight * (1 + alpha * one.owned[i]) * np.outer(x, x)
            # Observed cells have predictions of their round; the rest the row as it is now.
            b += weight * one.owned[i] * (1 + alpha - alpha * one.others[i]) * x
            b -= weight * (one.x[rest] @ y[rest]) * x
        return np.linalg.solve(A + self.ridge(count, self.training.n_users) * np.eye(len(B)), b)

    def biases(self, now: list[Contribution]) -> np.ndarray:
        """Mean ratings, with five ratings at the overall mean for every item."""
        counts = sum(one.weight * one.owned for one in now)
        totals = sum(one.weight * one.ratings for one in now)
        overall = totals.sum() / counts.sum()  # type: ignore[union-attr]
        return (totals + 5 * overall) / (counts + 5)
