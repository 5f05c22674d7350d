"""The users that a round selects under secure aggregation: those whose nodes answer.

Users who are away may abort their whole group, and a ring has to recover what they do not send. So
users of nodes that are silent, or not connected, are not selected until their node enrols again.

A round has one set of such users, however often it is tried: a client takes part in one group of
an exchange and refuses others. The set is on disk before the first message of the round is sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.deployment.membership import Membership
from coterie.experiments import run_folder
from coterie.federated.federation import AnyFederation, AnyWorld
from coterie.types import Bools, Ints

REACHABLE = "reachable.npz"


@dataclass(slots=True)
class ReachableUsers:
    folder: Path
    membership: Membership
    round: int = -1
    """The round that was selected last since the server started; -1 before the first."""
    users: Bools | None = None
    """(users,) who may be selected in it; None where all may."""

    def selecting(self, federation: AnyFederation) -> AnyFederation:
        """The federation with rounds of reachable users, where it uses secure aggregation."""

        def sample(world: AnyWorld, state: Any, t: int) -> Ints:
            if world.settings.secure_aggregation == "none":
                return federation.sample(world, state, t)
            self._turn_to(t, world)
            cohort = federation.sample(self._restricted(world), state, t)
            if len(cohort) < world.settings.fewest_clients:
                # A cohort of all users may lose some, but not be too small from the start.
                return federation.sample(world, state, t)
            return cohort

        return replace(federation, sample=sample)

    def _restricted(self, world: AnyWorld) -> AnyWorld:
        if self.users is None:
            return world
        available = self.users if world.available is None else self.users & world.available
        return replace(world, available=available)

    def _turn_to(self, t: int, world: AnyWorld) -> None:
        """Determine the users of a round, unless it was tried before with as many users."""
        is_first = self.round < 0
        if t == self.round and (self.users is None or len(self.users) == world.n_users):
            return
        self.round = t
        # The server may have died in this round, which then has the groups that it had.
        self.users = self._written(t, world) if is_first else self._determined(t, world)

    def _written(self, t: int, world: AnyWorld) -> Bools | None:
        """The users of a round as they are on disk; all if none were left out."""
        if not (self.folder / REACHABLE).exists():
            return None
        arrays = run_folder.read_arrays(self.folder, REACHABLE)
        users: Bools = arrays["users"]
        is_same = int(arrays["round"]) == t and len(users) == world.n_users
        return users if is_same else None

    def _determined(self, t: int, world: AnyWorld) -> Bools | None:
        users = self.membership.reachable_users()
        if users is None or (users | ~world.members).all():
            return None
        arrays = {"round": np.array(t), "users": users}
        run_folder.write_arrays(self.folder / REACHABLE, arrays)
        return users
