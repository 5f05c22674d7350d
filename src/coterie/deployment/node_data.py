"""What a node computes from its own store: its roster, its split and the histories it trains on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.core import streams
from coterie.core.progress import SILENT
from coterie.data import splits
from coterie.data.filters import apply_ratings
from coterie.data.interactions import Interactions, canonical_order
from coterie.data.splits import Split
from coterie.deployment.enrolment import FederationTerms, Roster, UserIndices
from coterie.deployment.node_policy import policy_of
from coterie.deployment.node_private_store import FORGOTTEN, PERMITS, NodeStore
from coterie.deployment.node_snapshots import known_rollbacks, reached
from coterie.errors import ConfigError, DataError
from coterie.federated.disclosure import Disclosing
from coterie.federated.federation import NodeData
from coterie.federated.preferences import with_preferences
from coterie.federated.privacy.settings import is_private
from coterie.federated.secagg.identity import StoredIdentities
from coterie.federated.settings import federation_settings
from coterie.types import Ints

PREFERENCE_FILES = "disclosure_file", "private_items"
"""Metadata of a store, and settings: files of the preferences of its users."""


def roster_of(terms: FederationTerms, store: NodeStore) -> Roster:
    """A node's reply to the terms of a federation."""
    preferences_of(terms, store)
    is_member = store.meta("run") == terms.run
    forgotten = store.held_list(FORGOTTEN) if is_member else []
    if forgotten and not store.users():
        return Roster([], [], 0, forgotten)
    data = own_interactions(terms, store)
    training = _split(terms, data).training()
    learning = training.positives.counts > 0
    users = [str(user) for user in data.user_ids]
    n_positives = int(training.positives.counts.sum())
    if is_private(terms.experiment.settings):
        # The number of interactions is not paid for; who takes part is known anyway.
        n_positives = int(learning.sum())
    return Roster(
        users,
        learning.tolist(),
        n_positives,
        forgotten,
        store.held_list(PERMITS) if is_member else [],
        [one.public.hex() for one in store.identities(users)] if uses_secagg(terms) else [],
        len(known_rollbacks(store)) if is_member else 0,
        policy_of(store).rollbacks if is_member else None,
        store.snapshot_rounds() if is_member else [],
        max(reached(store), 0) if is_member else 0,
    )


def uses_secagg(terms: FederationTerms) -> bool:
    """Whether clients of the federation sign what they send each other."""
    return federation_settings(terms.experiment.settings).secure_aggregation == "secagg"


def split_of(terms: FederationTerms, indices: UserIndices, store: NodeStore) -> tuple[Ints, Split]:
    """The indices of a node's enrolled users, and their interactions as train and test parts.

    Users and items have the federation's indices, so the split equals that of a simulation.
    """
    data = own_interactions(terms, store)
    known = np.array([indices.numbers.get(str(user), -1) for user in data.user_ids], np.int32)
    data = data.select(known[data.users] >= 0)
    own = known[known >= 0]
    user_ids = np.full(indices.n_users, "", object)
    user_ids[own] = data.user_ids[known >= 0]
    users = known[data.users]
    order = canonical_order(users, data.items, data.times)
    indexed = Interactions(
        users[order],
        data.items[order],
        None if data.ratings is None else data.ratings[order],
        None if data.times is None else data.times[order],
        user_ids,
        data.item_ids,
        data.item_order,
        item_texts=terms.texts,
    )
    return np.sort(own), _split(terms, indexed)


def node_data_of(
    terms: FederationTerms, indices: UserIndices, store: NodeStore, seed: int
) -> NodeData:
    """The training data of a node. `seed` drives its clients' draws; no server knows it."""
    own, split = split_of(terms, indices, store)
    training = split.training()
    content = terms.federation.content(training, terms.experiment.settings)
    of_node = replace(training, content=content and content[1]).of_users(own)
    preferences = preferences_of(terms, store)
    if preferences is not None:
        user_ids = split.train.user_ids[own]
        of_node = with_preferences(of_node, preferences, user_ids, split.train.item_ids, SILENT)
    if not uses_secagg(terms):
        return NodeData(own, of_node, seed)
    signing = store.identities([str(user) for user in split.train.user_ids[own]])
    pinned = [bytes.fromhex(key) for key in store.pinned_keys()]
    identities = StoredIdentities(dict(zip(own.tolist(), signing, strict=True)), pinned)
    return NodeData(own, of_node, seed, identities)


def preferences_of(terms: FederationTerms, store: NodeStore) -> Disclosing | None:
    """The settings with the files of this node's users, if there are any.

    A federation that cannot respect the preferences is refused.
    """
    files = {key: path for key in PREFERENCE_FILES if (path := store.meta(key))}
    if not files:
        return None
    settings = terms.experiment.settings
    if not isinstance(settings, Disclosing):
        raise ConfigError(
            f"users of {store.path} have preferences in {', '.join(files.values())}, and "
            f"{terms.experiment.choice.algorithm} has no disclosure rates; expected an algorithm "
            "that has them, such as pfpl+. Join without --disclosure and --private-items, if the "
            "users agree."
        )
    return settings.model_copy(update=files)


def simulated_seed(terms: FederationTerms) -> int:
    """The seed of a simulation's clients. Use it only to repeat a simulation."""
    return streams.key(terms.experiment.choice.seed, "devices")


def own_interactions(terms: FederationTerms, store: NodeStore) -> Interactions:
    """The histories of a node's users; items outside the federation's catalogue are left out."""
    data = apply_ratings(store.interactions(), terms.experiment.filters)
    index = {item: k for k, item in enumerate(terms.items)}
    places = np.array([index.get(str(item), -1) for item in data.item_ids], np.int32)
    listed = places[data.items] >= 0
    if not listed.any():
        raise DataError(
            f"{store.path}: no interaction is with one of the federation's {len(terms.items):,} "
            f"items; expected item ids such as {terms.items[0]}. Check the ids."
        )
    chosen = data.select(listed)
    items = np.array(terms.items, dtype=object)
    return Interactions(
        chosen.users,
        places[data.items[listed]],
        chosen.ratings,
        chosen.times,
        data.user_ids,
        items,
        np.arange(len(items), dtype=np.int32),
    )


def unknown_items(terms: FederationTerms, store: NodeStore) -> list[str]:
    """The items of a node's interactions that are not in the federation's catalogue."""
    known = set(terms.items)
    return [item for item in store.items() if item not in known]


def _split(terms: FederationTerms, data: Interactions) -> Split:
    terms.refuse_split()
    protocol = terms.experiment.protocol
    seed = terms.experiment.choice.seed
    return splits.split(
        data, protocol.split, protocol.fraction, seed, protocol.validation, protocol.draw
    )
