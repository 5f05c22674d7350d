"""What a leaderboard says of an algorithm beside accuracy: exposure, protections, client time."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.algorithms.registry import algorithm, serves_new_users
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.experiments import server_view
from coterie.experiments.choice_costs import client_seconds
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.experiments.training import begin, trainer
from coterie.federated.federation import AnyFederation, AnyWorld, Federation
from coterie.federated.privacy.settings import PrivacySettings
from coterie.federated.privacy.statement import why_not_private
from coterie.federated.secagg.exposure import in_the_clear, offers_secure_sums, only_sums
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, world_of

EXPOSURES = ("sums", "sums and more", "updates", "histories")
"""The least that a server can receive, from least to most: only sums over clients; sums, and a part
of every client's update; every client's whole update; all histories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Properties of an algorithm with its settings."""

    federated: bool
    exposure: str
    """One of EXPOSURES: with secure aggregation, where the algorithm allows it."""
    server_receives: str
    """Of every client, in the clear."""
    secure_aggregation: str
    """What a server still sees of single clients under secure aggregation; "" if nothing, and
    "not possible" where its server needs every update."""
    not_private: str
    """Why it cannot be trained under a privacy budget; "" if it can."""
    new_users: bool
    """Whether users who were not in training are served."""
    client_seconds: float | None
    """The median client's time for one message; None without a federation."""


NOT_POSSIBLE = "not possible"


def facts_of(experiment: Experiment, data: Interactions) -> Facts:
    """The facts of an algorithm with these settings on this data; its clients are timed."""
    chosen = algorithm(experiment.choice.algorithm)
    if isinstance(chosen.train, Federation):
        return _of_federation(experiment, data, chosen.train)
    private = isinstance(experiment.settings, PrivacySettings)
    return Facts(
        federated=False,
        exposure="histories",
        server_receives="all histories",
        secure_aggregation=NOT_POSSIBLE,
        not_private="" if private else "it has no bound for what a user adds",
        new_users=serves_new_users(experiment.choice.algorithm),
        client_seconds=None,
    )


def _of_federation(experiment: Experiment, data: Interactions, federation: AnyFederation) -> Facts:
    name = experiment.choice.algorithm
    ready = prepare(experiment, data, SILENT)
    settings = federation_settings(ready.experiment.settings)
    seed = experiment.choice.seed
    world = world_of(ready.training, settings, seed, federation)
    protected = world_of(ready.training, settings.protected(), seed, federation)
    context = Context(seed, SILENT)
    work = trainer(algorithm(name), ready.training, ready.experiment.settings, context)
    state = begin(work, ready.training.n_users).state
    return Facts(
        federated=True,
        exposure=_exposure(federation, protected),
        server_receives="; ".join(server_view.in_the_clear(experiment, world)),
        secure_aggregation=_under_secure_aggregation(federation, protected),
        not_private=why_not_private(federation, protected),
        new_users=serves_new_users(name),
        client_seconds=client_seconds(federation, world, ready.training, state),
    )


def _exposure(federation: AnyFederation, protected: AnyWorld) -> str:
    if not offers_secure_sums(federation, protected):
        return "updates"
    return "sums" if only_sums(federation, protected) else "sums and more"


def _under_secure_aggregation(federation: AnyFederation, protected: AnyWorld) -> str:
    if not offers_secure_sums(federation, protected):
        return NOT_POSSIBLE
    return "; ".join(in_the_clear(federation, protected))
