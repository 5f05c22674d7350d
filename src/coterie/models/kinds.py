"""Maps the kind stored in a model file to the model's class."""

from __future__ import annotations

import importlib

from coterie.core import plugins
from coterie.errors import UnknownName
from coterie.models.recommender import Recommender

KINDS: dict[str, tuple[str, str]] = {
    "factors": ("coterie.models.factors", "Factors"),
    "gmf": ("coterie.models.gmf", "GMF"),
    "gmf-groups": ("coterie.models.gmf_groups", "GMFGroups"),
    "neumf": ("coterie.models.neumf", "NeuMF"),
    "private-factors": ("coterie.models.private_factors", "PrivateFactors"),
    "private-gmf": ("coterie.models.private_gmf", "PrivateGMF"),
    "private-neumf": ("coterie.models.private_neumf", "PrivateNeuMF"),
    "personal-scores": ("coterie.models.personal_scores", "PersonalScores"),
    "additive-scores": ("coterie.models.additive_scores", "AdditiveScores"),
    "binary-codes": ("coterie.models.binary_codes", "BinaryCodes"),
    "random": ("coterie.models.random", "RandomScores"),
    "popular": ("coterie.models.popular", "ItemCounts"),
    "ease": ("coterie.models.linear", "ItemWeights"),
    "private-item-weights": ("coterie.models.linear", "PrivateItemWeights"),
    "userknn": ("coterie.models.neighbours", "UserNeighbours"),
    "itemknn": ("coterie.models.neighbours", "ItemNeighbours"),
    "private-item-neighbours": ("coterie.models.neighbours", "PrivateItemNeighbours"),
    "multivae": ("coterie.models.multivae", "MultVAE"),
    "lightgcn": ("coterie.models.lightgcn", "LightGCN"),
    "directions": ("coterie.models.directions", "Directions"),
}


def kind(name: str) -> type[Recommender]:
    """The class of that kind. Other packages add kinds by the entry point `coterie.models`."""
    if name not in KINDS:
        added = plugins.names(plugins.MODELS, KINDS)
        if name not in added:
            own = " (for a class of your own: coterie.Run.load(folder, models=[YourClass]))"
            raise UnknownName("kind of model", name, [*KINDS, *added], own)
        return plugins.load_class(plugins.MODELS, name, Recommender)  # type: ignore[type-abstract]
    module, class_name = KINDS[name]
    model: type[Recommender] = getattr(importlib.import_module(module), class_name)
    return model
