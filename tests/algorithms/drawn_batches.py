"""The samples that clients drew, in batches, for slow twins that train on the same ones."""

from __future__ import annotations

import numpy as np

from coterie.algorithms.local.samples import draw
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import World

Batch = list[tuple[int, float]]
"""(item, target) of every sample."""


def batches_of(
    world: World, cohort: np.ndarray, t: int, training: TrainingSet
) -> list[list[Batch]]:
    """The batches of every client of a cohort in round t."""
    (node,) = LocalEngine.over(world, training, 1).nodes
    drawn = draw(world, cohort, t, node)
    found = []
    for k in range(len(cohort)):
        items = drawn.items[drawn.offsets[k] : drawn.offsets[k + 1]]
        which = slice(drawn.starts[k], drawn.starts[k + 1])
        samples = list(
            zip(items[drawn.places[which]].tolist(), drawn.targets[which].tolist(), strict=True)
        )
        size = world.settings.batch_size
        found.append([samples[at : at + size] for at in range(0, len(samples), size)])
    return found
