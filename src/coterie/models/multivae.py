"""A variational autoencoder of histories with a multinomial over items (Liang et al. 2018), as plain arrays.

A history x, scaled to length one, goes up and down through a narrow middle; a score is the logit of an item at the mean of the code:
    h = tanh(x E + e)        mu, log sigma^2 = h W + w        z = mu        y_i = tanh(z V + v) . d_i + b_i
Training needs PyTorch, scoring does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from coterie.models.factors import score_rows
from coterie.models.neighbours import matrix
from coterie.models.recommender import Recommender
from coterie.types import Bools, Floats, Ints, Longs, Rows

LOWEST = -1e30
"""Score of an item that the net does not know: below all that it does, and finite."""


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
    known: Ints  # the items that the net knows, ascending
    offsets: Longs  # (users + 1,)
    history: Ints  # what every user did, numbered among the known; nothing of those who were left out of training
    n_items: int

    def score(self, users: Ints, items: Ints | None = None) -> Floats:
        return self._scores(Rows(self.offsets, self.history).of_users(users), items)

    def score_new_user(self, history: Ints, negatives: int, reg: float) -> Floats:
        places = self._places()[history]
        places = places[places >= 0]
        scores: Floats = self._scores(Rows(np.array([0, len(places)]), places), None)[0]
        return scores

    def serves(self, users: Ints) -> Bools:
        """Whoever was left out of training gets no recommendation."""
        return Rows(self.offsets, self.history).counts_of(users) > 0

    def _scores(self, histories: Rows, items: Ints | None) -> Floats:
        top = self._top(histories)
        if items is None:
            scores = np.full((len(top), self.n_items), LOWEST, np.float32)
            scores[:, self.known] = score_rows(top, self.item_rows, self.item_bias, None)
            return scores
        places = self._places()[items]
        scores = score_rows(top, self.item_rows, self.item_bias, places)
        scores[places < 0] = LOWEST
        return scores

    def _top(self, histories: Rows) -> Floats:
        """(users, hidden) the layer below the items."""
        x = matrix(histories, len(self.known), scaled(histories.counts))
        h = np.tanh(x @ self.encoder_rows + self.encoder_bias)
        latent = len(self.decoder_weights)
        z = h @ self.latent_weights[:, :latent] + self.latent_bias[:latent]
        return np.tanh(z @ self.decoder_weights + self.decoder_bias)

    def _places(self) -> Ints:
        """(items,) where every item stands among the known ones, or -1."""
        places = np.full(self.n_items, -1, np.int32)
        places[self.known] = np.arange(len(self.known), dtype=np.int32)
        return places


def scaled(counts: Longs) -> Floats:
    """One number for everything that everybody did, so that a history has length one."""
    return np.repeat(1 / np.sqrt(np.maximum(counts, 1)), counts).astype(np.float32)
