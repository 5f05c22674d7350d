"""Scaled noise: every colluder sends +a or -a for every entry of every item row.

The random or Gaussian attack that robust aggregation is usually tested with (Blanchard, El Mhamdi,
Guerraoui, Stainer. Machine learning with adversaries: Byzantine tolerant gradient descent.
NeurIPS 2017), with entries of one size instead of Gaussian ones, so that all are within the range
that validation accepts.

Deviation: where clients send item ids, a colluder sends the ids of random items, as many as it
has, and noise for dense parameters.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pydantic import Field

from coterie.attacks.poisoning.contract import AttackKind, AttackSettings, AttackView
from coterie.attacks.poisoning.item_updates import moves_items, within_range
from coterie.types import Ints, Updates


class Noise(AttackSettings):
    amplitude: float = Field(7.9, gt=0, lt=8)
    """Size of every entry. Validation refuses 8 and more."""


def poison(view: AttackView, settings: Noise) -> Updates:
    honest = view.honest
    dense = signs(view.rng, honest.dense.shape, settings.amplitude)
    n = len(honest)
    n_items = view.world.n_items
    width = honest.item_rows.shape[1]
    if not moves_items(view):
        return replace(random_items(view), dense=dense)
    return replace(
        honest,
        offsets=np.arange(n + 1, dtype=np.int64) * n_items,
        items=np.tile(np.arange(n_items, dtype=np.int32), n),
        item_rows=signs(view.rng, (n * n_items, width), settings.amplitude),
        dense=dense,
    )


def signs(rng: np.random.Generator, shape: tuple[int, ...], amplitude: float) -> Ints:
    return within_range(amplitude * (2.0 * rng.integers(0, 2, shape) - 1))


def random_items(view: AttackView) -> Updates:
    """The honest updates with other items, as many for each client."""
    honest = view.honest
    drawn = [
        np.sort(view.rng.permutation(view.world.n_items)[:count])
        for count in np.diff(honest.offsets).tolist()
    ]
    return replace(honest, items=np.concatenate(drawn).astype(np.int32))


NOISE = AttackKind(
    summary="random signs of one size on all items",
    settings=Noise,
    poison=poison,
    paper="Blanchard et al. 2017",
)
