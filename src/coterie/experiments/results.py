"""The content of a result: how the model was trained, what it cost, how it was evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.data import splits
from coterie.data.splits import Split
from coterie.engines.local import LocalEngine
from coterie.evaluation.breakdown import by_chosen_value
from coterie.evaluation.evaluation import Evaluation, accuracy_per_user, means
from coterie.evaluation.popularity import below
from coterie.evaluation.protocols import Protocol
from coterie.evaluation.rating_errors import reference_errors
from coterie.experiments import server_view
from coterie.experiments.config import Experiment
from coterie.experiments.derived_defaults import uses_prior
from coterie.experiments.history import TrainingHistory, area, first_at
from coterie.experiments.training import Fitted
from coterie.federated import trainer
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    Federation,
    NodeData,
)
from coterie.federated.privacy.budget import epsilon_of, plan_of_run, releases_in
from coterie.federated.privacy.plan import central_plan
from coterie.federated.privacy.settings import PrivacySettings
from coterie.federated.privacy.statement import statement, why_not_private
from coterie.federated.secagg import exposure
from coterie.federated.settings import federation_settings
from coterie.models.directions import Directions
from coterie.report.users import quantiles
from coterie.types import Floats, JsonObject
from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.experiments.preparation import Prepared

DISPLAYED = ("headline", "category_bias")
"""Settings of a protocol that change what is shown, not what is measured."""


def training_summary(ready: Prepared, fitted: Fitted) -> JsonObject:
    """The part of a result about data, training and costs."""
    choice = ready.experiment.choice
    training = ready.training
    history = fitted.history
    about = {
        "algorithm": choice.algorithm,
        "dataset": ready.experiment.data_label,
        "seed": choice.seed,
        "rounds": history.round,
        "best_round": fitted.best_round,
        "seconds": round(history.seconds, 6),
        "curve_seconds": round(history.curve_seconds, 6),
        "bytes_up": history.bytes_up,
        "bytes_down": history.bytes_down,
        "data": ready.data.fingerprint(),
        "reading": [*ready.data.reading, *ready.data.notes],
        "trained_on": ready.fingerprint,
        "users": int(np.count_nonzero(training.positives.counts)),
        "items": training.n_items,
        "user_features": sorted(training.user_features),
        "training_interactions": len(training),
        "parameters": fitted.model.n_parameters,
        "popularity_prior": 0.0 if fitted.prior is None else fitted.prior.strength,
        # Data passed in from Python may have ratings, whatever the settings are.
        "feedback": "implicit" if training.ratings is None else "explicit",
        "settings": ready.experiment.settings.model_dump(mode="json"),
        "as_published": ready.experiment.course.as_published,
        "filters": ready.experiment.filters.model_dump(mode="json", exclude_defaults=True),
        "version": __version__,
        "convergence": convergence(ready, history),
    }
    if choice.dataset == "synthetic":
        about["synthetic"] = ready.experiment.synthetic.model_dump(
            mode="json", exclude_defaults=True
        )
    if isinstance(fitted.model, Directions):
        about["download"] = fitted.model.download
    about |= privacy(ready, fitted)
    members = training.positives.counts > 0
    if not algorithm(choice.algorithm).federated:
        return about
    return about | history.costs(members) | vectors(ready, fitted) | unprotected(ready, fitted)


def without_popularity(ready: Prepared, fitted: Fitted) -> JsonObject:
    """Accuracy of the model alone by full ranking, where popularity counts in scores."""
    if fitted.prior is None:
        return {}
    parts = ready.parts
    table = accuracy_per_user(
        fitted.model,
        ready.experiment.protocol,
        parts.seen(),
        parts.test.rows,
        parts.test.n_items,
        None,
    )
    return {"without_popularity": means(table)}


def vectors(ready: Prepared, fitted: Fitted) -> JsonObject:
    """Vectors sent per step, in total and to the best step, if the paper counts vectors."""
    found = _federation(ready)
    if found is None:
        return {}
    federation, world, node = found
    if federation.vectors_per_step is None:
        return {}
    per_step = federation.vectors_per_step(world, node)
    counted = {
        "step": per_step,
        "total": per_step * fitted.history.round,
        "to_best": per_step * (fitted.best_round or fitted.history.round),
    }
    return {"vectors": counted}


def unprotected(ready: Prepared, fitted: Fitted) -> JsonObject:
    """What a server receives of every single user, with secure aggregation or without it."""
    found = _federation(ready)
    if found is None:
        return {}
    federation, world, _ = found
    counts_items = uses_prior(ready.experiment)
    columns = server_view.received(federation, world, fitted.update_sizes, counts_items)
    view = {"server_view": columns}
    if world.settings.secure_aggregation == "none":
        return view | {"server_receives": server_view.in_the_clear(ready.experiment, world)}
    return view | {
        "protection": exposure.protection(world.settings),
        "in_the_clear": exposure.in_the_clear(federation, world),
        "in_sums": exposure.in_sums(federation, world),
    }


def privacy(ready: Prepared, fitted: Fitted) -> JsonObject:
    """The guarantee of differential privacy, where the run has a budget."""
    settings = ready.experiment.settings
    if not isinstance(settings, PrivacySettings) or settings.epsilon is None:
        return {}
    n_users = ready.training.n_users
    found = _federation(ready)
    if found is None:
        plan = central_plan(settings, n_users, releases=1)
        noise = "central"
        made = 1
    else:
        federation, world, _ = found
        plan = plan_of_run(federation, world)
        noise = world.settings.noise
        rounds = fitted.history.round * federation.rounds_per_step(world)
        made = releases_in(federation, world, rounds)
    source = settings.noise_source
    return {"privacy": statement(plan, noise, source, n_users, made, fitted.stopped)}


def epsilon_spent(ready: Prepared) -> Callable[[int], float] | None:
    """Round -> what is spent of the privacy budget; None without a budget or a federation."""
    settings = ready.experiment.settings
    if not isinstance(settings, PrivacySettings) or settings.epsilon is None:
        return None
    found = _federation(ready)
    if found is None:
        return None
    federation, world, _ = found
    if why_not_private(federation, world):
        # Training refuses it and says why.
        return None
    plan = plan_of_run(federation, world)
    per_step = federation.rounds_per_step(world)
    return lambda step: epsilon_of(plan, releases_in(federation, world, step * per_step))


def chosen_values(ready: Prepared, fitted: Fitted) -> dict[str, Floats]:
    """Values that users chose, such as their disclosure rates, by name: one per user."""
    found = _federation(ready)
    if found is None:
        return {}
    federation, world, node = found
    return federation.user_choices(world, node, fitted.history.round)


def _federation(ready: Prepared) -> tuple[AnyFederation, AnyWorld, NodeData] | None:
    """The federation, its world and one node with all users; None for a centralised algorithm."""
    experiment = ready.experiment
    federation = algorithm(experiment.choice.algorithm).train
    if not isinstance(federation, Federation):
        return None
    settings = federation_settings(experiment.settings)
    world = trainer.world_of(ready.training, settings, experiment.choice.seed)
    return federation, world, LocalEngine.over(world, ready.training, 1).nodes[0]


def convergence(ready: Prepared, history: TrainingHistory) -> JsonObject:
    """Speed of training: the area under the curve and the rounds to a target."""
    headline = ready.evaluator.headline
    target = ready.experiment.course.target
    about: JsonObject = {
        "metric": headline,
        "part": ready.evaluator.part,
        "users": ready.evaluator.n_users,
        "area": area(history.curve, headline),
    }
    if target is None:
        return about
    reached = first_at(history.curve, headline, target) or {}
    return about | {
        "target": target,
        "rounds_to_target": reached.get("round"),
        "updates_to_target": reached.get("updates"),
    }


def evaluation_summary(experiment: Experiment, parts: Split, evaluation: Evaluation) -> JsonObject:
    """The part of a result about the evaluation."""
    references: JsonObject = {}
    if parts.test.ratings is not None:
        references["rating_references"] = reference_errors(parts.train, parts.test)
    fold: JsonObject = {}
    if experiment.protocol.folds:
        fold = {"fold": experiment.protocol.fold, "folds": experiment.protocol.folds}
    figures: JsonObject = {
        "protocol": experiment.protocol_label,
        "evaluation": experiment.protocol.model_dump(mode="json", exclude=set(DISPLAYED)),
        "metrics": evaluation.metrics,
        "full": evaluation.full,
        "headline": list(experiment.protocol.shown),
        "popular": evaluation.popular,
        "below_popular": below(evaluation.metrics, evaluation.popular, experiment.protocol.shown),
        "tested_users": len(evaluation.users),
        "quantiles": {
            name: quantiles(evaluation.table[name])
            for name in experiment.protocol.shown
            if name in evaluation.table
        },
        "future_share": splits.future_share(parts),
        "bias": _bias(experiment, evaluation),
    }
    return references | fold | figures


def _bias(experiment: Experiment, evaluation: Evaluation) -> JsonObject | None:
    """Bias by category, and the length of the lists it was measured on."""
    if evaluation.bias is None:
        return None
    by_category = {name: asdict(bias) for name, bias in evaluation.bias.items()}
    return {"k": experiment.protocol.cutoffs[0], "categories": by_category}


def accuracy_by_chosen_values(
    chosen: Mapping[str, Floats], evaluation: Evaluation, protocol: Protocol
) -> dict[str, list[JsonObject]]:
    """Accuracy by every value that users chose, left out if all users chose the same."""
    tables = {
        f"by_{name}": by_chosen_value(values, evaluation, protocol.shown)
        for name, values in chosen.items()
    }
    return {name: rows for name, rows in tables.items() if rows}
