"""Defaults that follow from the data: how much popularity counts in the scores of a run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.training_set import TrainingSet
from coterie.engines import select
from coterie.experiments.choice_costs import secure_round_bytes
from coterie.experiments.config import Experiment
from coterie.federated.costs import Costs
from coterie.federated.item_counts import ITEM_COUNTS
from coterie.federated.privacy.settings import is_private
from coterie.federated.settings import FederationSettings, federation_settings
from coterie.federated.trainer import Context, world_of
from coterie.models.popularity_prior import PopularityPrior, derived_strength
from coterie.types import Longs


class Counted(NamedTuple):
    """The prior, if the run has one, and what counting the items cost."""

    prior: PopularityPrior | None
    costs: Costs


def popularity_prior(experiment: Experiment, training: TrainingSet) -> Counted:
    """The prior that the settings ask for. Scores that predict ratings have none."""
    if not uses_prior(experiment) or training.ratings is not None:
        return Counted(None, Costs())
    counts, costs = count_items(experiment, training)
    if not counts.any():
        return Counted(None, costs)
    strength = experiment.course.popularity_prior
    if strength is None:
        multiple = algorithm(experiment.choice.algorithm).popularity_prior
        strength = multiple * derived_strength(counts)
    prior = PopularityPrior.of_counts(counts, training.positives.counts, strength)
    return Counted(prior, costs)


def uses_prior(experiment: Experiment) -> bool:
    """As set; by default where the algorithm learns little of popularity, unless it is tuned.

    The settings of tuned.yaml were found without popularity: docs/recommendations.md has figures.
    """
    strength = experiment.course.popularity_prior
    if strength is None and is_private(experiment.settings):
        return False  # counts without noise would not be paid for
    if strength is None:
        return algorithm(experiment.choice.algorithm).popularity_prior > 0 and not experiment.tuned
    return strength > 0


def count_items(experiment: Experiment, training: TrainingSet) -> tuple[Longs, Costs]:
    """The users of every item; of a federation, as sums over groups of clients.

    Clients would not send their items in the clear for this. A run whose updates are in the clear
    adds up the same counts without masks, at the bytes that masks would take.
    """
    if not algorithm(experiment.choice.algorithm).federated:
        return np.bincount(training.positives.items, minlength=training.n_items), Costs()
    settings = federation_settings(experiment.settings)
    # The union of the rows of a ring would show which items each client counts.
    settings = settings.model_copy(update={"ring_rows": "all", "group_rows": "all"})
    # The run itself says what its servers see, so that counting stays silent.
    context = Context(experiment.choice.seed, SILENT)
    work = select.trainer(ITEM_COUNTS, training, settings, context)
    state, _ = work.start()
    state, costs = work.step(state, 1)
    if settings.secure_aggregation == "none":
        costs = with_secure_bytes(costs, training, settings, context.seed)
    return state.counts, costs


def with_secure_bytes(
    costs: Costs, training: TrainingSet, settings: FederationSettings, seed: int
) -> Costs:
    """The costs with the bytes of secure aggregation, computed from the length of the counts."""
    world = world_of(training, settings.protected(), seed, ITEM_COUNTS)
    client = secure_round_bytes(ITEM_COUNTS, world, training, ITEM_COUNTS.init(world))
    return replace(
        costs,
        bytes_up=costs.accepted * client.up,
        bytes_down=len(costs.users) * client.down,
    )


def origin_of_settings(
    experiment: Experiment, file: str = "", in_file: Collection[str] = ()
) -> str:
    """Where the settings come from that a search would try; "" if there is nothing to tune.

    `file` is the experiment file of the run, if it has one, and `in_file` are its keys.
    """
    name = experiment.choice.algorithm
    data = experiment.choice.dataset
    searched = algorithm(name).settings.search_space
    if not searched:
        return ""
    found = [key for key in searched if key in in_file]
    origin = f"not tuned for {data} (coterie tune finds better ones)"
    if is_private(experiment.settings):
        origin = "not tuned: a search would not be paid for by epsilon"
    if experiment.tuned:
        origin = f"tuned on the validation part of {data}"
    if len(found) == len(searched):
        text = f"Settings of {name}: from {file}"
    elif found:
        text = f"Settings of {name}: {', '.join(found)} from {file}; other defaults are {origin}"
    else:
        text = f"Defaults of {name}: {origin}"
    if uses_prior(experiment) and experiment.course.popularity_prior is None:
        text += "; how much popularity counts is derived from the data"
    return f"{text}. --set overrides them."
