"""What a server and its nodes know in common once enrolment is done."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.core.settings import DataSize
from coterie.data.interactions import objects
from coterie.data.training_set import TrainingSet
from coterie.deployment.enrolment import FederationTerms, ItemContent, UserIndices
from coterie.federated import trainer
from coterie.federated.federation import (
    AnyWorld,
)
from coterie.federated.settings import federation_settings
from coterie.types import Rows


def server_world(terms: FederationTerms, indices: UserIndices, content: ItemContent) -> AnyWorld:
    """The world of the server, which knows the content of items."""
    experiment = terms.experiment
    catalogue = catalogue_of(terms, indices.n_users, content)
    settings = federation_settings(experiment.settings)
    world = trainer.world_of(catalogue, settings, experiment.choice.seed, terms.federation)
    return _with_members(world, indices, terms)


def node_world(terms: FederationTerms, indices: UserIndices) -> AnyWorld:
    """The world of a node, without the content of items."""
    experiment = terms.experiment
    empty = _no_interactions(indices.n_users)
    catalogue = TrainingSet(indices.n_users, len(terms.items), empty, empty, None)
    settings = federation_settings(experiment.settings)
    world = trainer.world_of(catalogue, settings, experiment.choice.seed)
    return _with_members(world, indices, terms)


def catalogue_of(terms: FederationTerms, n_users: int, content: ItemContent) -> TrainingSet:
    """The item catalogue as a training set without interactions."""
    categories = None
    if content.categories is not None:
        categories = objects([tuple(names) for names in content.categories])
    bodies = None if content.bodies is None else objects(content.bodies)
    empty = _no_interactions(n_users)
    return TrainingSet(
        n_users,
        len(terms.items),
        empty,
        empty,
        None,
        item_texts=terms.texts,
        item_categories=categories,
        item_bodies=bodies,
    )


def _with_members(world: AnyWorld, indices: UserIndices, terms: FederationTerms) -> AnyWorld:
    members = np.zeros(indices.n_users, bool)
    members[indices.members] = True
    rated = terms.experiment.filters.feedback == "explicit"
    size = DataSize(indices.n_users, len(terms.items), indices.n_positives, rated)
    return replace(
        world,
        settings=federation_settings(terms.experiment.settings).for_data(size),
        members=members,
        n_positives=indices.n_positives,
        rated=rated,
        client_content=None,
        run=terms.run,
    )


def _no_interactions(n_users: int) -> Rows:
    return Rows(np.zeros(n_users + 1, np.int64), np.empty(0, np.int32))
