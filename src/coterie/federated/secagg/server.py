"""Secure aggregation of a whole cohort: rings or groups sum in secret, and the server adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from coterie.core import streams
from coterie.federated.aggregation import Aggregate
from coterie.federated.contract import check_words
from coterie.federated.federation import (
    Accepted,
    AnyExchange,
    AnyWorld,
    ClientTask,
    SecureSum,
    Sums,
)
from coterie.federated.privacy.noise import with_central_noise
from coterie.federated.robust.groups import too_few_groups, without_extremes
from coterie.federated.secagg.channel import CallTask, Dropouts, StageChannel, Step
from coterie.federated.secagg.client_bytes import ComputeBytes
from coterie.federated.secagg.group_bytes import group_bytes
from coterie.federated.secagg.group_node import GroupStage
from coterie.federated.secagg.group_sum import steps_of_group, sum_group
from coterie.federated.secagg.ring_bytes import ring_bytes
from coterie.federated.secagg.ring_node import RingStage
from coterie.federated.secagg.ring_sum import RING_STEPS, sum_ring
from coterie.federated.secagg.stages import GROUP_STAGES, Aborted
from coterie.federated.secagg.summed_vector import zero_sums
from coterie.federated.secagg.vector_sum import VectorSum
from coterie.types import Bools, Ints, Message, Sizes

ABORTED = "secure aggregation aborted"
"""Why an update did not count, in the counts of refusals."""

SumClients = Callable[[AnyWorld, AnyExchange, Sizes, int, Ints, StageChannel], VectorSum]
"""(world, exchange, sizes, number, users, channel) -> the sum over one ring or group."""


@dataclass(frozen=True, slots=True)
class ServerProtocol:
    """A protocol of secure aggregation, as a server runs it."""

    task: Callable[[str, AnyExchange], ClientTask]
    sum_clients: SumClients
    steps: Callable[[AnyWorld, AnyExchange, Sizes], tuple[Step, ...]]
    """A client's messages, in their order."""
    n_after_upload: int
    """How many of them come after the upload."""
    client_bytes: ComputeBytes
    """What a client sends and receives, computed without a run."""


PROTOCOLS = {
    "ring": ServerProtocol(
        RingStage, sum_ring, lambda world, exchange, sizes: RING_STEPS, 1, ring_bytes
    ),
    "secagg": ServerProtocol(GroupStage, sum_group, steps_of_group, 2, group_bytes),
}


def stage_task(stage: str, exchange: AnyExchange) -> RingStage | GroupStage:
    """The task of nodes at a stage of either protocol."""
    return GroupStage(stage, exchange) if stage in GROUP_STAGES else RingStage(stage, exchange)


def aggregate_securely(
    world: AnyWorld,
    exchange: AnyExchange,
    server: object,
    message: Message,
    call: CallTask,
    absent: Bools | None = None,
) -> Aggregate:
    """Run an exchange under secure aggregation: sums over all clients whose upload counts.

    `absent` marks the clients whose update is lost in a simulation.
    """
    secure = exchange.secure_sum
    assert secure is not None
    check_words(world, secure)
    protocol = PROTOCOLS[world.settings.secure_aggregation]
    sizes = exchange.sizes(world, server)
    steps = protocol.steps(world, exchange, sizes)
    uploads = len(steps) - protocol.n_after_upload - 1
    dropouts = Dropouts.draw(world, message, absent, steps, uploads)
    all_items = np.arange(sizes.items, dtype=np.int32)
    totals = GroupTotals(world, secure, zero_sums(world, exchange, message, sizes, all_items))
    parts = []
    for number, users in enumerate(assign_groups(world, message.users, message.round)):
        channel = StageChannel(exchange, message, protocol.task, call, dropouts)
        try:
            vector_sum = protocol.sum_clients(world, exchange, sizes, number, users, channel)
        except Aborted:
            stayed = sum(not dropouts.is_lost(user, uploads) for user in users.tolist())
            parts.append(_aborted_part(stayed, channel, sizes))
            continue
        totals.add(vector_sum)
        parts.append(
            Aggregate(
                sums={},
                accepted=vector_sum.accepted(sizes),
                bytes_up=channel.bytes_up,
                refused=Counter(),
                private_state=channel.private_state_of(vector_sum.users),
                bytes_down=channel.bytes_down,
            )
        )
    if too_few_groups(world, len(totals.n_clients)):
        parts = [_left_out(part, sizes) for part in parts]
    aggregate = parts[0]
    for later in parts[1:]:
        aggregate = aggregate.joined(later)
    total = with_central_noise(world, exchange, message, totals.whole)
    return replace(aggregate, sums=secure.from_table(world, total))


@dataclass(slots=True)
class GroupTotals:
    """The sums of a round: over all its groups or, with robust=groups, of each for itself."""

    world: AnyWorld
    secure: SecureSum
    nothing: Sums
    tables: list[Sums] = field(default_factory=list)
    n_clients: list[int] = field(default_factory=list)

    def add(self, group: VectorSum) -> None:
        # One table for all groups, unless they are compared: a table may be large.
        if not self.tables or self.world.settings.robust == "groups":
            self.tables.append({name: part.copy() for name, part in self.nothing.items()})
        group.add_to(self.tables[-1], self.secure)
        self.n_clients.append(len(group.users))

    @property
    def whole(self) -> Sums:
        """The sums over all groups; with robust=groups without the extreme ones."""
        if not self.tables or too_few_groups(self.world, len(self.n_clients)):
            return self.nothing
        if self.world.settings.robust == "groups":
            return without_extremes(self.secure, self.tables, self.n_clients)
        return self.tables[0]


def assign_groups(world: AnyWorld, users: Ints, t: int) -> list[Ints]:
    """The rings or groups of a round."""
    return assign_rings(users, world.settings.largest_group, world.seed, t)


def assign_rings(users: Ints, size: int, seed: int, t: int) -> list[Ints]:
    """Split a cohort into rings of about the same size, in a random order, at most `size` each.

    The order is drawn anew every round: neighbours that collude with the server can recover an
    update, and should not stay neighbours.
    """
    n = -(-len(users) // size)
    return np.array_split(streams.at(seed, "rings", t).permutation(users), n) if n else []


def _aborted_part(stayed: int, channel: StageChannel, sizes: Sizes) -> Aggregate:
    """What an aborted ring or group adds to a round: its bytes, and no update."""
    return Aggregate(
        sums={},
        accepted=_no_clients(sizes),
        bytes_up=channel.bytes_up,
        refused=+Counter({ABORTED: stayed}),
        private_state=(),
        bytes_down=channel.bytes_down,
    )


def _left_out(part: Aggregate, sizes: Sizes) -> Aggregate:
    """What a group adds to a round that does not count: its bytes, and no update."""
    refused = part.refused + Counter({ABORTED: len(part.accepted.users)})
    return replace(part, accepted=_no_clients(sizes), refused=+refused, private_state=())


def _no_clients(sizes: Sizes) -> Accepted:
    rows = np.empty((0, sizes.user_width), np.int32)
    return Accepted(np.empty(0, np.int32), np.empty(0, np.int64), rows)
