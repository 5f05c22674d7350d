"""A federation's model goes to its nodes: people get recommendations there, and nodes say what it is worth, in sums over enough people.

What belongs to a person travels to that person's node alone: their row, where the server has it. Where devices keep it, nodes put
it in from their store. How well the model serves somebody never leaves the node, only sums over a least group.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from coterie.deployment.enrolment import Numbers, Said, Terms, parts
from coterie.deployment.node import Node
from coterie.deployment.node_store import NodeStore
from coterie.evaluation.candidates import Candidates
from coterie.evaluation.evaluation import by_person
from coterie.evaluation.protocols import ACCURACY, WITHOUT_CUTOFF, Protocol
from coterie.experiments.training import Evaluator, sampled
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    PrivateState,
)
from coterie.federated.wire import Malformed, decode, encode
from coterie.models.kinds import kind
from coterie.models.recommender import Recommender
from coterie.types import Ints, Message

LEAST_GROUP = 10
"""Sums over fewer people are told to nobody, unless whoever runs a node says otherwise."""
KIND = "kind"
PARTS = "test", "validation", ""


@dataclass(frozen=True, slots=True)
class NodeMetrics(Said):
    """What a node says: sums over so many of its people; nothing where those are too few."""

    people: int
    part: str
    sums: dict[str, float]

    @classmethod
    def heard(cls, data: bytes, hosted: int, names: Container[str]) -> NodeMetrics:
        """Of a node that may be anybody's: every measure is one that was asked for, and between nothing and one for each of its people."""
        said = cls.from_json(data)
        if (
            not 0 <= said.people <= hosted
            or bool(said.sums) != bool(said.people)
            or said.part not in PARTS
        ):
            raise Malformed("sums over people who are not there")
        if not all(
            name in names and 0 <= total <= said.people * (1 + 1e-9)
            for name, total in said.sums.items()
        ):
            raise Malformed("sums that no people have together")
        return said


# The server's side


def letter(federation: AnyFederation, world: AnyWorld, state: Any, t: int) -> Message:
    """The model for everybody."""
    model = federation.model(world, state)
    arrays = model.shared_arrays()
    own = {name: arrays.pop(name) for name in model.of_users if name in arrays}
    common = arrays | {name: getattr(state, name) for name in federation.client_model_needs}
    named = np.frombuffer(model.kind.encode(), np.uint8)
    return Message(t, np.arange(world.n_users, dtype=np.int32), common | {KIND: named}, own)


def measures(protocol: Protocol) -> set[str]:
    """What nodes may say."""
    names = {
        name if name in WITHOUT_CUTOFF else f"{name}@{k}"
        for name in ACCURACY
        for k in protocol.cutoffs
    }
    return names | {f"full:{name}" for name in names}


def put_together(said: Iterable[NodeMetrics]) -> dict[str, float]:
    """Means over all people whose nodes said something; measures that only some told are left out."""
    told = [worth for worth in said if worth.people]
    names = set.intersection(*(set(worth.sums) for worth in told)) if told else set()
    people = sum(worth.people for worth in told)
    return (
        {
            name: math.fsum(worth.sums[name] for worth in told) / people
            for name in told[0].sums
            if name in names
        }
        if told
        else {}
    )


# The node's side


def take(party: Node, data: bytes) -> tuple[Ints, Recommender]:
    """Keep the model that came, and make it whole for this node's people: the k-th is of the k-th user."""
    message, persons = party.settled(data)
    if KIND not in message.common:
        raise Malformed("the message is no model")
    party.store.put_model(persons, message.own, encode(message.round, {}, message.common))
    places = party.node.positions(message.users)
    return message.users, whole(party, message.common, message.own, persons, places)


def of_person(party: Node, person: str) -> Recommender | None:
    """The last model that came, for one person; None where none did, or not for them."""
    data = party.store.held("model")
    user = next((number for number, name in party.store.numbers().items() if name == person), None)
    if data is None or user is None or user not in party.node.users:
        return None
    own = {name: row[None] for name, row in party.store.given(person).items()}
    return whole(party, decode(data).common, own, [person], party.node.positions(np.array([user])))


def whole(
    party: Node, common: PrivateState, own: PrivateState, persons: list[str], places: np.ndarray
) -> Recommender:
    model = kind(common[KIND].tobytes().decode(errors="replace"))
    private_state = {
        name: rows
        for name, rows in party.store.private_state(persons).items()
        if name in model.private
    }
    if party.federation.client_model is not None:
        state = SimpleNamespace(
            **{name: common[name] for name in party.federation.client_model_needs}
        )
        made = party.federation.client_model(party.world, state, party.node)
        private_state = {name: rows[places] for name, rows in made.items()}
    try:
        return model.from_arrays(dict(common) | own | private_state)
    except (KeyError, TypeError) as error:
        raise Malformed(f"the model lacks something ({error})") from None


def worth(
    terms: Terms, numbers: Numbers, store: NodeStore, users: Ints, model: Recommender, final: bool
) -> NodeMetrics:
    """Of the part that training is followed by; in the end of the test part, also by full ranking."""
    experiment = terms.experiment
    (_, split) = parts(terms, numbers, store)
    protocol = experiment.protocol
    n = len(terms.items)
    candidates = sampled(protocol, split, experiment.choice.seed) if protocol.candidates else None
    evaluator = Evaluator.of(experiment, split, candidates)
    if final:
        evaluator = replace(
            evaluator,
            part="test",
            seen=split.seen(),
            held=split.test,
            candidates=candidates and candidates.by_user(),
        )
    seen = evaluator.seen.of_users(users)
    wanted = evaluator.held.rows.of_users(users)
    table = by_person(
        model, protocol, seen, wanted, n, evaluator.candidates and _of(evaluator.candidates, users)
    )
    if final and evaluator.candidates is not None:
        full = by_person(model, protocol, seen, wanted, n, None)
        table |= {f"full:{name}": values for name, values in full.items()}
    people = int(np.count_nonzero(wanted.counts))
    if people < int(store.about("least_group") or LEAST_GROUP):
        return NodeMetrics(0, evaluator.part, {})
    return NodeMetrics(
        people, evaluator.part, {name: math.fsum(values) for name, values in table.items()}
    )


def _of(candidates: Candidates, users: Ints) -> Candidates:
    """Those of some users, numbered as they stand here."""
    there = np.isin(candidates.users, users)
    places = np.searchsorted(users, candidates.users[there]).astype(np.int32)
    return Candidates(places, candidates.items[there], candidates.relevant[there])
