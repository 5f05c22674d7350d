"""The samples that clients drew, user by user, for twins that train on the same ones."""

from __future__ import annotations

from coterie.algorithms.local.samples import Samples


def by_user(samples: Samples) -> list[list[tuple[int, float]]]:
    """(item, target) of every sample, in the order of training."""
    found = []
    for k in range(len(samples.counts)):
        items = samples.items[samples.offsets[k] : samples.offsets[k + 1]]
        which = slice(samples.starts[k], samples.starts[k + 1])
        own = items[samples.places[which]].tolist()
        found.append(list(zip(own, samples.targets[which].tolist(), strict=True)))
    return found
