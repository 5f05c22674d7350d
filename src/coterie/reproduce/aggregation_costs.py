"""Time of secure aggregation in a round, for a device and for the server, by size of the cohort.

Times are those of the ring protocol alone. Devices already have their gradients of the user tower.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from coterie.algorithms.two_tower.settings import FederatedTowers
from coterie.algorithms.two_tower.training import TowerOps
from coterie.federated.secagg.crypto import Uint64Array
from coterie.federated.secagg.ring import Ring, collect_keys, min_survivors
from coterie.federated.secagg.ring_member import RingMember, RingTerms
from coterie.federated.secagg.ring_node import reply_to
from coterie.federated.secagg.server import assign_rings
from coterie.federated.secagg.stages import StageArrays
from coterie.reproduce.device_costs import milliseconds
from coterie.reproduce.items import MeasuredRows
from coterie.types import Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Cohort:
    """The users of a round, and the tower whose gradients they send."""

    tower: str
    users: int
    inputs: int


def aggregation_costs(cohorts: Mapping[str, Cohort]) -> MeasuredRows:
    """Milliseconds of a device and of the server, and a device's megabytes, by cohort."""
    return {label: costs_of(cohort) for label, cohort in cohorts.items()}


def costs_of(cohort: Cohort) -> dict[str, float]:
    settings = FederatedTowers.of(
        {"tower": cohort.tower, "inputs": cohort.inputs, "secure_aggregation": "ring"}
    )
    length = TowerOps(settings).size
    costs = round_costs(cohort.users, settings.ring_size, length)
    return {
        "device ms": milliseconds(costs.device_seconds),
        "server ms": milliseconds(costs.server_seconds),
        "device MB": costs.device_bytes / 1e6,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCosts:
    """The costs of one round."""

    device_seconds: float
    """The median over devices."""
    server_seconds: float
    """All that is not spent on devices, over all rings of the round."""
    device_bytes: float
    """Sent and received by the median device."""


def round_costs(n_users: int, ring_size: int, length: int) -> RoundCosts:
    """Sum vectors of zeros over a cohort, ring by ring; no device drops out."""
    everyone = np.arange(n_users, dtype=np.int32)
    device_seconds: list[float] = []
    device_bytes: list[int] = []
    server = 0.0
    for ring, users in enumerate(assign_rings(everyone, ring_size, 0, 0)):
        timed = TimedRing.of(RingTerms(0, 0, ring, length), users)
        began = time.perf_counter()
        timed.aggregate()
        server += time.perf_counter() - began - sum(timed.seconds.values())
        device_seconds += timed.seconds.values()
        device_bytes += timed.traffic.values()
    return RoundCosts(
        device_seconds=statistics.median(device_seconds),
        server_seconds=server,
        device_bytes=statistics.median(device_bytes),
    )


@dataclass(frozen=True, slots=True)
class TimedRing:
    """The members of a ring, and the costs of each."""

    terms: RingTerms
    members: dict[int, RingMember]
    seconds: dict[int, float]
    traffic: dict[int, int]
    """Bytes of the arrays that a member sends and receives."""

    @classmethod
    def of(cls, terms: RingTerms, users: Ints) -> TimedRing:
        zeros: Uint64Array = np.zeros(terms.length, np.uint64)
        members = {user: RingMember(user, terms, lambda: zeros) for user in users.tolist()}
        return cls(terms, members, dict.fromkeys(members, 0.0), dict.fromkeys(members, 0))

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
            self.seconds[user] += time.perf_counter() - began
            self.traffic[user] += _n_bytes(received) + _n_bytes(reply)
            replies[user] = {
                name: rows[0] for name, rows in reply.items() if name not in ("users", "stage")
            }
        return replies


def _n_bytes(arrays: StageArrays) -> int:
    return sum(array.nbytes for array in arrays.values())
