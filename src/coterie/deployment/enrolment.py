"""How a federation begins: nodes say whom they host, the server gives everybody a number, and both sides know the same world.

The server learns who there is (by the ids that nodes use: pseudonyms, if they like), which of them have something to learn from, and how
many interactions all of a node's people have together. What each person did stays in the node's store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, Self, cast

import numpy as np
from pydantic import TypeAdapter

from coterie.algorithms.registry import algorithm
from coterie.core import streams
from coterie.data import splits
from coterie.data.filters import rated
from coterie.data.ids import number
from coterie.data.interactions import Interactions, canonical_order, objects
from coterie.data.splits import Split
from coterie.data.training_set import TrainingSet
from coterie.deployment.node_store import NodeStore
from coterie.errors import ConfigError, DataError
from coterie.experiments.config import Experiment
from coterie.federated import trainer
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    NodeData,
)
from coterie.federated.settings import federation_settings
from coterie.federated.wire import Malformed
from coterie.types import Ids, Ints, Rows

RULES = ("leave-one-out", "temporal", "random")
"""Splits that a node can make of its own people without knowing of others."""
MOST_POSITIVES = 1 << 40
MOST_PEOPLE = 1 << 22
MOST_LETTERS = 256
"""Of one node, and of an id."""


class Said:
    """A few plain values that travel as JSON."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)  # type: ignore[call-overload]

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Whatever the text is, this or Malformed."""
        try:
            return cast(Self, _adapter(cls).validate_json(text, strict=True))  # type: ignore[arg-type]
        except ValueError as error:
            raise Malformed(f"no {cls.__name__.lower()}: {str(error)[:200]}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@dataclass(frozen=True, slots=True)
class Told(Said):
    """What the server alone knows about items, beside their titles."""

    categories: list[list[str]] | None = None
    bodies: list[str] | None = None


@dataclass(frozen=True, slots=True)
class Terms(Said):
    """What a server says before anything: the experiment, and the items that there are."""

    config: dict[str, Any]
    items: list[str]
    run: str = ""
    """Which federation this is: another one begins afresh, the same one goes on."""
    titles: list[str] | None = None

    @property
    def experiment(self) -> Experiment:
        return Experiment.of(self.config)

    @property
    def federation(self) -> AnyFederation:
        return cast(AnyFederation, algorithm(self.experiment.choice.algorithm).train)

    @property
    def texts(self) -> Ids | None:
        return None if self.titles is None else objects(self.titles)

    def refuse_split(self) -> None:
        rule = self.experiment.protocol.split
        if rule not in RULES:
            raise ConfigError(
                f"setting 'split' is {rule!r}, which needs everybody's interactions in one place; expected one of {', '.join(RULES)}. Change it."
            )


@dataclass(frozen=True, slots=True)
class Roster(Said):
    """What a node says: its people, who of them has something to learn from, and how much they have together."""

    people: list[str]
    learning: list[bool]
    positives: int

    @classmethod
    def heard(cls, data: bytes) -> Roster:
        """Of a node that may be anybody's."""
        said = cls.from_json(data)
        people = set(said.people)
        if (
            not people
            or "" in people
            or len(people) < len(said.people)
            or len(said.learning) != len(said.people)
        ):
            raise Malformed("a roll of people who are nobody, or not told apart")
        if len(people) > MOST_PEOPLE or max(map(len, people)) > MOST_LETTERS:
            raise Malformed("more people, or longer ids, than there can be")
        if not sum(said.learning) <= said.positives < MOST_POSITIVES:
            raise Malformed("people cannot have so many interactions together")
        return said


@dataclass(frozen=True, slots=True)
class Numbers(Said):
    """What a node is told then: its people's numbers, and what everybody may know."""

    numbers: dict[str, int]
    n_users: int
    members: list[int]
    n_positives: int


@dataclass(frozen=True, slots=True)
class Members(Said):
    """Who belongs to a federation, from its beginning to its end: a person's number is their place."""

    people: list[str]
    learning: list[int]
    n_positives: int

    @classmethod
    def of(cls, rolls: Mapping[str, Roster]) -> Members:
        homes = [(person, node) for node, said in rolls.items() for person in said.people]
        people, places, _ = number(objects([person for person, _ in homes]), "user_id")
        if len(people) < len(homes):
            twice = people[np.flatnonzero(np.bincount(places) > 1)[0]]
            n = sum(person == twice for person, _ in homes)
            raise DataError(
                f"user {twice} is on {n} nodes; expected everybody on one node. Take them out of the files of the others, and serve again."
            )
        learning = [learns for said in rolls.values() for learns in said.learning]
        positives = sum(said.positives for said in rolls.values())
        return cls(
            [str(person) for person in people],
            np.sort(places[np.flatnonzero(learning)]).tolist(),
            positives,
        )

    def told(self, people: Iterable[str]) -> Numbers:
        """What a node hears that hosts these; of others there are no numbers."""
        place = {person: number for number, person in enumerate(self.people)}
        known = {person: place[person] for person in people if person in place}
        return Numbers(known, len(self.people), self.learning, self.n_positives)


def roll(terms: Terms, store: NodeStore) -> Roster:
    data = own_data(terms, store)
    training = splits.split(data, *_rule(terms)).training()
    learning = training.positives.counts > 0
    return Roster(
        [str(person) for person in data.user_ids],
        learning.tolist(),
        int(training.positives.counts.sum()),
    )


def world_of(terms: Terms, numbers: Numbers, told: Told | None = None) -> AnyWorld:
    """As a server knows it, which has something to tell about items; or a node, which has not."""
    experiment = terms.experiment
    n = numbers.n_users
    catalogue = (
        catalogue_of(terms, n, told)
        if told
        else TrainingSet(n, len(terms.items), *_nobodys(n), None)
    )
    world = trainer.world_of(
        catalogue,
        federation_settings(experiment.settings),
        experiment.choice.seed,
        terms.federation if told else None,
    )
    members = np.zeros(n, bool)
    members[numbers.members] = True
    return replace(world, members=members, n_positives=numbers.n_positives, client_content=None)


def catalogue_of(terms: Terms, n_users: int, told: Told) -> TrainingSet:
    """What there is before anybody did anything."""
    categories = (
        None if told.categories is None else objects([tuple(names) for names in told.categories])
    )
    bodies = None if told.bodies is None else objects(told.bodies)
    return TrainingSet(
        n_users,
        len(terms.items),
        *_nobodys(n_users),
        None,
        item_texts=terms.texts,
        item_categories=categories,
        item_bodies=bodies,
    )


def _nobodys(n_users: int) -> tuple[Rows, Rows]:
    nothing = Rows(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))
    return nothing, nothing


def parts(terms: Terms, numbers: Numbers, store: NodeStore) -> tuple[Ints, Split]:
    """A node's people who have a number, and what they did, numbered as everywhere: what is trained on and what is held out."""
    data = own_data(terms, store)
    known = np.array([numbers.numbers.get(str(person), -1) for person in data.user_ids], np.int32)
    data = data.select(known[data.users] >= 0)
    own = known[known >= 0]
    everybody = np.full(numbers.n_users, "", object)
    everybody[own] = data.user_ids[known >= 0]
    users = known[data.users]
    order = canonical_order(users, data.items, data.times)
    placed = Interactions(
        users[order],
        data.items[order],
        None if data.ratings is None else data.ratings[order],
        None if data.times is None else data.times[order],
        everybody,
        data.item_ids,
        data.item_order,
        item_texts=terms.texts,
    )
    return np.sort(own), splits.split(placed, *_rule(terms))


def histories(terms: Terms, numbers: Numbers, store: NodeStore, seed: int) -> NodeData:
    """What a node has; its devices draw from a seed that no server has."""
    own, split = parts(terms, numbers, store)
    training = split.training()
    told = terms.federation.content(training, terms.experiment.settings)
    return NodeData(own, replace(training, content=told and told[1]).of_users(own), seed)


def simulated_seed(terms: Terms) -> int:
    """What a simulation's devices draw from: to repeat one, and for nothing else."""
    return streams.key(terms.experiment.choice.seed, "devices")


def own_data(terms: Terms, store: NodeStore) -> Interactions:
    """The histories of a node's people over the federation's items; others are left out."""
    data = rated(store.interactions(), terms.experiment.filters)
    known = {item: place for place, item in enumerate(terms.items)}
    places = np.array([known.get(str(item), -1) for item in data.item_ids], np.int32)
    there = places[data.items] >= 0
    if not there.any():
        raise DataError(
            f"{store.path}: nobody has any of the federation's {len(terms.items):,} items (first: {terms.items[0]}). Check the ids."
        )
    few = data.select(there)
    items = np.array(terms.items, dtype=object)
    return Interactions(
        few.users,
        places[data.items[there]],
        few.ratings,
        few.times,
        data.user_ids,
        items,
        np.arange(len(items), dtype=np.int32),
    )


def _rule(terms: Terms) -> tuple[Any, float, int, bool]:
    terms.refuse_split()
    protocol = terms.experiment.protocol
    return protocol.split, protocol.fraction, terms.experiment.choice.seed, protocol.validation
