"""Which federations a browser can be a client of, and the terms that the page receives."""

from __future__ import annotations

import json
from dataclasses import dataclass

from coterie.algorithms.fedals import FedALS
from coterie.algorithms.fpl import FPL
from coterie.deployment.enrolment import FederationTerms
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.types import JsonObject

CLIENTS = ("pfpl", "pfpl+", "fedals")
"""Algorithms whose client the device page has."""
OF_FPL = {"triples": 20.0, "rounds_an_epoch": 1.0}
MUST_BE_SET = {"pfpl": OF_FPL, "pfpl+": OF_FPL, "fedals": {"reg": 0.05}}
"""Algorithm -> settings that must not follow from numbers of interactions, with an example."""
NO_CLIENT = {
    "sfpl": "a round has one client, and would wait for one browser after the other",
    "sfpl+": "a round has one client, and would wait for one browser after the other",
    "fedfast": "the server would have the users' rows",
    "fedavg": "the server would have the users' rows",
    "fedbso": "the server would have the users' rows",
    "fedease": "users cannot join later, and the model has a number for each pair of items",
    "fedslim": "users cannot join later, and the model has a number for each pair of items",
}
"""Algorithm -> why the page has no client for it."""


def refuse_without_client(experiment: Experiment) -> FPL | FedALS:
    """The settings of a federation that browsers can take part in; others are refused."""
    name = experiment.choice.algorithm
    settings = experiment.settings
    if name not in CLIENTS or not isinstance(settings, FPL | FedALS):
        why = NO_CLIENT.get(name, "the device page has no client for it")
        raise ConfigError(
            f"--devices is given with algorithm {name}: {why}; expected {' or '.join(CLIENTS)}. "
            "Change the algorithm, or leave --devices out."
        )
    if experiment.filters.feedback == "explicit":
        raise ConfigError(
            "--devices is given with feedback explicit, and the device page has likes, not "
            "ratings; expected implicit. Leave feedback out, or leave --devices out."
        )
    if settings.secure_aggregation != "none":
        raise ConfigError(
            f"--devices is given with secure_aggregation {settings.secure_aggregation}: the device "
            "page has no client of its stages, and WebCrypto has no ChaCha20 for its masks "
            "(docs/device.md); expected none. Leave it out, or leave --devices out."
        )
    if settings.epsilon is not None:
        raise ConfigError(
            f"--devices is given with epsilon {settings.epsilon:g}: a browser keeps no ledger of "
            "what its user has spent; expected no epsilon. Leave it out, or leave --devices out."
        )
    for setting, example in MUST_BE_SET[name].items():
        value = settings.model_dump()[setting]
        if not value:
            raise ConfigError(
                f"--devices is given with {setting} {value or 0}, which then follows from the "
                "number of all users' interactions, and browsers do not send how many they have; "
                f"expected a number. Set {setting}, such as {setting}: {example:g}."
            )
    return settings


@dataclass(frozen=True, slots=True)
class PublicTerms:
    """What a browser receives before it enrols."""

    terms: bytes
    catalogue: bytes

    @classmethod
    def of(cls, terms: FederationTerms, name: str, fingerprint: str, seconds: float) -> PublicTerms:
        """`name` is the federation's, `seconds` the deadline of a round."""
        settings = refuse_without_client(terms.experiment)
        public: JsonObject = {
            "name": name,
            "run": terms.run,
            "algorithm": terms.experiment.choice.algorithm,
            "seed": terms.experiment.choice.seed,
            "items": len(terms.items),
            "rounds": n_rounds(settings),
            "round_seconds": seconds,
            "messages": "plain",
            "fingerprint": fingerprint,
            "settings": client_settings(settings),
        }
        titles = terms.titles or [""] * len(terms.items)
        items = [
            {"id": item, "title": title} for item, title in zip(terms.items, titles, strict=True)
        ]
        return cls(_json(public), _json({"items": items}))


def n_rounds(settings: FPL | FedALS) -> int:
    if isinstance(settings, FedALS):
        return settings.rounds
    return settings.epochs * settings.rounds_an_epoch


def client_settings(settings: FPL | FedALS) -> JsonObject:
    """The settings that a client needs, with the defaults that depend on others."""
    if isinstance(settings, FedALS):
        return {
            "embedding_size": settings.embedding_size,
            "alpha": settings.alpha,
            "reg": settings.known_reg,
            "reg_exponent": settings.reg_exponent,
        }
    reg_user, reg_positive, reg_negative = settings.regularisation()
    return {
        "embedding_size": settings.embedding_size,
        "learning_rate": settings.learning_rate,
        "reg_user": reg_user,
        "reg_positive": reg_positive,
        "reg_negative": reg_negative,
        "reg_bias": settings.reg_bias,
        "start_scale": settings.start_scale,
        "triples": settings.triples,
        "rounds_an_epoch": settings.rounds_an_epoch,
        "reading": settings.reading,
        "disclosure": settings.disclosure,
    }


def _json(value: JsonObject) -> bytes:
    return json.dumps(value, allow_nan=False).encode()
