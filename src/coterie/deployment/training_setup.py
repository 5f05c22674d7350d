"""World, engine and trainer of a server, for the users that its federation has now.

Users may join or be erased between two rounds. Then all three are made anew, and what has a row per
user is fitted to the users: rows of new users are the initial ones, and so are those of erased
users, of whom nothing may stay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from coterie.core.progress import Progress
from coterie.core.records import Record
from coterie.deployment.enrolment import EnrolledUsers, FederationTerms, ItemContent
from coterie.deployment.node import NodeEngine
from coterie.deployment.node_private_store import NEVER
from coterie.deployment.reachable_users import ReachableUsers
from coterie.deployment.world import server_world
from coterie.experiments.history import Point
from coterie.federated.federation import AnyFederation, AnyWorld
from coterie.federated.privacy.budget import stop_with_undone
from coterie.federated.trainer import Context, Trainer, federated_trainer, n_rounds
from coterie.types import Longs


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    members: EnrolledUsers
    """The users that this is for."""
    world: AnyWorld
    engine: NodeEngine
    trainer: Trainer[Any]
    total: int
    """Rounds of the whole training."""

    @classmethod
    def of(
        cls,
        terms: FederationTerms,
        reachable: ReachableUsers,
        content: ItemContent,
        progress: Progress,
    ) -> TrainingSetup:
        membership = reachable.membership
        members = membership.members
        federation = reachable.selecting(terms.federation)
        world = server_world(terms, members.indices_for(()), content)
        engine = NodeEngine.over(membership.hosts, membership.train, membership.log.branch)
        context = Context(world.seed, progress)
        trainer = federated_trainer(federation, world, engine, context, by_round=True)
        planned = n_rounds(federation, world)
        stop = stop_with_undone(federation, world, planned, membership.log.undone)
        trainer = replace(trainer, stop=stop or trainer.stop)
        total = trainer.n_steps(planned)
        return cls(members, world, engine, trainer, total)

    def fit(self, federation: AnyFederation, point: Point, accepted: Longs) -> Point:
        """A point that was reached with fewer users, for these users.

        `accepted` are the tags of the updates that were accepted then.
        """
        self.engine.accepted[: len(accepted)] = accepted
        self.engine.accepted[self.members.gone] = NEVER
        return self.fitted(federation, point)

    def fitted(self, federation: AnyFederation, point: Point) -> Point:
        """A point of these users, without what is left of erased ones."""
        gone = self.members.gone
        n_new = self.world.n_users - len(point.history.selections)
        selections = np.append(point.history.selections, np.zeros(n_new, np.int64))
        if n_new == 0 and not len(gone):
            return point
        initial = federation.init(self.world)
        return Point(
            fit_rows(point.state, initial, gone),
            replace(point.history, selections=selections),
            None if point.best is None else fit_rows(point.best, initial, gone),
        )


def fit_rows(state: Record, initial: Record, gone: Longs) -> Record:
    """A state with initial rows for users who are new or gone."""
    fitted = {}
    for name in state.of_users:
        before = getattr(state, name)
        rows = getattr(initial, name).copy()
        stays = np.setdiff1d(np.arange(len(before)), gone)
        rows[stays] = before[stays]
        fitted[name] = rows
    return replace(state, **fitted)
