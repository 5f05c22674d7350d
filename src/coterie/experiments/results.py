"""What a result says: how a model was made, what that cost, and how it was judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.data import splits
from coterie.data.splits import Split
from coterie.engines.local import LocalEngine
from coterie.evaluation.breakdown import by_choice
from coterie.evaluation.evaluation import Evaluation
from coterie.evaluation.protocols import Protocol
from coterie.experiments.config import Experiment
from coterie.experiments.history import TrainingHistory, area, first_at
from coterie.experiments.training import Fitted
from coterie.federated import trainer
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    Federation,
    NodeData,
)
from coterie.federated.secagg import exposure
from coterie.federated.settings import federation_settings
from coterie.models.directions import Directions
from coterie.types import Floats
from coterie.version import __version__

if TYPE_CHECKING:
    from coterie.experiments.preparation import Prepared


def summary(ready: Prepared, fitted: Fitted) -> dict[str, Any]:
    """What a result says about how the model was made."""
    choice = ready.experiment.choice
    training = ready.training
    history = fitted.history
    about = {
        "algorithm": choice.algorithm,
        "dataset": choice.dataset,
        "seed": choice.seed,
        "rounds": history.round,
        "best_round": fitted.best_round,
        "seconds": round(history.seconds, 6),
        "bytes_up": history.bytes_up,
        "bytes_down": history.bytes_down,
        "data": ready.data.fingerprint(),
        "trained_on": ready.fingerprint,
        "users": int(np.count_nonzero(training.positives.counts)),
        "items": training.n_items,
        "training_interactions": len(training),
        "parameters": fitted.model.n_parameters,
        "feedback": ready.experiment.filters.feedback,
        "settings": ready.experiment.settings.model_dump(mode="json"),
        "as_published": ready.experiment.course.as_published,
        "version": __version__,
        "convergence": convergence(ready, history),
    }
    if isinstance(fitted.model, Directions):
        about["download"] = fitted.model.download
    members = training.positives.counts > 0
    if not algorithm(choice.algorithm).federated:
        return about
    return about | history.costs(members) | vectors(ready, fitted) | in_the_clear(ready)


def vectors(ready: Prepared, fitted: Fitted) -> dict[str, Any]:
    """What travelled in vectors, of an algorithm whose paper counts so: in a step, in all and up to the best one."""
    found = _federation(ready)
    if found is None or found[0].vectors_per_step is None:
        return {}
    federation, world, everybody = found
    assert federation.vectors_per_step is not None
    each = federation.vectors_per_step(world, everybody)
    counted = {
        "step": each,
        "total": each * fitted.history.round,
        "to_best": each * (fitted.best_round or fitted.history.round),
    }
    return {"vectors": counted}


def in_the_clear(ready: Prepared) -> dict[str, Any]:
    """Of a run in rings: what a server heard of everybody all the same."""
    found = _federation(ready)
    if found is None or found[1].settings.secure_aggregation == "none":
        return {}
    federation, world, _ = found
    return {"in_the_clear": exposure.in_the_clear(federation, world)}


def choices(ready: Prepared, fitted: Fitted) -> dict[str, Floats]:
    """What users chose for themselves, by its name."""
    found = _federation(ready)
    if found is None:
        return {}
    federation, world, everybody = found
    return federation.user_choices(world, everybody, fitted.history.round)


def _federation(ready: Prepared) -> tuple[AnyFederation, AnyWorld, NodeData] | None:
    """The federation of a run, its world and all users; None for a centralised baseline."""
    experiment = ready.experiment
    federation = algorithm(experiment.choice.algorithm).train
    if not isinstance(federation, Federation):
        return None
    settings = federation_settings(experiment.settings)
    world = trainer.world_of(ready.training, settings, experiment.choice.seed)
    return federation, world, LocalEngine.over(world, ready.training, 1).nodes[0]


def convergence(ready: Prepared, history: TrainingHistory) -> dict[str, Any]:
    """How fast: the area under the curve, and when a target was reached."""
    headline = ready.evaluator.headline
    target = ready.experiment.course.target
    found: dict[str, Any] = {
        "metric": headline,
        "part": ready.evaluator.part,
        "area": area(history.curve, headline),
    }
    if target is None:
        return found
    reached = first_at(history.curve, headline, target) or {}
    return found | {
        "target": target,
        "rounds_to_target": reached.get("round"),
        "updates_to_target": reached.get("updates"),
    }


def verdict(experiment: Experiment, parts: Split, judged: Evaluation) -> dict[str, Any]:
    """What a result says about how the model was judged."""
    return {
        "protocol": experiment.judged_by,
        "metrics": judged.metrics,
        "full": judged.full,
        "headline": list(experiment.protocol.shown),
        "tested_users": len(judged.users),
        "future_share": splits.future_share(parts),
        "bias": _bias(experiment, judged),
    }


def _bias(experiment: Experiment, judged: Evaluation) -> dict[str, Any] | None:
    """What lists and training lean to, by category, and over lists of what length."""
    if judged.bias is None:
        return None
    by_category = {name: asdict(found) for name, found in judged.bias.items()}
    return {"k": experiment.protocol.cutoffs[0], "categories": by_category}


def breakdowns(
    chosen: Mapping[str, Floats], judged: Evaluation, protocol: Protocol
) -> dict[str, Any]:
    """Accuracy by each of the things that users chose, where they chose differently."""
    found = {
        f"by_{name}": by_choice(values, judged, protocol.shown) for name, values in chosen.items()
    }
    return {name: rows for name, rows in found.items() if rows}
