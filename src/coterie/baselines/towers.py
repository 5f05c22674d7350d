"""Two towers trained in one place: DSSM (Huang et al. 2013) and CLSM (Shen et al. 2014), as STTFedRec compares with them.

An epoch visits everybody once in a new random order, in batches of about the same size: Adam's step is as long for two people left over
as for a hundred. Whoever is visited brings T items, some that they clicked and a share rho that they did not, as in a round of
STTFedRec; the step is Adam's by the mean loss of the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.two_tower import requests
from coterie.algorithms.two_tower.learning import Read, Readers
from coterie.algorithms.two_tower.pair import Pair
from coterie.algorithms.two_tower.requests import told_of
from coterie.algorithms.two_tower.settings import TwoTowers
from coterie.core import streams
from coterie.data import text_features
from coterie.data.content import Content
from coterie.data.training_set import TrainingSet
from coterie.federated.costs import Costs
from coterie.federated.trainer import Context, Trainer
from coterie.models.directions import Directions, packed
from coterie.types import Longs


class Centralised(TwoTowers):
    epochs: int = Field(100, ge=1)
    """Visits to everybody."""
    batch_size: int = Field(100, ge=1)
    """Most people a step."""


class CentralisedCLSM(Centralised):
    tower: str = "clsm"
    """What reads items and people: dssm or clsm."""


def epoch(
    state: Pair, n: int, training: TrainingSet, told: Content, settings: Centralised, seed: int
) -> Pair:
    everybody = streams.at(seed, "order", n).permutation(np.flatnonzero(training.positives.counts))
    for people in batches(everybody, settings.batch_size):
        state = step(state, people, n, training, told, settings, seed)
    return state


def batches(everybody: Longs, most: int) -> list[Longs]:
    return np.array_split(everybody, max(-(-len(everybody) // most), 1))


def step(
    state: Pair,
    people: Longs,
    n: int,
    training: TrainingSet,
    told: Content,
    settings: Centralised,
    seed: int,
) -> Pair:
    """Adam, by the mean loss of some people."""
    assert told.items is not None
    drawn = requests.draw(training, people, settings, streams.keys(seed, "request", n, last=people))
    items, places = np.unique(drawn.items, return_inverse=True)
    told_of_people = told_of(told, people, drawn.profiles)
    keys = streams.keys(seed, "dropout of people", n, last=people)
    hidden = streams.keys(seed, "dropout of items", n, int(people[0]), last=items)
    by = Readers(settings).of_both(
        (state.user_tower, state.item_tower),
        Read(told_of_people, np.arange(len(people)), keys),
        Read(told.items, np.maximum(items, 0), hidden),
        told,
        np.reshape(places, drawn.items.shape),
        drawn,
    )
    return state.moved(by.first, by.second, len(people), settings, settings.learning_rate)


def model(
    state: Pair, training: TrainingSet, told: Content, settings: Centralised, seed: int
) -> Directions:
    assert told.items is not None
    people = np.arange(training.n_users)
    towers = Readers(settings)
    titles = requests.profiles(
        training, people, settings.titles, streams.keys(seed, "profile", last=people)
    )
    users = towers.directions(state.user_tower, told_of(told, people, titles), told)
    items = towers.directions(state.item_tower, told.items, told)
    return Directions(users, *packed(items, settings.precision))


def make(training: TrainingSet, settings: Centralised, context: Context) -> Trainer[Any]:
    told = text_features.read(
        training, settings.kind.reads, settings.inputs, settings.most_words, settings.person
    )
    seed = context.seed
    return Trainer(
        lambda: (Pair.start(settings, seed), Costs()),
        lambda state, n: (epoch(state, n, training, told, settings, seed), Costs()),
        lambda state: model(state, training, told, settings, seed),
    )


def _with(tower: str, settings: type[Centralised], paper: str) -> Algorithm:
    summary = f"two towers ({tower}) that read titles and people"
    return Algorithm(
        summary, settings, make, state=Pair, steps=lambda settings: settings.epochs, paper=paper
    )


DSSM = _with("DSSM", Centralised, "Huang et al. 2013")
CLSM = _with("CLSM", CentralisedCLSM, "Shen et al. 2014")
