"""Time of secure aggregation in a round, for a device and for the server, by size of the cohort.

Times are those of the ring protocol alone. Devices already have their gradients of the user tower.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from coterie.algorithms.two_tower.settings import FederatedTowers
from coterie.algorithms.two_tower.training import TowerOps
from coterie.federated.secagg.crypto import Uint64Array
from coterie.federated.secagg.node_side import reply_to
from coterie.federated.secagg.ring import Ring, collect_keys, min_survivors
from coterie.federated.secagg.ring_member import RingMember, RingTerms
from coterie.federated.secagg.server import assign_rings
from coterie.federated.secagg.stages import StageArrays
from coterie.reproduce.device_costs import milliseconds
from coterie.reproduce.items import MeasuredRows
from coterie.types import Ints

REPEATS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """The users of a round, and the tower whose gradients they send."""

    tower: str
    users: int
    inputs: int


def aggregation_costs(cohorts: Mapping[str, Cohort]) -> MeasuredRows:
    """Milliseconds of a device and of the server, by cohort; medians of several rounds."""
    return {label: costs_of(cohort) for label, cohort in cohorts.items()}


def costs_of(cohort: Cohort) -> dict[str, float]:
    settings = FederatedTowers.of(
        {"tower": cohort.tower, "inputs": cohort.inputs, "secure_aggregation": "ring"}
    )
    length = TowerOps(settings).size
    rounds = [
        time_round(cohort.users, settings.ring_size, length, number) for number in range(REPEATS)
    ]
    return {
        "device ms": milliseconds(statistics.median(one.device for one in rounds)),
        "server ms": milliseconds(statistics.median(one.server for one in rounds)),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTimes:
    """Seconds of one round."""

    device: float
    """The median over devices."""
    server: float
    """All that is not spent on devices, over all rings of the round."""


def time_round(n_users: int, ring_size: int, length: int, number: int) -> RoundTimes:
    """Sum vectors of zeros over a cohort, ring by ring; no device drops out."""
    everyone = np.arange(n_users, dtype=np.int32)
    devices: list[float] = []
    server = 0.0
    for ring, users in enumerate(assign_rings(everyone, ring_size, 0, number)):
        timed = TimedRing.of(RingTerms(number, 0, ring, length), users)
        began = time.perf_counter()
        timed.aggregate()
        server += time.perf_counter() - began - sum(timed.seconds.values())
        devices += timed.seconds.values()
    return RoundTimes(device=statistics.median(devices), server=server)


@dataclass(frozen=True, slots=True)
class TimedRing:
    """The members of a ring, and the seconds that each has spent."""

    terms: RingTerms
    members: dict[int, RingMember]
    seconds: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, terms: RingTerms, users: Ints) -> TimedRing:
        zeros: Uint64Array = np.zeros(terms.length, np.uint64)
        return cls(terms, {user: RingMember(user, terms, lambda: zeros) for user in users.tolist()})

    def aggregate(self) -> Uint64Array:
        """The sum of the members' vectors."""
        users = np.array(list(self.members), np.int32)
        replies = collect_keys(self.send, users, {})
        keys = {user: reply["key"].tobytes() for user, reply in replies.items()}
        return Ring(self.terms, self.send, min_survivors(len(users))).aggregate(keys).vector

    def send(self, stage: str, users: Ints, own: StageArrays) -> dict[int, StageArrays]:
        """Run a stage on one member after the other."""
        replies = {}
        for k, user in enumerate(users.tolist()):
            received = {name: rows[k : k + 1] for name, rows in own.items()}
            began = time.perf_counter()
            reply = reply_to(stage, self.members, [user], received)
            self.seconds[user] = self.seconds.get(user, 0.0) + time.perf_counter() - began
            replies[user] = {
                name: rows[0] for name, rows in reply.items() if name not in ("users", "stage")
            }
        return replies
