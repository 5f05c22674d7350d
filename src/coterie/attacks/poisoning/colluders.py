"""The colluders: users of the dataset whose clients an attacker controls, and what they know."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from coterie.core import streams
from coterie.data.training_set import TrainingSet
from coterie.errors import ConfigError
from coterie.types import Ints, Rows

PUBLIC = 0.01
"""Share of the interactions that are public, for attacks that use some."""
N_POPULAR = 20
"""Items that are known to be popular, for attacks that know any."""


@dataclass(frozen=True, slots=True)
class Colluders:
    """Who attacks, which item they promote, and what they know beforehand."""

    users: Ints  # ascending
    target: int
    """Index of the item that targeted attacks promote."""
    seed: int
    """Seed of all that the attacker draws."""
    public: Rows
    """user -> public interactions: what FedRecAttack knows."""
    popular: Ints
    """The most popular items, best first: what PipAttack knows."""

    @classmethod
    def of(
        cls,
        training: TrainingSet,
        *,
        share: float = 0.01,
        target: int | None = None,
        seed: int = 0,
        public: float = PUBLIC,
    ) -> Colluders:
        """A share of the users with data, at least one; the target is a cold item by default."""
        check_share(share)
        counts = np.bincount(training.positives.items, minlength=training.n_items)
        return cls(
            users=choose_users(training, share, seed),
            target=cold_item(training, seed) if target is None else target,
            seed=seed,
            public=public_part(training, public, seed),
            popular=np.argsort(-counts, kind="stable")[:N_POPULAR].astype(np.int32),
        )


def check_seed(seed: int) -> None:
    if seed < 0:
        raise ConfigError(
            f"the seed of the attackers is {seed}; expected 0 or more. Change it with --seed 0."
        )


def check_share(share: float) -> None:
    if not 0 < share < 1:
        raise ConfigError(
            f"the share of attackers is {share:g}; expected more than 0 and less than 1. "
            "Set --share 0.01 for one user in a hundred."
        )


def choose_users(training: TrainingSet, share: float, seed: int) -> Ints:
    members = np.flatnonzero(training.positives.counts > 0)
    n = max(round(share * len(members)), 1)
    chosen = streams.at(seed, "attackers").choice(members, n, replace=False)
    return np.sort(chosen).astype(np.int32)


def cold_item(training: TrainingSet, seed: int) -> int:
    """One of the items with the fewest training interactions, drawn by the seed."""
    counts = np.bincount(training.positives.items, minlength=training.n_items)
    coldest = np.flatnonzero(counts == counts.min())
    return int(streams.at(seed, "attack target").choice(coldest))


def public_part(training: TrainingSet, share: float, seed: int) -> Rows:
    """Interactions that are public, each with the same probability."""
    n = len(training.positives.items)
    known = streams.at(seed, "public interactions").random(n) < share
    return Rows.build(training.users[known], training.positives.items[known], training.n_users)
