"""Command lines that make what is on the screen, with the settings that are not defaults only."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from coterie.algorithms.registry import algorithm
from coterie.core.plain_files import parse_yaml
from coterie.experiments.config import Experiment
from coterie.types import JsonObject

NAMED = ("algorithm", "dataset", "protocol", "seed")
"""Settings that have options of their own."""


def shown_command(arguments: Sequence[str]) -> str:
    """A command line that a shell reads back unchanged."""
    return shlex.join(["coterie", *arguments])


def run_options(experiment: Experiment) -> list[str]:
    """The arguments of `coterie run` that make this experiment."""
    choice = experiment.choice
    options = [choice.algorithm, f"--dataset={choice.dataset}"]
    if choice.protocol and choice.protocol != _defaults(experiment)["protocol"]:
        options.append(f"--protocol={choice.protocol}")
    if choice.seed:
        options.append(f"--seed={choice.seed}")
    for key, value in changes(experiment).items():
        options += ["--set", assignment(key, value)]
    return options


def report_options(folders: Sequence[Path]) -> list[str]:
    """The arguments that show some runs side by side."""
    return ["report", *map(str, folders)]


def recommend_options(folder: Path, user_id: str, has_reasons: bool) -> list[str]:
    """The arguments that recommend to one user. Item-based models give reasons, too."""
    # With = an id may begin with a dash.
    options = ["recommend", str(folder), f"--user={user_id}"]
    return [*options, "--why"] if has_reasons else options


def disclosure_options(folder: Path, after: int) -> list[str]:
    """The arguments that attack the updates of all users up to a round."""
    return ["disclosure", str(folder), f"--rounds={after}"]


def compare_options(methods: Mapping[str, Experiment], seeds: Sequence[int]) -> list[str] | None:
    """The arguments of `coterie compare` that repeat a comparison; None if none does.

    The seeds of a comparison are 0, 1, and so on.
    """
    if sorted(seeds) != list(range(len(seeds))):
        return None
    first = next(iter(methods.values()))
    options = ["compare"]
    shared: dict[str, object] = {}
    own: dict[str, dict[str, object]] = {}
    for label, experiment in methods.items():
        name = experiment.choice.algorithm
        options.append(name if label == name else f"{label}={name}")
        known = algorithm(name).settings.model_fields
        for key, value in changes(experiment).items():
            (own.setdefault(label, {}) if key in known else shared)[key] = value
    options.append(f"--dataset={first.choice.dataset}")
    if first.choice.protocol != _defaults(first)["protocol"]:
        options.append(f"--protocol={first.choice.protocol}")
    options.append(f"--seeds={len(seeds)}")
    pairs = [assignment(key, value) for key, value in shared.items()]
    pairs += [
        assignment(f"{label}.{key}", value)
        for label, settings in own.items()
        for key, value in settings.items()
    ]
    for pair in pairs:
        options += ["--set", pair]
    return options


def changes(experiment: Experiment) -> JsonObject:
    """The settings whose values are not the defaults of the algorithm on the dataset."""
    flat = experiment.flat()
    named: JsonObject = {key: flat[key] for key in NAMED}
    own = algorithm(experiment.choice.algorithm).settings.model_fields
    of_data = {key: value for key, value in _differing(flat, named).items() if key not in own}
    # Tuned settings are defaults of the usual data alone, so that changes of the data come first.
    return of_data | _differing(flat, named | of_data)


def _differing(flat: JsonObject, given: JsonObject) -> JsonObject:
    """The settings that are not what follows from those given."""
    usual = Experiment.of(given).flat()
    return {key: value for key, value in flat.items() if value != usual.get(key)}


def _defaults(experiment: Experiment) -> JsonObject:
    choice = experiment.choice
    named = {"algorithm": choice.algorithm, "dataset": choice.dataset, "seed": choice.seed}
    return Experiment.of(named).flat()


def assignment(key: str, value: object) -> str:
    """KEY=VALUE, which `--set` reads as this value."""
    if value is None:
        return f"{key}="
    text = str(value).lower() if isinstance(value, bool) else str(value)
    is_plain = not isinstance(value, list | dict) and _reads_as(text, value)
    # JSON is YAML, but for characters that JSON writes as two escapes.
    return f"{key}={text if is_plain else json.dumps(value, ensure_ascii=False)}"


def _reads_as(text: str, value: object) -> bool:
    """Whether YAML reads the text as the value."""
    from yaml import YAMLError

    try:
        found: object = parse_yaml(text) if text else None
    except YAMLError:
        return False
    return type(found) is type(value) and found == value
