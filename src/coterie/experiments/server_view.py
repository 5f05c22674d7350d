"""What a server receives of every client where updates are sent in the clear.

One source for `coterie choose`, for runs and for their reports: what algorithms declare.
"""

from __future__ import annotations

from coterie.algorithms.registry import algorithm
from coterie.experiments.config import Experiment
from coterie.experiments.derived_defaults import uses_prior
from coterie.federated import item_counts
from coterie.federated.federation import AnyWorld, Federation


def in_the_clear(experiment: Experiment, world: AnyWorld) -> list[str]:
    """What the server receives of every client, without secure aggregation."""
    chosen = algorithm(experiment.choice.algorithm)
    if not isinstance(chosen.train, Federation):
        return []
    setup = chosen.train.setup(world)
    once = [setup.visible] if setup is not None and setup.visible else []
    counted = [item_counts.server_receives(world)] if uses_prior(experiment) else []
    return [chosen.in_the_clear or "its whole update", *once, *counted]
