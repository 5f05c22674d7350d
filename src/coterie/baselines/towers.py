"""Centralised two-tower models, the baselines of STTFedRec: DSSM and CLSM.

Huang et al. 2013 (DSSM); Shen et al. 2014 (CLSM).

An epoch visits every user once, in a new random order and in batches of about equal size: Adam's
step does not shrink with the batch, so a remainder of two users would count as much as a hundred.
A user contributes T items, of which a share rho was not clicked, as in a round of STTFedRec. Each
batch is one step of Adam by its mean loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.two_tower import requests
from coterie.algorithms.two_tower.batches import InputRows
from coterie.algorithms.two_tower.both_towers import BothTowers
from coterie.algorithms.two_tower.distinct import distinct_items
from coterie.algorithms.two_tower.new_user import score_new_user
from coterie.algorithms.two_tower.requests import user_texts
from coterie.algorithms.two_tower.settings import POPULARITY_PRIOR, TwoTowers
from coterie.algorithms.two_tower.training import TowerOps
from coterie.core import streams
from coterie.data import text_features
from coterie.data.content import Content
from coterie.data.training_set import TrainingSet
from coterie.federated.costs import Costs
from coterie.federated.trainer import Context, Trainer
from coterie.models.directions import Directions, quantize_rows
from coterie.types import Longs


class Centralised(TwoTowers):
    epochs: int = Field(100, ge=1)
    """Epochs over the users."""
    batch_size: int = Field(100, ge=1)
    """Largest number of users per step."""


class CentralisedCLSM(Centralised):
    tower: str = "clsm"
    """Architecture of both towers: dssm or clsm."""


def epoch(
    state: BothTowers,
    n: int,
    training: TrainingSet,
    content: Content,
    settings: Centralised,
    seed: int,
) -> BothTowers:
    users = np.flatnonzero(training.positives.counts)
    order = streams.at(seed, "order", n).permutation(users)
    for batch in batches(order, settings.batch_size):
        state = step(state, batch, n, training, content, settings, seed)
    return state


def batches(users: Longs, most: int) -> list[Longs]:
    """The users in the fewest parts of at most this many, of about equal size."""
    return np.array_split(users, max(-(-len(users) // most), 1))


def step(
    state: BothTowers,
    users: Longs,
    n: int,
    training: TrainingSet,
    content: Content,
    settings: Centralised,
    seed: int,
) -> BothTowers:
    """One step of Adam by the mean loss of a batch of users."""
    assert content.items is not None
    drawn = requests.draw(training, users, settings, streams.keys(seed, "request", n, last=users))
    items, places = distinct_items(drawn.items)
    texts, rows = user_texts(content, users, drawn.profiles)
    user_keys = streams.keys(seed, "dropout of people", n, last=users)
    item_keys = streams.keys(seed, "dropout of items", n, int(users[0]), last=items)
    gradients = (
        TowerOps(settings)
        .joint_gradients(
            (state.user_tower, state.item_tower),
            InputRows(texts, rows, user_keys),
            InputRows(content.items, np.maximum(items, 0), item_keys),
            content,
            places,
            drawn,
        )
        .in_fixed_point()
    )
    return state.stepped(
        gradients.first, gradients.second, len(users), settings, settings.learning_rate
    )


def model(
    state: BothTowers, training: TrainingSet, content: Content, settings: Centralised, seed: int
) -> Directions:
    assert content.items is not None
    users = np.arange(training.n_users)
    towers = TowerOps(settings)
    keys = streams.keys(seed, "profile", last=users)
    titles = requests.profiles(training, users, settings.titles, keys)
    profiles = InputRows(*user_texts(content, users, titles))
    item_texts = InputRows(content.items, np.arange(len(content.items)))
    user_rows = towers.directions(state.user_tower, profiles, content)
    item_rows = towers.directions(state.item_tower, item_texts, content)
    sent = quantize_rows(item_rows, settings.precision)
    return Directions(user_rows, *sent, user_tower=state.user_tower)


def make(training: TrainingSet, settings: Centralised, context: Context) -> Trainer[Any]:
    content = text_features.read(
        training, settings.kind.reads, settings.inputs, settings.most_words, settings.person
    )
    seed = context.seed
    return Trainer(
        lambda: (BothTowers.start(settings, seed), Costs()),
        lambda state, n: (epoch(state, n, training, content, settings, seed), Costs()),
        lambda state: model(state, training, content, settings, seed),
    )


def _with(tower: str, settings: type[Centralised], paper: str) -> Algorithm:
    return Algorithm(
        f"two towers ({tower}) over item texts and user profiles",
        settings,
        make,
        state=BothTowers,
        steps=lambda settings: settings.epochs,
        kernels=("requests",),
        paper=paper,
        score_new_user=score_new_user,
        popularity_prior=POPULARITY_PRIOR,
    )


DSSM = _with("DSSM", Centralised, "Huang et al. 2013")
CLSM = _with("CLSM", CentralisedCLSM, "Shen et al. 2014")
