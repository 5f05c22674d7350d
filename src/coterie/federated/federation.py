"""The contract of a federated algorithm: who takes part, and exchanges of four pure functions.

A federated algorithm is a value, `Federation`. Its rounds are exchanges between the server and the
clients of a cohort. An exchange has four functions, each over frozen data:

    broadcast       server    the message: arrays for all clients, and rows for single clients
    client_update   clients   what clients learn from it on their own data
    aggregate       server    integer sums over the clients' updates
    server_update   server    the paper's formula: the next state from the sums

`aggregate` also runs inside secure aggregation, and on nodes that are trusted to add up for their
own clients: integer sums do not depend on the order or the grouping of clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from coterie.core.records import Record
from coterie.data.training_set import TrainingSet
from coterie.federated.costs import Costs
from coterie.federated.robust.multiples import Multiples
from coterie.federated.secagg.words import MAX_ENTRY, Word
from coterie.federated.settings import FederationSettings
from coterie.models.recommender import Recommender
from coterie.types import TOO_LARGE, Bools, Floats, Ids, Ints, Longs, Message, Sizes, Updates

if TYPE_CHECKING:
    from coterie.data.content import Content
    from coterie.federated.secagg.identity import Identities
    from coterie.federated.secagg.session import SessionSlot

State = TypeVar("State", bound=Record)
"""What the server carries from round to round."""
AlgorithmSettings = TypeVar("AlgorithmSettings", bound=FederationSettings)
SettingsOf = TypeVar("SettingsOf", bound=FederationSettings, covariant=True)

Sums = dict[str, NDArray[np.int64]]
"""Integer sums over clients, by name."""
PrivateState = dict[str, np.ndarray]
"""What clients store for themselves, by name: a row for every client of the message."""
Arrays = dict[str, np.ndarray]

ON_CLIENTS: Any = None
"""The value of a private field of the state on the server: its rows are on the clients."""
RECOMMENDATION = "recommendation"
"""The role of the server that holds the items, where there are several servers."""
AGGREGATION = "aggregation"
"""The role of the server that aggregates updates, where there are several servers."""


@dataclass(frozen=True, slots=True)
class World(Generic[SettingsOf]):
    """What the server knows apart from messages. Nodes know it too, but no user features."""

    settings: SettingsOf
    seed: int
    """Seed of the server's choices: initial values and cohorts. Clients draw from another seed."""
    n_users: int
    n_items: int
    members: Bools
    """(users,) whether a user takes part: those with something to train on."""
    user_features: Mapping[str, Ids]
    n_positives: int = 0
    """Number of interactions in all histories together (X+): all a server knows of them."""
    rated: bool = False
    """Whether clients learn from ratings."""
    content: Content | None = None
    """Item content. Known to the server that recommends items, not to other servers or nodes."""
    client_content: Content | None = None
    """Content that clients know about items and their own user. No server sees it."""
    presence: Longs | None = None
    """A trace of available clients: see `TrainingSet`."""
    available: Bools | None = None
    """(users,) whether a client is available in this round; None where all are."""
    run: str = ""
    """Identifies a federation's run among others with the same seed; "" in a simulation."""

    @property
    def present(self) -> Bools:
        """(users,) whether a client can be selected in this round."""
        return self.members if self.available is None else self.members & self.available

    @property
    def n_members(self) -> int:
        """Number of users that take part."""
        return int(np.count_nonzero(self.members))

    def seen_by(self, role: str) -> World[SettingsOf]:
        """What one of several servers knows: its own content, and nothing that clients know."""
        if not role and self.client_content is None:
            return self
        return replace(
            self,
            content=self.content if role in ("", RECOMMENDATION) else None,
            client_content=None,
            user_features={} if role else self.user_features,
        )


@dataclass(frozen=True, slots=True)
class NodeData:
    """The private data of a node: the histories of its users."""

    users: Ints  # ascending
    training: TrainingSet  # its k-th user is users[k]
    seed: int = 0
    """Seed of what clients draw. With it, drawn negatives could be separated from real ones."""
    identities: Identities | None = None
    """Signing keys, for `secagg`."""

    def positions(self, users: Ints) -> Longs:
        """Where users stand among the users of this node."""
        positions = np.searchsorted(self.users, users)
        inside = len(users) == 0 or positions.max() < len(self.users)
        if not inside or (self.users[positions] != users).any():
            raise ValueError("a message selects users that this node does not host")
        return positions


class Accepted(NamedTuple):
    """Clients whose updates were accepted, and the part of their updates that is theirs alone."""

    users: Ints
    samples: Longs
    user_rows: Ints  # (n, width) change in fixed point

    def take(self, which: Longs) -> Accepted:
        return Accepted(self.users[which], self.samples[which], self.user_rows[which])

    def and_others(self, others: Accepted) -> Accepted:
        return Accepted(
            np.concatenate([self.users, others.users]),
            np.concatenate([self.samples, others.samples]),
            np.concatenate([self.user_rows, others.user_rows]),
        )


ClientResult: TypeAlias = Updates | tuple[Updates, PrivateState]
"""What clients make of a message: updates and, where they store any, their next private state."""


class ClientTask(Protocol):
    """Something that nodes do with a message: an exchange, or a stage of secure aggregation."""

    @property
    def role(self) -> str: ...

    def run(
        self, world: World[Any], message: Message, node: NodeData, slot: SessionSlot
    ) -> ClientResult | tuple[Arrays, PrivateState]:
        """The updates, or the columns of a stage; `slot` has the node's secrets between stages."""
        ...


class SinglePass(NamedTuple):
    """The result of an exchange that one kernel call trained, validated and aggregated."""

    sums: Sums
    accepted: Accepted
    n_rows: Longs  # (n,) item rows that each accepted client would have sent
    private_state: PrivateState
    """The next private state, a row for each accepted client."""


@dataclass(frozen=True, slots=True)
class SequentialRounds(Generic[State]):
    """Rounds of one client each, computed in one kernel call: the state after them, and costs."""

    state: State
    users: Ints  # (rounds,)
    n_rows: Longs  # (rounds,) item rows that were sent; 0 where nothing was
    faults: Longs  # (rounds,) what was wrong with an update, as validation numbers faults


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureSum:
    """How the sums of an exchange become vectors that secure aggregation adds up."""

    by_item: tuple[str, ...] = ()
    """Sums that have a row for every item."""
    to_table: Callable[[World[Any], Sums], Sums] = lambda world, sums: sums
    """(world, sums) -> sums with a row for every item, where the exchange sums over fewer."""
    from_table: Callable[[World[Any], Sums], Sums] = lambda world, sums: sums
    """The inverse of `to_table`."""
    rows: Callable[[World[Any], int], Ints] | None = None
    """(world, index of the ring) -> the rows its clients can touch, where those are not all."""
    word: Callable[[World[Any]], Word] = lambda world: 64
    """Bits of the words that are summed: 32, where the sum over a ring fits, halves the bytes."""
    max_entry: Callable[[World[Any]], int] = lambda world: MAX_ENTRY
    """Bound of an entry of one client's sums. A client with a larger one uploads nothing; the
    largest ring times the bound has to be below 2^(word - 1)."""
    whole_rows: bool = False
    """Whether rows make sense only as sums over the same clients in every column, as second moments
    do. With robust=groups, a group then counts for all of a row or for nothing of it."""
    reveals: str = ""
    """What attackers find in the sums of a ring; "" where none is known. A run logs it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSum:
    """How the sums of an exchange become differentially private.

    Under a privacy budget, the sums over any one client, as one vector of integers, have an L2 norm
    of at most the `sensitivity` of the exchange's `NoisePlan`. The exchange's functions ensure it.
    """

    releases: Callable[[AnyWorld], int]
    """How many sums of a run a client's data enters at most."""
    cohort_size: Callable[[AnyWorld], int]
    """How many clients a sum is over if none drops out."""
    drawn_anew: bool = False
    """Whether every round draws its cohort from all clients, whatever was before. Then the cohort
    may be a Poisson sample, which makes the same noise hide more."""


LARGEST_ENTRY = TOO_LARGE - 1
"""Bound of an entry of a valid update."""


def unweighted(by_item: tuple[str, ...] = (), **others: Any) -> SecureSum:
    """For sums of updates as they are, not weighted: words of 32 bits, where a group's sum fits."""

    def word(world: World[Any]) -> Word:
        n = min(world.settings.largest_group, world.n_users)
        return 32 if n * LARGEST_ENTRY < 1 << 31 else 64

    return SecureSum(by_item=by_item, word=word, max_entry=lambda world: LARGEST_ENTRY, **others)


def add_sums(first: Sums, second: Sums) -> Sums:
    """Sums over two disjoint groups of clients as sums over both."""
    return {name: total + second[name] for name, total in first.items()}


NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPaths(Generic[State, AlgorithmSettings]):
    """Shortcuts for speed. Leaving them all out changes no bit of a result."""

    chunk_size: Callable[[World[AlgorithmSettings], State], int] = lambda world, state: NO_LIMIT
    """(world, state) -> how many updates are held in memory at a time. A larger cohort is trained
    in chunks, whose sums are combined."""
    single_pass: Callable[[World[AlgorithmSettings], Message, NodeData], SinglePass | None] = (
        lambda world, message, node: None
    )
    """(world, message, the only node) -> the whole exchange in one kernel call; None where that is
    impossible, or where validation would refuse an update. Bits are those of `client_update` and
    `aggregate`, except for the last bits of PyTorch models."""
    combine: Callable[[Sums, Sums], Sums] | None = add_sums
    """(sums, sums) over two groups of clients -> sums over both; None where nodes cannot sum up
    beforehand, because the server must know which client sent what."""
    sequential_rounds: Callable[
        [World[AlgorithmSettings], NodeData, State, range], SequentialRounds[State] | None
    ] = lambda world, node, state, rounds: None
    """(world, the only node, state, rounds) -> rounds of one client each in one kernel call; None
    where that is impossible. Bits are those of the rounds one by one."""
    whole_round: Callable[
        [World[AlgorithmSettings], NodeData, State, Ints, int], tuple[State, Costs] | None
    ] = lambda world, node, state, cohort, t: None
    """(world, the only node, state, cohort, t) -> the state after all exchanges of round t, and
    what their messages would have cost; None where that is impossible. It belongs to the first
    exchange. The state is that of the exchanges one by one, except for the last bits of PyTorch
    models."""


Broadcast: TypeAlias = Callable[[World[AlgorithmSettings], State, Ints, int], Message]
"""(world, state, cohort, t) -> the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange(Generic[State, AlgorithmSettings]):
    """One message to every node that hosts a client of the cohort, and one reply from each."""

    broadcast: Broadcast[AlgorithmSettings, State]
    client_update: Callable[[World[AlgorithmSettings], Message, NodeData], ClientResult]
    """(world, message, node) -> the updates of the message's clients, trained on their data."""
    aggregate: Callable[[World[AlgorithmSettings], Message, Updates], Sums]
    """(world, message, updates) -> integer sums over clients."""
    server_update: Callable[[World[AlgorithmSettings], State, Sums, Accepted, int], State]
    """(world, state, sums, accepted clients, t) -> the next state: the paper's formula."""
    sizes: Callable[[World[AlgorithmSettings], State], Sizes]
    """(world, state) -> the sizes that a valid update has."""
    fast: FastPaths[State, AlgorithmSettings] = field(default_factory=FastPaths)
    role: str = ""
    """The server that broadcasts and aggregates; "" where there is only one. It sees its own part
    of the state."""
    other_broadcasts: tuple[tuple[str, Broadcast[AlgorithmSettings, State]], ...] = ()
    """(role, broadcast) of other servers whose arrays travel with the message."""
    secure_sum: SecureSum | None = None
    """How secure aggregation computes the sums; None where it cannot."""
    private_sum: PrivateSum | None = None
    """How the sums become differentially private; None where they cannot."""
    bounds: Callable[[World[AlgorithmSettings]], Multiples] = lambda world: Multiples()
    """How far a client may exceed the others of its round, with a defence (`robust`)."""
    visible: str = ""
    """What the server still sees of every client under secure aggregation; "" if nothing, or where
    secure aggregation would protect nothing at all."""
    hides_visible: Callable[[World[AlgorithmSettings]], bool] = lambda world: False
    """Whether the settings hide even that from the server."""

    def run(
        self, world: World[AlgorithmSettings], message: Message, node: NodeData, slot: SessionSlot
    ) -> ClientResult:
        """As a task of nodes: an exchange in the open has no secrets between stages."""
        return self.client_update(world, message, node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relay(Generic[State, AlgorithmSettings]):
    """A message from one server to another. No client takes part."""

    sender: str
    receiver: str
    send: Callable[[World[AlgorithmSettings], State, int], tuple[State, Arrays]]
    """(world, the sender's state, t) -> its next state, and the arrays it sends."""
    receive: Callable[[World[AlgorithmSettings], State, Arrays, int], State]
    """(world, the receiver's state, the arrays, t) -> its next state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation(Generic[State, AlgorithmSettings]):
    """A federated algorithm."""

    init: Callable[[World[AlgorithmSettings]], State]
    """The state before the first round, without the clients' private state."""
    sample: Callable[[World[AlgorithmSettings], State, int], Ints]
    """(world, state, t) -> the cohort of round t, ascending."""
    exchanges: tuple[Exchange[State, AlgorithmSettings] | Relay[State, AlgorithmSettings], ...]
    """The exchanges of a round, one after the other, with the same cohort."""
    model: Callable[[World[AlgorithmSettings], State], Recommender]
    final_solve: Callable[[World[AlgorithmSettings]], str] = lambda world: ""
    """world -> what `model` makes the server compute after the last round, in words; "" where that
    takes no time to speak of. A run announces it and counts it as training. It calls `model` more
    than once, which has to remember its result."""
    setup: Callable[[World[AlgorithmSettings]], Exchange[State, AlgorithmSettings] | None] = (
        lambda world: None
    )
    """An exchange with all clients before the first round, where one is needed."""
    init_clients: Callable[[World[AlgorithmSettings], NodeData], PrivateState] = (
        lambda world, node: {}
    )
    """(world, node) -> the initial private state, a row for every user of the node. Its names are
    the private fields of the state."""
    not_private: Callable[[World[AlgorithmSettings]], str] = lambda world: ""
    """world -> why it cannot be trained under a privacy budget, where that is not plain from
    `visible`; "" where it can."""
    fixed_users: str = ""
    """Why users cannot join while it trains; "" where they can. Their rows then begin as those of
    `init` and `init_clients`."""
    rounds_per_step: Callable[[World[AlgorithmSettings]], int] = lambda world: 1
    """Rounds between two evaluations: those of an epoch, where a paper counts in epochs."""
    content: Callable[[TrainingSet, AlgorithmSettings], tuple[Content, Content] | None] = (
        lambda training, settings: None
    )
    """(training set, settings) -> item content for the server, and content for the clients."""
    client_model: Callable[[World[AlgorithmSettings], State, NodeData], PrivateState] | None = None
    """(world, state, node) -> fields of the model that clients compute for themselves, a row for
    every user of the node."""
    client_model_needs: tuple[str, ...] = ()
    """Fields of the state that `client_model` reads."""
    vectors_per_step: Callable[[World[AlgorithmSettings], NodeData], float] | None = None
    """(world, all users) -> vectors sent in a step, where a paper counts costs in vectors."""
    user_choices: Callable[[World[AlgorithmSettings], NodeData, int], dict[str, Floats]] = (
        lambda world, node, step: {}
    )
    """(world, all users, last step) -> choices in which users differ; results are broken down by
    them."""


def exchanges_with_clients(federation: AnyFederation, world: AnyWorld) -> list[AnyExchange]:
    """All exchanges of a run in which clients take part, the setup's first."""
    listed = (federation.setup(world), *federation.exchanges)
    return [exchange for exchange in listed if isinstance(exchange, Exchange)]


AnyWorld: TypeAlias = World[Any]
AnyExchange: TypeAlias = Exchange[Any, Any]
AnyFederation: TypeAlias = Federation[Any, Any]
"""For code that handles every algorithm and looks into none."""
