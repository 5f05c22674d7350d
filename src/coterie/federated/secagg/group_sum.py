"""The server's side of `secagg` through an engine: the phases of a group, and their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.federated.federation import AnyExchange, AnyWorld
from coterie.federated.privacy.noise import fewest_survivors
from coterie.federated.secagg import group_stages
from coterie.federated.secagg.channel import StageChannel, Step
from coterie.federated.secagg.group import Group
from coterie.federated.secagg.group_member import Advert, GroupTerms
from coterie.federated.secagg.group_terms import (
    ROW_WORD,
    ROWS,
    VALUES,
    GroupHeader,
    digest_of_broadcast,
    group_terms,
    sums_union,
)
from coterie.federated.secagg.session import GroupId
from coterie.federated.secagg.stages import (
    ADVERTISE,
    AGREE,
    GROUP_STAGES,
    SHARE,
    UNMASK,
    UPLOAD,
    ReplySpec,
    StageArrays,
    matches,
)
from coterie.federated.secagg.summed_vector import summed_rows, vector_length
from coterie.federated.secagg.vector_sum import VectorSum, in_the_clear
from coterie.federated.secagg.words import Word
from coterie.types import Ints, Longs, Sizes

ON_THE_WIRE = dict(
    zip(
        ("advertise", "share", "upload", "agree", "unmask"),
        (ADVERTISE, SHARE, UPLOAD, AGREE, UNMASK),
        strict=True,
    )
)
"""The stages of `Group` by their names on the wire."""


def steps_of_group(world: AnyWorld, exchange: AnyExchange, sizes: Sizes) -> tuple[Step, ...]:
    """The messages of a client of a group, before which a simulated dropout happens."""
    phases = (ROWS, VALUES) if sums_union(world, exchange, sizes) else (VALUES,)
    return tuple((phase, stage) for phase in phases for stage in GROUP_STAGES)


def sum_group(
    world: AnyWorld,
    exchange: AnyExchange,
    sizes: Sizes,
    number: int,
    users: Ints,
    channel: StageChannel,
) -> VectorSum:
    secure = exchange.secure_sum
    assert secure is not None
    server = GroupServer(world, sizes, number, channel)
    if sums_union(world, exchange, sizes):
        random_words, users = server.run(ROWS, users, sizes.items, ROW_WORD, None)
        union = np.packbits(random_words != 0)
        server.phase_arrays = {"rows": union}
        rows = summed_rows(world, exchange, number, sizes.items, union)
    else:
        rows = summed_rows(world, exchange, number, sizes.items, None)
    length = vector_length(world, exchange, channel.message, sizes, rows)
    if exchange.visible:
        server.clear = in_the_clear(sizes)
    vector, users = server.run(VALUES, users, length, secure.word(world), secure.max_entry(world))
    clear = {
        name: np.stack([server.in_clear[user][name] for user in users.tolist()])
        for name in server.clear
    }
    return VectorSum(vector, rows, users, clear)


@dataclass(slots=True)
class GroupServer:
    """A group from phase to phase: `Group` with arrays instead of what clients send."""

    world: AnyWorld
    sizes: Sizes
    number: int
    channel: StageChannel
    phase_arrays: StageArrays = field(default_factory=dict)
    """Arrays that are broadcast at the first stage of a phase."""
    clear: ReplySpec = field(default_factory=dict)
    """What clients upload in the clear."""
    context: bytes = b""
    """Of the terms of the phase before."""
    terms: GroupTerms | None = None
    adverts: Mapping[int, Advert] = field(default_factory=dict)
    in_clear: dict[int, StageArrays] = field(default_factory=dict)

    def run(
        self, phase: int, users: Ints, length: int, word: Word, max_entry: int | None
    ) -> tuple[Longs, Ints]:
        """The sum of one phase, and the clients that count; entries are bounded or random."""
        channel = self.channel
        header = GroupHeader(self.number, phase, *self.sizes)
        channel.phase = phase
        channel.common = {"group": np.array(header, np.int64)}
        members = np.sort(users)
        self.phase_arrays = self.phase_arrays | {"members": members}
        first = channel.message_of(ADVERTISE, members, {}, self.phase_arrays)
        broadcast = digest_of_broadcast(first.common, self.context)
        self.terms = group_terms(
            self.world,
            GroupId(first.round, first.exchange, self.number),
            phase,
            tuple(members.tolist()),
            length,
            word,
            broadcast,
            fewest_survivors(self.world, channel.exchange),
        )
        vector, survivors = Group(self.terms, self.send, max_entry).aggregate()
        self.context = self.terms.context
        channel.first = False
        return vector, group_stages.users_array(survivors)

    def send(self, stage: str, out: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Send what `Group` has for each client; the replies that are well-formed."""
        name = ON_THE_WIRE[stage]
        terms = self.terms
        assert terms is not None
        ascending = dict(sorted(out.items()))
        common, own = group_stages.to_clients(name, ascending)
        if name == ADVERTISE:
            common = self.phase_arrays
        arrays = self.channel.send(name, np.array(list(ascending), np.int32), own, common)
        replies = {}
        for user, received in arrays.items():
            chosen = self.adverts[user].holders if user in self.adverts else ()
            if name == UPLOAD and self.clear:
                shown = {key: received.pop(key) for key in self.clear if key in received}
                if not matches(shown, self.clear):
                    continue
                self.in_clear[user] = shown
            reply = group_stages.from_client(
                name, received, terms.holders, chosen, terms.length, terms.word
            )
            if reply is not None:
                replies[user] = reply
        if name == ADVERTISE:
            self.adverts = replies
        return replies
