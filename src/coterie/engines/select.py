"""Choose the engine that a run's settings name, and build its trainer."""

from __future__ import annotations

from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.engine import Engine
from coterie.federated.federation import AlgorithmSettings, AnyWorld, Federation, State
from coterie.federated.trainer import Context, Trainer, federated_trainer, world_of


def trainer(
    federation: Federation[State, AlgorithmSettings],
    training: TrainingSet,
    settings: AlgorithmSettings,
    context: Context,
) -> Trainer[State]:
    """A federated algorithm on the engine of its settings."""
    world = world_of(training, settings, context.seed, federation)
    engine = engine_for(world, training, context)
    return federated_trainer(federation, world, engine, context)


def engine_for(world: AnyWorld, training: TrainingSet, context: Context) -> Engine:
    """Nodes in this process, or actors of a Ray cluster."""
    if world.settings.engine == "local":
        return LocalEngine.over(world, training, world.settings.nodes or 1)
    from coterie.engines.ray import RayEngine

    return RayEngine.over(world, training, context.progress)
