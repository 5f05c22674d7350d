"""src/coterie/engines/select.py."""

from __future__ import annotations

from typing import Any

from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import Federation, World
from coterie.federated.rounds import Engine, trainer_on, world_of
from coterie.federated.trainer import Context, Trainer


def trainer(
    federation: Federation, training: TrainingSet, settings: Any, context: Context
) -> Trainer:
    """A federated algorithm as steps: step n is round t = n - 1 of the paper, or an epoch of rounds."""
    world = world_of(training, settings, context.seed, federation)
    return trainer_on(federation, world, engine_for(world, training, context), context)


def engine_for(world: World, training: TrainingSet, context: Context) -> Engine:
    """Nodes in this process, or actors of a cluster."""
    if world.settings.engine == "local":
        return LocalEngine.over(world, training, world.settings.nodes or 1)
    from coterie.engines.ray import RayEngine

    return RayEngine.over(world, training, context.progress)
