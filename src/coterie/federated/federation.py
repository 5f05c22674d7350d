"""A federated algorithm is a value too: who takes part, and exchanges of four pure functions between server and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from coterie.data.training_set import TrainingSet
from coterie.models.recommender import Recommender
from coterie.types import Bools, Floats, Ids, Ints, Longs, Message, Sizes, Updates

if TYPE_CHECKING:
    from coterie.data.content import Content

Sums = dict[str, NDArray[np.int64]]
Ask: TypeAlias = "Callable[[World, Any, Ints, int], Message]"
"""(world, state, cohort, t) -> the message."""
RECOMMENDATION = "recommendation"
"""The server that has the items, where there are several servers."""
AGGREGATION = "aggregation"
"""The one that hears what devices learned."""


@dataclass(frozen=True, slots=True)
class World:
    """What the server knows beside messages; nodes know it too, but for the features of people."""

    settings: Any
    seed: int
    """Of what the server decides: start values, who takes part. What devices draw has a seed of its own."""
    n_users: int
    n_items: int
    members: Bools  # (users,) who takes part: people with something to learn from
    user_features: Mapping[str, Ids]
    n_positives: int = 0
    """How many interactions all histories hold together (X+): all that a server knows of them."""
    content: Content | None = None
    """What is told about items: the server that recommends them knows it, other servers and nodes do not."""
    on_devices: Content | None = None
    """What devices know about items and their own user; no server does. Nodes have the part of their users."""
    presence: Longs | None = None
    """A trace of devices: see `Training`."""
    here: Bools | None = None  # (users,) who can be asked in this round; None where everybody can

    @property
    def present(self) -> Bools:
        """Whom a round's users are drawn from."""
        return self.members if self.here is None else self.members & self.here

    def seen_by(self, role: str) -> World:
        """Of several servers one has the items, and none what devices have."""
        if not role and self.on_devices is None:
            return self
        known = self.content if role in ("", RECOMMENDATION) else None
        return replace(
            self,
            content=known,
            on_devices=None,
            user_features=self.user_features if not role else {},
        )


@dataclass(frozen=True, slots=True)
class NodeData:
    """What a node knows: the histories of its users."""

    users: Ints  # ascending
    training: TrainingSet  # its k-th user is users[k]
    seed: int = 0
    """Of what its devices draw. Who knew it could tell drawn negatives from what a user did."""

    def places(self, users: Ints) -> Longs:
        """Where users stand on this node."""
        places = np.searchsorted(self.users, users)
        if len(users) and (places.max() >= len(self.users) or (self.users[places] != users).any()):
            raise ValueError("a node was asked for users that it does not host")
        return places


class Accepted(NamedTuple):
    """Whose updates were accepted, and what belongs to them alone."""

    users: Ints
    samples: Longs
    user_rows: Ints  # (n, width) change in fixed point


PrivateState = dict[str, np.ndarray]
"""What devices keep, by name: a row for every user asked."""
Answer = Updates | tuple[Updates, PrivateState]


class ClientTask(Protocol):
    """Something that nodes are asked: an exchange, or a stage of a ring."""

    @property
    def role(self) -> str: ...

    @property
    def answer(
        self,
    ) -> Callable[
        [World, Message, NodeData], Answer | tuple[dict[str, np.ndarray], PrivateState]
    ]: ...


class SinglePass(NamedTuple):
    """What is left of an exchange that one kernel call answered, validated and reduced: nobody's update was ever there as a whole."""

    sums: Sums
    delegates: Accepted
    n_rows: Longs  # (n,) item rows that each of the delegates sent
    private_state: PrivateState
    """What their devices keep, a row for each of the delegates."""


NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class SecureSum:
    """How the sums of an exchange are made of numbers that are added up in secret."""

    by_item: tuple[str, ...] = ()
    """Sums with a row for every item."""
    table: Callable[[World, Sums], Sums] = lambda world, sums: sums
    """(world, sums) -> with a row for every item, where the exchange adds up fewer."""
    back: Callable[[World, Sums], Sums] = lambda world, sums: sums
    """And back again."""
    rows: Callable[[World, int], Ints] | None = None
    """(world, number of the ring) -> the rows that its members can touch, where those are not all."""


def added(first: Sums, second: Sums) -> Sums:
    """Sums over some users, and over others, as sums over all of them."""
    return {name: total + second[name] for name, total in first.items()}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One message to every node of the cohort, one reply from each."""

    ask: Ask
    answer: Callable[[World, Message, NodeData], Answer]
    """What a node's users make of it, on their own histories; and what their devices keep of it, where they keep anything."""
    reduce: Callable[[World, Message, Updates], Sums]
    """(world, what was sent, updates) -> integer sums over users: the order is nothing to them, and they can be made in parts
    or in secret."""
    finish: Callable[[World, Any, Sums, Accepted, int], Any]
    """(world, state, sums, delegates, t) -> the next state: the paper's formula."""
    sizes: Callable[[World, Any], Sizes]
    """(world, state) -> what an update may hold."""
    at_once: Callable[[World, Any], int] = lambda world, state: NO_LIMIT
    """(world, state) -> how many users' updates are held at a time. A larger cohort is heard in parts, whose sums are added."""
    fused: Callable[[World, Message, NodeData], SinglePass | None] = lambda *given: None
    """(world, message, the only node) -> all of it in one call of a kernel, where everybody's update would be accepted; None where
    it cannot or one would not. The bits are those of `answer` and `reduce`; of models in PyTorch, all but the last."""
    together: Callable[[Sums, Sums], Sums] | None = added
    """What sums over two parts of a cohort are as sums over both; None where there is nothing to add up, and the server has to know who
    said what."""
    role: str = ""
    """Which server asks and hears; "" where there is but one. It sees its own part of the state."""
    beside: tuple[tuple[str, Ask], ...] = ()
    """(role, ask) of other servers whose part of the message comes along."""
    ring: SecureSum | None = None
    """How a ring adds it up; None where it cannot, since the server has to know who said what."""
    clear: str = ""
    """What the server hears of everybody in the clear all the same; "" if nothing, or where a ring would be no protection at all."""
    unheard: Callable[[World], bool] = lambda world: False
    """Whether settings keep even that from the server."""


@dataclass(frozen=True, slots=True)
class Relay:
    """What one server tells another; no user has a part in it."""

    sender: str
    receiver: str
    tell: Callable[[World, Any, int], tuple[Any, dict[str, np.ndarray]]]
    """(world, the sender's state, t) -> its state afterwards, and what is told."""
    hear: Callable[[World, Any, dict[str, np.ndarray], int], Any]
    """(world, the receiver's state, what was told, t) -> its state afterwards."""


class SequentialRounds(NamedTuple):
    """Rounds of one user each: the state after them, and what each was."""

    state: Any
    users: Ints  # (rounds,)
    n_rows: Longs  # (rounds,) item rows that were sent; 0 where nothing was
    faults: Longs  # (rounds,) what was wrong with an update, as validation counts


@dataclass(frozen=True, slots=True)
class Federation:
    start: Callable[[World], Any]
    """The state before anybody said anything."""
    sample: Callable[[World, Any, int], Ints]
    """(world, state, t) -> who takes part in round t, ascending."""
    exchanges: tuple[Exchange | Relay, ...]
    """Those of a round, one after the other, with the same users."""
    model: Callable[[World, Any], Recommender]
    opening: Callable[[World], Exchange | None] = lambda world: None
    """An exchange with everybody before the first round, where one is needed."""
    devices: Callable[[World, NodeData], PrivateState] = lambda world, node: {}
    """(world, node) -> what devices begin with, a row for every user of the node: the private fields of the state."""
    rounds_per_step: Callable[[World], int] = lambda world: 1
    """How many rounds are played between two looks at the model: an epoch, where papers count in epochs."""
    sequential: Callable[[World, NodeData, Any, range], SequentialRounds | None] = lambda *given: (
        None
    )
    """(world, the only node, state, rounds) -> rounds of one user each, all in one call of a kernel; None where it cannot. The bits
    are those of the rounds one by one."""
    vectors: Callable[[World, NodeData], float] | None = None
    """(world, everybody) -> how many vectors travel in a step, where a paper counts costs so."""
    told: Callable[[TrainingSet, Any], tuple[Content, Content] | None] = lambda training, settings: (
        None
    )
    """(training, settings) -> what a server knows about items, and what devices know about items and people, as a model reads it."""
    serve: Callable[[World, Any, NodeData], PrivateState] | None = None
    """(world, state, node) -> fields of the model that devices make for themselves, a row for every user of the node."""
    served: tuple[str, ...] = ()
    """Fields of the state that they need for it."""
    people: Callable[[World, NodeData, int], dict[str, Floats]] = lambda *given: {}
    """(world, everybody, last step) -> what users differ in by their own choice: results are broken down by it."""
