"""A node's ledger: what the data of each user has spent of its privacy, over all runs.

For each run and user the store has the number of releases that the user's data entered, the noise
multiplier of the run, and the last release. It is written and synced before a reply leaves, so that
no crash loses a release that others have seen.

A release is identified by everything that determines the reply. A message that is repeated after a
crash is the same release: it gets the same reply, with the same noise where clients draw it, and
counts once. Another message in the same exchange gets none, and neither does the same message once
the user's history has changed: the difference of two such sums would have the noise of few clients.
With noise=central the server is trusted to add the noise; the node counts all the same.

Releases with noise multipliers z_k, n_k of each, compose to one with the multiplier
(sum n_k / z_k^2)^(-1/2). The chance of not being selected is not counted: a server knows whom it
selects.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie.deployment.node_private_store import NodeStore
from coterie.deployment.node_private_store_faults import damaged
from coterie.federated.privacy import accountant
from coterie.federated.privacy.plan import NoisePlan
from coterie.types import Bools

LARGEST_DELTA = 1e-5
"""A limit holds at the delta of the run, and at most this one: a server could set any other, at
which a run seems to spend nothing."""
ROUNDING = 1e-9
"""Sums of floating-point numbers may exceed a limit by so much, relative to it."""


class Release(NamedTuple):
    """A sum that the data of a user enters."""

    round: int
    """Its number through all branches of the run (`branch_rounds.py`): a round that is played again
    after a roll-back is another release."""
    exchange: int
    digest: bytes
    """Of what the server sent, and of the user's history."""

    @property
    def where(self) -> tuple[int, int]:
        return self.round, self.exchange


class Spent(NamedTuple):
    """What a user's data has spent in one run."""

    releases: int
    multiplier: float
    """The smallest noise multiplier of a release."""
    last: Release

    @property
    def cost(self) -> float:
        """n / z^2. Costs of several runs add up."""
        return self.releases / self.multiplier**2


def spent_in(store: NodeStore, run: str) -> dict[str, Spent]:
    """User id -> what its data has spent in a run."""
    rows = store.connection.execute(
        "select person, releases, multiplier, round, exchange, digest from spent where run = ?",
        (run,),
    )
    return {person: _spent(store, *values) for person, *values in rows}


def cost_of_others(store: NodeStore, run: str) -> dict[str, float]:
    """User id -> the cost of all runs but one."""
    rows = store.connection.execute(
        "select person, releases, multiplier, round, exchange, digest from spent where run != ?",
        (run,),
    )
    total: dict[str, float] = {}
    for person, *values in rows:
        total[person] = total.get(person, 0.0) + _spent(store, *values).cost
    return total


def _spent(
    store: NodeStore, releases: int, multiplier: str, t: int, exchange: int, digest: bytes
) -> Spent:
    if not (isinstance(releases, int) and releases > 0 and is_positive(multiplier)):
        raise damaged(store.path, f"the ledger has {releases!r} releases of noise {multiplier!r}")
    return Spent(releases, float(multiplier), Release(t, exchange, digest))


def is_positive(text: object) -> bool:
    """Whether a text is a finite number above 0."""
    try:
        return 0 < float(str(text)) < math.inf
    except ValueError:
        return False


def epsilon_of(cost: float, delta: float) -> float:
    """The epsilon of all releases together."""
    if cost == 0:
        return 0.0
    return accountant.epsilon_spent(noise_multiplier=cost**-0.5, delta=delta, releases=1)


@dataclass(frozen=True, slots=True)
class RunLedger:
    """The ledger of a node's users in one run."""

    store: NodeStore
    run: str
    plan: NoisePlan
    warn: Callable[[str], None]
    """Shows a warning to the operator of the node, once."""
    excluded: frozenset[str] = field(default_factory=frozenset)
    """Users whose limit the run would exceed."""

    def may_take_part(self, users: Sequence[str], t: int, exchange: int) -> Bools:
        """Whether the data of users may enter one more release, or is in this exchange already."""
        spent = spent_in(self.store, self.run)
        may = [
            user not in self.excluded
            and (user not in spent or self._is_open(spent[user], t, exchange))
            for user in users
        ]
        return self._warned(users, np.array(may, bool))

    def _is_open(self, spent: Spent, t: int, exchange: int) -> bool:
        return spent.last.where == (t, exchange) or spent.releases < self.plan.releases

    def take(self, users: Sequence[str], releases: Sequence[Release]) -> Bools:
        """Count a release for each user; returns for whom the run still allowed it.

        When this returns, the counts are on disk. Users erased meanwhile are not counted.
        """
        may = []
        changed = []
        with self.store.transaction():
            spent = spent_in(self.store, self.run)
            for user, release in zip(users, releases, strict=True):
                before = spent.get(user)
                allowed = user not in self.excluded and self._allows(before, release)
                may.append(allowed)
                if allowed and (before is None or before.last != release):
                    changed.append((self.run, *self._after(before), *release, user))
            self.store.connection.executemany(
                "insert or replace into spent select ?, id, ?, ?, ?, ?, ? from person where id = ?",
                changed,
            )
        return self._warned(users, np.array(may, bool))

    def _allows(self, before: Spent | None, release: Release) -> bool:
        if before is None:
            return True
        if before.last.where == release.where:
            return before.last == release
        return before.releases < self.plan.releases

    def _after(self, before: Spent | None) -> tuple[int, str]:
        """(releases, noise multiplier) with one release more."""
        if before is None:
            return 1, repr(self.plan.multiplier)
        return before.releases + 1, repr(min(before.multiplier, self.plan.multiplier))

    def _warned(self, users: Sequence[str], may: Bools) -> Bools:
        selected = np.array([user not in self.excluded for user in users], bool)
        if (selected & ~may).any():
            most = self.plan.releases
            times = "one sum" if most == 1 else f"{most:,} sums"
            self.warn(
                f"the server of run {self.run} selects users whose data may not enter another sum: "
                f"its privacy budget is for {times}, and for one in each exchange. They do not "
                "reply. Ask its owner why"
            )
        return may


class Excess(NamedTuple):
    """Users whose data may not enter a run, because of a limit."""

    users: frozenset[str]
    spent: float
    """The largest epsilon that one of them has spent before."""
    asked: float
    """The epsilon of the whole run."""
    delta: float


def over_limit(store: NodeStore, run: str, plan: NoisePlan, limit: float) -> Excess:
    """The users of a store whose ledger, with the whole run, would exceed a limit."""
    delta = min(plan.delta, LARGEST_DELTA)
    before = cost_of_others(store, run)
    of_run = spent_in(store, run)
    whole = Spent(plan.releases, plan.multiplier, Release(0, 0, b""))
    total = {}
    for user in store.users():
        own = of_run.get(user, whole)
        most = whole._replace(
            releases=max(own.releases, whole.releases),
            multiplier=min(own.multiplier, whole.multiplier),
        )
        total[user] = before.get(user, 0.0) + most.cost
    largest = largest_within(total.values(), limit, delta)
    users = frozenset(user for user, cost in total.items() if cost > largest)
    spent = max((before.get(user, 0.0) for user in users), default=0.0)
    return Excess(users, epsilon_of(spent, delta), epsilon_of(whole.cost, delta), delta)


def largest_within(costs: Iterable[float], limit: float, delta: float) -> float:
    """The largest of some costs whose epsilon is within a limit; 0 if none is.

    Epsilon grows with the cost, so that few of them need the accountant.
    """
    ordered = sorted(set(costs))

    def exceeds(cost: float) -> bool:
        return epsilon_of(cost, delta) > limit * (1 + ROUNDING)

    place = bisect_right(ordered, False, key=exceeds)
    return ordered[place - 1] if place else 0.0
