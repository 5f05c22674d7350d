"""The form of a new experiment, generated from the typed settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import Literal

from coterie.algorithms.registry import algorithm, names
from coterie.core.settings import Settings
from coterie.data import datasets
from coterie.data.fetch import is_local
from coterie.data.filters import Filters
from coterie.data.synthetic import Synthetic
from coterie.evaluation.protocols import PROTOCOLS, Protocol
from coterie.experiments.config import Choice, Course, Experiment, tuned_for
from coterie.federated.privacy.settings import PrivacySettings
from coterie.federated.settings import FederationSettings
from coterie.types import JsonObject

InputKind = Literal["whole number", "number", "yes or no", "choice", "text", "list"]
NAMED = ("algorithm", "dataset", "protocol", "seed")
"""Settings with a place of their own on the page."""
OF_FILES = ("columns", "skip_bad_rows", "encoding", "delimiter", "header")
"""Settings that the data preview has."""


@dataclass(frozen=True, slots=True)
class SettingInput:
    """One setting: how it is entered, its range, and its docstring."""

    key: str
    kind: InputKind
    value: object
    """The default for this algorithm and dataset."""
    help: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    optional: bool = False

    @property
    def rule(self) -> str:
        """The range in words."""
        bounds = {
            "at least": self.least,
            "above": self.above,
            "at most": self.most,
            "below": self.below,
        }
        texts = [f"{word} {bound:g}" for word, bound in bounds.items() if bound is not None]
        if self.choices:
            texts = [", ".join(self.choices)]
        return "; ".join([*texts, *(["may be empty"] if self.optional else [])])

    def to_json(self) -> JsonObject:
        return asdict(self) | {"rule": self.rule}


def form(algorithm_name: str, dataset: str) -> JsonObject:
    """The inputs for an algorithm on a dataset, in groups."""
    chosen = algorithm(algorithm_name)
    flat = Experiment.of({"algorithm": algorithm_name, "dataset": dataset}).flat()
    groups: dict[str, tuple[type[Settings], set[str]]] = {
        f"Settings of {algorithm_name}": (chosen.settings, _inherited(chosen.settings)),
        "Federation": (FederationSettings, set(PrivacySettings.model_fields)),
        "Differential privacy": (PrivacySettings, set()),
        "Evaluation": (Protocol, set()),
        "Filters of the data": (Filters, set()),
        "Course of training": (Course, set()),
        "Synthetic data": (Synthetic, set()),
    }
    return {
        "algorithm": algorithm_name,
        "about": chosen.summary,
        "paper": chosen.paper,
        "federated": chosen.federated,
        "tuned": dataset in tuned_for(algorithm_name),
        "dataset": dataset,
        "protocol": flat["protocol"],
        "seed": setting_input("seed", Choice, flat["seed"]).to_json(),
        "groups": [
            {"title": title, "inputs": inputs}
            for title, (group, without) in groups.items()
            if (inputs := _inputs(group, without, flat))
        ],
    }


def choices() -> JsonObject:
    """What there is to choose from: algorithms, datasets and protocols."""
    return {
        "algorithms": algorithms(),
        "datasets": [
            {
                "name": name,
                "about": datasets.dataset(name).summary,
                "here": name == "synthetic" or is_local(name, datasets.dataset(name).signature),
            }
            for name in datasets.names()
        ],
        "protocols": list(PROTOCOLS),
    }


@cache
def algorithms() -> list[JsonObject]:
    """Every algorithm. Reading all of them for the first time takes seconds."""
    return [
        {"name": name, "about": algorithm(name).summary, "federated": algorithm(name).federated}
        for name in names()
    ]


def _inherited(settings: type[Settings]) -> set[str]:
    """The settings that other groups of the form have."""
    groups = (FederationSettings, PrivacySettings)
    return {key for group in groups if issubclass(settings, group) for key in group.model_fields}


def _inputs(group: type[Settings], without: set[str], flat: JsonObject) -> list[JsonObject]:
    return [
        setting_input(key, group, flat[key]).to_json()
        for key in group.model_fields
        if key in flat and key not in without and key not in NAMED and key not in OF_FILES
    ]


def setting_input(key: str, group: type[Settings], value: object) -> SettingInput:
    """The input of a setting, by the JSON schema of its group."""
    schema = _schema(group)[key]
    alternatives = schema.get("anyOf", [schema])
    typed = next(one for one in alternatives if one.get("type") != "null")
    help_text = " ".join(str(group.model_fields[key].description or "").split())
    return SettingInput(
        key=key,
        kind=_kind(typed),
        value=value,
        help=help_text,
        least=typed.get("minimum"),
        most=typed.get("maximum"),
        above=typed.get("exclusiveMinimum"),
        below=typed.get("exclusiveMaximum"),
        choices=tuple(typed.get("enum", ())),
        optional=len(alternatives) > 1,
    )


@cache
def _schema(group: type[Settings]) -> JsonObject:
    return dict(group.model_json_schema(mode="validation")["properties"])


def _kind(schema: JsonObject) -> InputKind:
    if "enum" in schema:
        return "choice"
    kinds: dict[str, InputKind] = {
        "integer": "whole number",
        "number": "number",
        "boolean": "yes or no",
        "array": "list",
    }
    return kinds.get(str(schema.get("type")), "text")
