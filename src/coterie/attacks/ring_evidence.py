"""What a server knows of the rings of a run under secure aggregation (FedALS, FedEASE, FedSLIM).

A ring here is what one sum is over, so that a group of `secagg` is one, too.

The rounds are replayed in the clear, where sums have the same bits. Updates are then added up by
ring, and attackers see the sums alone. They find histories of members, but not whose they are. For
the figures, a history is credited to the member it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from coterie.algorithms import fedals, pair_sums
from coterie.algorithms.local.cooccurrence import upper_to_matrix
from coterie.attacks.eavesdropper import Observation
from coterie.attacks.evidence import Claims
from coterie.attacks.pursuit import LIKED, basis_pursuit
from coterie.attacks.ring_sums import ItemSums, lone_vectors, pair_histories, unmix
from coterie.attacks.solved_vectors import Whitened, equations, whiten
from coterie.federated.federation import AnyWorld
from coterie.federated.secagg.server import assign_groups
from coterie.types import SCALE, Bools, Doubles, Ints, Longs, Message, Rows

LONE = "lone-item"
UNMIX = "unmix"
PAIRS = "pairs"
SAMPLE = 100
"""Members of the rings that are attacked: rings are drawn at random, and the first ones suffice."""


class RingUpdates(NamedTuple):
    """The updates of a ring: what its members know, of which the server sees sums."""

    t: int
    users: Ints
    history: Rows
    vectors: Ints
    ratings: Ints
    sent: Mapping[str, np.ndarray]

    @property
    def message(self) -> Message:
        return Message(self.t, self.users, dict(self.sent), {})


def rings_of(world: AnyWorld, observation: Observation) -> Iterator[RingUpdates]:
    """The rings of a round."""
    history = Rows(observation.offsets, observation.items)
    rings = assign_groups(world, observation.users, observation.t)
    for users in rings:
        members = np.sort(users)
        places = np.searchsorted(observation.users, members)
        yield RingUpdates(
            observation.t,
            members,
            history.of_users(places),
            observation.dense[places],
            observation.item_rows[history.places(places)],
            observation.sent,
        )


Found = list[tuple[int, Ints | Longs]]
"""(user, items) that were found."""
Attack = Callable[[AnyWorld, RingUpdates], Found]


# FedALS


def item_sums(world: AnyWorld, ring: RingUpdates) -> ItemSums:
    """What the server sees of a ring, for the coordinates that the round solves for."""
    solved = fedals.Solved(ring.history, ring.vectors, ring.ratings)
    sums = fedals.sums(world, ring.message, solved)
    _, block = fedals.block_of(world.settings, ring.t)
    items = sums["items"] * fedals.column_units(world, sums["items"].shape[1])
    upper = fedals.triangle(block.size)
    rows, columns = np.triu_indices(block.size)
    products = np.zeros((len(items), block.size, block.size))
    products[:, rows, columns] = items[:, :upper]
    products[:, columns, rows] = items[:, :upper]
    gram = fedals.symmetric(sums["users"] / SCALE**2, ring.vectors.shape[1])
    part = slice(block.begin, block.end)
    counts = items[:, upper + block.size].astype(np.int64)
    return ItemSums(counts, products, items[:, upper : upper + block.size], gram[part, part])


def by_unmixing(world: AnyWorld, ring: RingUpdates) -> Found:
    """Histories of all members, where they are no more than coordinates."""
    members = unmix(item_sums(world, ring), len(ring.users))
    if members is None:
        return []
    _, block = fedals.block_of(world.settings, ring.t)
    own = ring.vectors[:, block.begin : block.end]
    places = nearest(members.vectors, own.astype(np.float64))
    return [
        (int(ring.users[place]), np.flatnonzero(history))
        for place, history in zip(places, members.histories, strict=True)
    ]


def nearest(vectors: Doubles, own: Doubles) -> Longs:
    """The member that each vector is of, up to sign."""
    lengths = np.linalg.norm(own, axis=1)
    along = np.abs(vectors @ own.T) / np.where(lengths > 0, lengths, np.inf)
    places: Longs = along.argmax(axis=1)
    return places


def by_lone_items(world: AnyWorld, ring: RingUpdates) -> Found:
    """Histories that explain the vectors of members with a lone item."""
    if world.rated or fedals.block_of(world.settings, ring.t)[1].size < ring.vectors.shape[1]:
        return []  # The row has more unknowns than x, or a part of x only.
    items = whiten(ring.sent["item_rows"])
    sums = item_sums(world, ring)
    owners = np.repeat(ring.users, ring.history.counts)
    found: Found = []
    for lone in lone_vectors(sums):
        owner = int(owners[ring.history.items == lone.items[0]][0])
        found.append((owner, pursued(items, lone.x, lone.items, sums.counts, world)))
    return found


def pursued(
    items: Whitened, x: Doubles, lone: Longs, counts: Longs, world: AnyWorld
) -> Ints | Longs:
    """The history that explains x: it has its lone items, and none that no member has."""
    candidates = np.flatnonzero((counts > 1) | np.isin(np.arange(len(counts)), lone))
    known = np.flatnonzero(np.isin(candidates, lone))
    system = equations(items, x, float(world.settings.alpha))
    history = basis_pursuit(
        system._replace(columns=system.columns[:, candidates]), items.Y[candidates] @ x, known
    )
    return lone if history is None else candidates[history > LIKED]


# FedEASE and FedSLIM


def by_pairs(world: AnyWorld, ring: RingUpdates) -> Found:
    """Histories of members with a lone item, and of those with one when they are taken off."""
    upper = pair_sums.sums_of(world, ring.history)["pairs"]
    lower = np.rint(upper_to_matrix(upper, world.n_items, 1)).astype(np.int64)
    pairs = lower + np.tril(lower, -1).T
    owners: dict[bytes, list[int]] = {}
    for place, user in enumerate(ring.users.tolist()):
        owners.setdefault(ring.history.of(place).tobytes(), []).append(user)
    return [
        (user, history)
        for _, history in pair_histories(pairs)
        for user in owners.get(history.tobytes(), [])
    ]


class RingAttacker(NamedTuple):
    name: str
    uses: str
    attack: Attack


ON_FEDALS = (
    RingAttacker(
        LONE,
        "rows of items that one member of a group has: x, and the equations it solves",
        by_lone_items,
    ),
    RingAttacker(
        UNMIX,
        "sums of x x^T by item and over a group of no more members than coordinates",
        by_unmixing,
    ),
)
ON_PAIRS = (
    RingAttacker(
        PAIRS,
        "rows of item pairs that are one user's history; then those without that user",
        by_pairs,
    ),
)


class RingCollector:
    """Stores some rings of the latest round, and attacks their sums."""

    def __init__(self, world: AnyWorld, attackers: tuple[RingAttacker, ...]) -> None:
        self._world = world
        self._attackers = attackers
        self._rings: list[RingUpdates] = []

    @property
    def uses(self) -> Mapping[str, str]:
        return {attacker.name: attacker.uses for attacker in self._attackers}

    def add(self, observation: Observation) -> None:
        self._rings = []
        for ring in rings_of(self._world, observation):
            self._rings.append(ring)
            if sum(len(each.users) for each in self._rings) >= SAMPLE:
                break

    def claims(self) -> dict[str, Claims]:
        return {attacker.name: self._claims(attacker) for attacker in self._attackers}

    def _claims(self, attacker: RingAttacker) -> Claims:
        keys: list[Longs] = [np.empty(0, np.int64)]
        for ring in self._rings:
            for user, items in attacker.attack(self._world, ring):
                keys.append(user * self._world.n_items + items.astype(np.int64))
        claimed = np.unique(np.concatenate(keys))
        nothing = np.zeros(self._world.n_users, np.int64)
        return Claims(claimed, np.ones(len(claimed), np.int64), nothing)

    @property
    def observed(self) -> Bools:
        """(users,) the members of the rings."""
        observed = np.zeros(self._world.n_users, bool)
        for ring in self._rings:
            observed[ring.users] = True
        return observed
