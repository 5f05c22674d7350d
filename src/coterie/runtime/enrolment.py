"""How a federation begins: nodes say whom they host, the server gives everybody a number, and both sides know the same world.

The server learns who there is (by the ids that nodes use: pseudonyms, if they like), which of them have something to learn from, and how
many interactions all of a node's people have together. What each person did stays in the node's store.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from coterie import splits, streams
from coterie.config import Experiment
from coterie.data.filters import rated
from coterie.data.ids import number
from coterie.data.interactions import Interactions, canonical_order
from coterie.errors import ConfigError, DataError
from coterie.federation import Histories, World
from coterie.runtime.store import Store
from coterie.types import Ints, Training

RULES = ("leave-one-out", "temporal", "random")
"""Splits that a node can make of its own people without knowing of others."""


class Said:
    """A few plain values that travel as JSON."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Terms(Said):
    """What a server says before anything: the experiment, and the items that there are."""

    config: dict[str, Any]
    items: list[str]
    run: str = ""
    """Which federation this is: another one begins afresh, the same one goes on."""

    @property
    def experiment(self) -> Experiment:
        return Experiment.of(self.config)

    def refuse_split(self) -> None:
        rule = self.experiment.protocol.split
        if rule not in RULES:
            raise ConfigError(
                f"setting 'split' is {rule!r}, which needs everybody's interactions in one place; expected one of {', '.join(RULES)}. Change it."
            )


@dataclass(frozen=True, slots=True)
class Roll(Said):
    """What a node says: its people, who of them has something to learn from, and how much they have together."""

    people: list[str]
    learning: list[bool]
    positives: int


@dataclass(frozen=True, slots=True)
class Numbers(Said):
    """What a node is told then: its people's numbers, and what everybody may know."""

    numbers: dict[str, int]
    n_users: int
    members: list[int]
    n_positives: int


def roll(terms: Terms, store: Store) -> Roll:
    data = own_data(terms, store)
    training = splits.split(data, *_rule(terms)).training()
    learning = training.positives.counts > 0
    return Roll([str(person) for person in data.user_ids], learning.tolist(), int(training.positives.counts.sum()))


def take_up(rolls: Mapping[int, Roll]) -> tuple[dict[int, Numbers], Ints]:
    """What each node is told, and the node of every person."""
    homes_of = [(person, node) for node, said in rolls.items() for person in said.people]
    people, places, _ = number([person for person, _ in homes_of], "user_id")
    if len(people) < len(homes_of):
        twice = people[np.flatnonzero(np.bincount(places) > 1)[0]]
        nodes = ", ".join(str(node) for person, node in homes_of if person == twice)
        raise DataError(
            f"user {twice} is on nodes {nodes}; expected everybody on one node. Remove them from the others."
        )
    homes = np.empty(len(people), np.int32)
    homes[places] = [node for _, node in homes_of]
    learning = [learns for said in rolls.values() for learns in said.learning]
    members = np.sort(places[np.flatnonzero(learning)]).tolist()
    numbers = dict(zip((person for person, _ in homes_of), places.tolist(), strict=True))
    positives = sum(said.positives for said in rolls.values())
    told = {
        node: Numbers({person: numbers[person] for person in said.people}, len(people), members, positives)
        for node, said in rolls.items()
    }
    return told, homes


def world_of(terms: Terms, numbers: Numbers) -> World:
    experiment, members = terms.experiment, np.zeros(numbers.n_users, bool)
    members[numbers.members] = True
    return World(
        experiment.settings, experiment.choice.seed, numbers.n_users, len(terms.items), members, {}, numbers.n_positives
    )


def histories(terms: Terms, numbers: Numbers, store: Store, seed: int) -> Histories:
    """What a node has, numbered as everywhere; its devices draw from a seed that no server has."""
    data = own_data(terms, store)
    own = np.array([numbers.numbers[str(person)] for person in data.user_ids], np.int32)
    everybody = np.full(numbers.n_users, "", object)
    everybody[own] = data.user_ids
    users = own[data.users]
    order = canonical_order(users, data.items, data.times)
    placed = Interactions(
        users[order], data.items[order], None if data.ratings is None else data.ratings[order],
        None if data.times is None else data.times[order], everybody, data.item_ids, data.item_order,
    )  # fmt: skip
    training: Training = splits.split(placed, *_rule(terms)).training()
    return Histories(np.sort(own), training.of_users(np.sort(own)), seed)


def simulated_seed(terms: Terms) -> int:
    """What a simulation's devices draw from: to repeat one, and for nothing else."""
    return streams.key(terms.experiment.choice.seed, "devices")


def own_data(terms: Terms, store: Store) -> Interactions:
    """The histories of a node's people over the federation's items; others are left out."""
    data = rated(store.interactions(), terms.experiment.filters)
    known = {item: place for place, item in enumerate(terms.items)}
    places = np.array([known.get(str(item), -1) for item in data.item_ids], np.int32)
    there = places[data.items] >= 0
    if not there.any():
        raise DataError(
            f"{store.path}: nobody has any of the federation's {len(terms.items):,} items (first: {terms.items[0]}). Check the ids."
        )
    few, items = data.select(there), np.array(terms.items, dtype=object)
    return Interactions(
        few.users, places[data.items[there]], few.ratings, few.times, data.user_ids, items, np.arange(len(items), dtype=np.int32)
    )  # fmt: skip


def _rule(terms: Terms) -> tuple[Any, float, int, bool]:
    terms.refuse_split()
    protocol = terms.experiment.protocol
    return protocol.split, protocol.fraction, terms.experiment.choice.seed, protocol.validation
