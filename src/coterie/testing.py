"""Conformance checks for a federated algorithm, yours or ours.

As functions, each of which raises AssertionError with what is wrong:

    from coterie import testing
    testing.check("my-algorithm")                    # all checks, about a minute

Or as a pytest class, one test a promise:

    from coterie.testing import FederatedAlgorithmTests

    class TestMine(FederatedAlgorithmTests):
        algorithm = "my-algorithm"
        settings = {"embedding_size": 4}

The checks train on a few dozen synthetic users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm as find_algorithm
from coterie.core.progress import SILENT
from coterie.core.records import Record
from coterie.data.splits import split
from coterie.data.synthetic import Synthetic, generate
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.engine import Engine
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    ClientTask,
    Exchange,
    Federation,
    NodeData,
    PrivateState,
)
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, federated_trainer, world_of
from coterie.federated.transcript import Transcript
from coterie.federated.validation import Reply
from coterie.federated.wire import encode, message_size, reply_sizes
from coterie.models.kinds import kind
from coterie.types import TOO_LARGE, Message, Updates

STEPS = 3
SMALL = Synthetic(n_users=48, n_items=40, n_groups=3, mean_interactions=12)
# Without colluders, secagg needs no more clients in a round than ring does.
PROTECTED: tuple[Mapping[str, Any], ...] = (
    {"secure_aggregation": "secagg", "colluders": 0},
    {"secure_aggregation": "ring"},
)
"""Settings of every protocol of secure aggregation."""


def check(name: str, settings: Mapping[str, Any] | None = None) -> None:
    """All checks of an algorithm."""
    for one in CHECKS:
        one(name, dict(settings or {}))


def check_same_seed_same_bits(name: str, settings: Mapping[str, Any]) -> None:
    """Two runs with one seed give the same bits, and another seed gives others."""
    first = _states(name, settings)
    assert _bits(first[-1]) == _bits(_states(name, settings)[-1]), (
        f"{name}: two runs with the same seed differ. "
        "Draw all random numbers from coterie.core.streams."
    )
    assert len({_digest(state) for state in first}) == len(first), (
        f"{name}: a round changed nothing."
    )


def check_any_number_of_nodes(name: str, settings: Mapping[str, Any]) -> None:
    """Users on three nodes, with messages as bytes, give the bits of one node."""
    whole = _states(name, settings)[-1]
    shared = _states(name, settings, n_nodes=3)[-1]
    assert _bits(whole) == _bits(shared), (
        f"{name}: three nodes give another model than one. A client's arithmetic must not depend "
        "on the other clients of its node."
    )


def check_resume(name: str, settings: Mapping[str, Any]) -> None:
    """Training that goes on from saved arrays gives the bits of training without a break."""
    chosen, _ = _federation(name)
    whole = _states(name, settings)
    saved = chosen.state.from_arrays({k: v.copy() for k, v in whole[1].arrays().items()})
    resumed = _states(name, settings, since=saved, first=2)
    assert _bits(resumed[-1]) == _bits(whole[-1]), (
        f"{name}: a resumed run differs. All that a round needs must be a field of the state."
    )


def check_private_state_stays(name: str, settings: Mapping[str, Any]) -> None:
    """No message names a private field, and server functions see None in its place."""
    engine = _Watching(_engine(name, settings))
    states = _states(name, settings, engine=engine)
    for field in states[-1].private:
        assert field not in engine.seen, (
            f"{name}: the private field {field!r} was sent to the server."
        )
        assert getattr(states[-1].without_private(), field) is None


def check_bad_updates_are_refused(name: str, settings: Mapping[str, Any]) -> None:
    """A client whose update is out of range has no effect: it is as if it had dropped out."""
    honest = _states(name, settings, engine=_Lying(_engine(name, settings), lie=False))
    lying = _states(name, settings, engine=_Lying(_engine(name, settings), lie=True))
    assert _bits(honest[-1]) == _bits(lying[-1]), (
        f"{name}: a refused update changed the model. Read updates only in `aggregate`, and "
        "accepted clients only in `server_update`."
    )


def check_secure_aggregation(name: str, settings: Mapping[str, Any]) -> None:
    """Secure aggregation gives the bits of plain aggregation, where the algorithm offers it."""
    if not offers_secure_aggregation(name):
        return
    plain = _states(name, settings, through_the_wire=True)
    for protocol in PROTECTED:
        secure = _states(name, {**settings, **protocol}, through_the_wire=True)
        assert _bits(plain[-1]) == _bits(secure[-1]), (
            f"{name}: secure aggregation ({protocol['secure_aggregation']}) gives another model. "
            "Every sum that `server_update` reads must come from `aggregate`, and those with a row "
            "for every item must be in SecureSum.by_item."
        )


def check_costs_are_bytes(name: str, settings: Mapping[str, Any]) -> None:
    """The bytes that a run reports are those of the encoder."""
    engine = _Watching(_engine(name, settings))
    _states(name, settings, engine=engine)
    for message, updates in engine.calls:
        one = message.to(np.array([0]))
        own = {"users": one.users, **one.own}
        assert message_size(message) == len(encode(one.round, own, one.common, one.exchange))
        if len(updates):
            alone = updates.take(np.array([0]))
            assert reply_sizes(updates)[0] == len(encode(one.round, alone.columns()))


def check_model(name: str, settings: Mapping[str, Any]) -> None:
    """The model scores every item for every user with finite numbers."""
    _, federation = _federation(name)
    world = _world(name, settings)
    engine = _engine(name, settings)
    state = _states(name, settings, engine=engine)[-1]
    model = federated_trainer(federation, world, engine, Context(0, SILENT)).model(state)
    users = np.flatnonzero(world.members).astype(np.int32)
    scores = model.score(users)
    assert scores.shape == (len(users), world.n_items)
    assert np.isfinite(scores).all(), f"{name}: scores are not finite."
    assert kind(model.kind) is type(model), (
        f"{name}: the model's kind {model.kind!r} names another class, so a saved model could not "
        "be read. Give its entry point in coterie.models the same name."
    )


def check_search_space(name: str, settings: Mapping[str, Any]) -> None:
    """What `coterie tune` draws are settings of the algorithm, with values it accepts."""
    chosen, _ = _federation(name)
    for key, values in chosen.settings.search_space.items():
        assert key in chosen.settings.model_fields, (
            f"{name}: search_space has {key!r}, which is not a setting."
        )
        for value in values:
            chosen.settings.of({**settings, key: value})


CHECKS: tuple[Callable[[str, Mapping[str, Any]], None], ...] = (
    check_same_seed_same_bits,
    check_any_number_of_nodes,
    check_resume,
    check_private_state_stays,
    check_bad_updates_are_refused,
    check_secure_aggregation,
    check_costs_are_bytes,
    check_model,
    check_search_space,
)


class FederatedAlgorithmTests:
    """Subclass it in a test file and name the algorithm."""

    algorithm: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]] = {}

    def test_same_seed_same_bits(self) -> None:
        check_same_seed_same_bits(self.algorithm, self.settings)

    def test_any_number_of_nodes(self) -> None:
        check_any_number_of_nodes(self.algorithm, self.settings)

    def test_resume(self) -> None:
        check_resume(self.algorithm, self.settings)

    def test_private_state_stays(self) -> None:
        check_private_state_stays(self.algorithm, self.settings)

    def test_bad_updates_are_refused(self) -> None:
        check_bad_updates_are_refused(self.algorithm, self.settings)

    def test_secure_aggregation(self) -> None:
        check_secure_aggregation(self.algorithm, self.settings)

    def test_costs_are_bytes(self) -> None:
        check_costs_are_bytes(self.algorithm, self.settings)

    def test_model(self) -> None:
        check_model(self.algorithm, self.settings)

    def test_search_space(self) -> None:
        check_search_space(self.algorithm, self.settings)


def offers_secure_aggregation(name: str) -> bool:
    _, federation = _federation(name)
    return any(isinstance(e, Exchange) and e.secure_sum for e in federation.exchanges)


class _Watching(Engine):
    """An engine that notes what passes between the server and the clients."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = Transcript(engine)
        self.calls: list[tuple[Message, Updates]] = []

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        return self._engine.gather(make)

    def call(self, task: ClientTask, message: Message) -> list[Reply]:
        replies = self._engine.call(task, message)
        for reply in replies:
            assert reply.columns is not None
            self.calls.append((message, Updates(**reply.columns)))
        return replies

    @property
    def seen(self) -> set[str]:
        """The names of all arrays in messages."""
        return {name for message, _ in self.calls for name in (*message.own, *message.common)}


class _Lying(Engine):
    """An engine in which one client sends an update out of range, or drops out instead."""

    def __init__(self, engine: LocalEngine, lie: bool) -> None:
        self._engine = engine
        self._lie = lie

    def gather(self, make: Callable[[AnyWorld, NodeData], PrivateState]) -> PrivateState:
        return self._engine.gather(make)

    def call(self, task: ClientTask, message: Message) -> list[Reply]:
        (reply,) = self._engine.call(task, message)
        assert reply.columns is not None
        updates = Updates(**reply.columns)
        sent = _spoiled(updates) if self._lie else updates.take(np.arange(1, len(updates)))
        return [replace(reply, columns=sent.columns())]


def _spoiled(updates: Updates) -> Updates:
    """The first client's update with an entry out of range."""
    for name in ("item_rows", "dense", "user_rows"):
        column = getattr(updates, name).copy()
        if column.size and (name != "item_rows" or updates.offsets[1]):
            column[0] = TOO_LARGE
            return replace(updates, **{name: column})
    return updates.take(np.arange(1, len(updates)))


@cache
def _training() -> TrainingSet:
    return split(generate(SMALL), "leave-one-out", 0.2, seed=0).training()


def _federation(name: str) -> tuple[Algorithm, AnyFederation]:
    chosen = find_algorithm(name)
    assert isinstance(chosen.train, Federation), f"{name} is not a federated algorithm."
    return chosen, chosen.train


def _world(name: str, settings: Mapping[str, Any]) -> AnyWorld:
    chosen, federation = _federation(name)
    known = chosen.settings.model_fields
    few = {key: STEPS for key in ("rounds", "epochs") if key in known}
    wide = {"participation": 0.5} if "participation" in known else {}
    values = chosen.settings.of(few | wide | dict(settings))
    return world_of(_training(), federation_settings(values), 0, federation)


def _engine(
    name: str, settings: Mapping[str, Any], n_nodes: int = 1, through_the_wire: bool | None = None
) -> LocalEngine:
    return LocalEngine.over(_world(name, settings), _training(), n_nodes, through_the_wire)


def _states(
    name: str,
    settings: Mapping[str, Any],
    *,
    n_nodes: int = 1,
    through_the_wire: bool | None = None,
    engine: Engine | None = None,
    since: Record | None = None,
    first: int = 1,
) -> list[Any]:
    """States before the first step and after every step."""
    chosen, federation = _federation(name)
    world = _world(name, settings)
    engine = engine or _engine(name, settings, n_nodes, through_the_wire)
    work = federated_trainer(federation, world, engine, Context(0, SILENT))
    states = [work.start()[0] if since is None else since]
    for n in range(first, chosen.steps(world.settings) + 1):
        state, costs = work.step(states[-1], n)
        assert costs.accepted, f"{name}: no update was accepted in step {n} ({costs.refused})."
        states.append(state)
    return states


def _bits(state: Record) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in state.arrays().items()}


def _digest(state: Record) -> bytes:
    return b"".join(part for _, part in sorted(_bits(state).items()))
