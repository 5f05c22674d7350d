"""Terms of a federation with a privacy budget: what a server must not set, nor a node accept."""

from __future__ import annotations

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.federated.federation import AnyWorld, Federation, World
from coterie.federated.privacy.settings import is_private
from coterie.federated.privacy.statement import why_not_private
from coterie.federated.settings import federation_settings


def refuse_unprivate(experiment: Experiment) -> None:
    """Reject a budget that the algorithm cannot respect, and noise that others can repeat."""
    if not is_private(experiment.settings):
        return
    name = experiment.choice.algorithm
    federation = algorithm(name).train
    if not isinstance(federation, Federation):
        raise ConfigError(f"algorithm {name} is trained in one place; expected a federated one.")
    world = without_users(experiment)
    reason = why_not_private(federation, world)
    if reason:
        raise ConfigError(
            f"epsilon is {world.settings.epsilon:g}, but {name} cannot be trained under a privacy "
            f"budget: {reason}. Name another algorithm, or leave epsilon out."
        )
    if world.settings.noise_source != "system":
        raise ConfigError(
            f"setting 'noise_source' is {world.settings.noise_source!r}, but all nodes of a "
            "federation know its seed, and could remove the noise; expected 'system'. Leave it out."
        )


def without_users(experiment: Experiment) -> AnyWorld:
    """What is known of a federation before a node has joined."""
    return World(federation_settings(experiment.settings), 0, 0, 0, np.zeros(0, bool), {})


def protection_of(experiment: Experiment) -> str:
    """The algorithm of a federation, and how it protects single users."""
    settings = without_users(experiment).settings
    budget = "no epsilon" if settings.epsilon is None else f"epsilon {settings.epsilon:g}"
    name = experiment.choice.algorithm
    return f"{name}, secure aggregation {settings.secure_aggregation}, {budget}"
