"""Mult-VAE, a variational autoencoder with a multinomial likelihood (Liang et al. 2018).

The input x is a history scaled to length one. The score of an item is its logit at the mean of the
latent code:

    h = tanh(x E + e)
    mu, log sigma^2 = h W + w
    z = mu
    y_i = tanh(z V + v) . d_i + b_i

Training needs PyTorch; scoring uses plain arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.factors import score_rows
from coterie.models.neighbours import matrix
from coterie.models.recommender import Recommender, cosines
from coterie.types import Bools, Floats, Ints, Longs, Rows

LOWEST = -1e30
"""Score of an item that was not in training: finite, and below all others."""


@dataclass(frozen=True, slots=True)
class MultVAE(Recommender):
    kind: ClassVar[str] = "multivae"
    trained: ClassVar[tuple[str, ...]] = (
        "encoder_rows",
        "encoder_bias",
        "latent_weights",
        "latent_bias",
        "decoder_weights",
        "decoder_bias",
        "item_rows",
        "item_bias",
    )
    encoder_rows: Floats  # (known, hidden) E
    encoder_bias: Floats  # (hidden,) e
    latent_weights: Floats  # (hidden, 2 latent) W: first for the mean, then for the log variance
    latent_bias: Floats  # (2 latent,) w
    decoder_weights: Floats  # (latent, hidden) V
    decoder_bias: Floats  # (hidden,) v
    item_rows: Floats  # (known, hidden) d
    item_bias: Floats  # (known,) b
    known: Ints  # the items in training, ascending
    offsets: Longs  # (users + 1,)
    history: Ints  # positions in `known` of every user's items; empty for users not in training
    n_items: int

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return self._scores(Rows(self.offsets, self.history).of_users(users), items)

    def score_new_user(self, history: Ints) -> Floats:
        positions = self._positions()[history]
        positions = positions[positions >= 0]
        one_row = Rows(np.array([0, len(positions)]), positions)
        scores: Floats = self._scores(one_row, None)[0]
        return scores

    def similar_items(self, item: int) -> Floats:
        """Cosines of the decoder's item rows; the lowest score for items not in training."""
        similar = np.full(self.n_items, LOWEST, np.float32)
        position = int(self._positions()[item])
        if position >= 0:
            similar[self.known] = cosines(self.item_rows, position)
        return similar

    def serves(self, users: Ints) -> Bools:
        """Users that were not in training get no recommendations."""
        return Rows(self.offsets, self.history).counts_of(users) > 0

    def _scores(self, histories: Rows, items: Ints | None) -> Floats:
        top = self._top(histories)
        if items is None:
            scores = np.full((len(top), self.n_items), LOWEST, np.float32)
            scores[:, self.known] = score_rows(top, self.item_rows, self.item_bias, None)
            return scores
        positions = self._positions()[items]
        scores = score_rows(top, self.item_rows, self.item_bias, positions)
        scores[positions < 0] = LOWEST
        return scores

    def _top(self, histories: Rows) -> Floats:
        """(users, hidden) the layer below the output."""
        x = matrix(histories, len(self.known), scaled(histories.counts))
        h = np.tanh(x @ self.encoder_rows + self.encoder_bias)
        latent = len(self.decoder_weights)
        z = h @ self.latent_weights[:, :latent] + self.latent_bias[:latent]
        return np.tanh(z @ self.decoder_weights + self.decoder_bias)

    def _positions(self) -> Ints:
        """(items,) the position of every item in `known`, or -1."""
        positions = np.full(self.n_items, -1, np.int32)
        positions[self.known] = np.arange(len(self.known), dtype=np.int32)
        return positions


def scaled(counts: Longs) -> Floats:
    """A value per interaction that scales every history to length one."""
    return np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts).astype(np.float32)
