"""An experiment as a value: flat keys in (YAML, --set, Python), typed groups of settings inside, flat keys out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pydantic import Field

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm
from coterie.core.settings import Settings, split_by_owner
from coterie.data.datasets import as_usual, dataset
from coterie.data.filters import Filters
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError
from coterie.evaluation.protocols import Protocol, protocol
from coterie.federated.settings import FederationSettings

NAMING_FILES = (
    "test_file",
    "validation_file",
    "candidates_file",
    "start_from",
    "disclosure_file",
    "private_items",
    "availability_file",
)
"""Settings that name files or a run folder: what is in them is part of the experiment."""


class Choice(Settings):
    """What is run."""

    algorithm: str
    """Name of the algorithm: coterie algorithms"""
    dataset: str = "synthetic"
    """Name of a dataset, or a path: coterie data list"""
    protocol: str | None = None
    """Name of the protocol; the dataset's own by default."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Same seed, same result."""
    columns: dict[str, str] = Field(default_factory=dict)
    """For files: role -> name of its column."""
    skip_bad_rows: bool = False
    """For files: count bad rows and drop them instead of stopping at the first."""


class Course(Settings):
    """How training is followed."""

    evaluate_every: int = Field(0, ge=0)
    """Measure every so many rounds; 0 measures about twenty times."""
    checkpoint_every: int = Field(0, ge=0)
    """Save the state every so many rounds; 0 saves it every few seconds."""
    target: float | None = Field(None, ge=0)
    """A value of the followed metric; the result says after how many rounds and updates it was reached."""
    start_from: str | None = None
    """A run folder whose weights are reused; people and items it does not know start afresh."""
    patience: int = Field(0, ge=0)
    """Stop after so many measurements without improvement on validation; 0 trains to the end."""
    as_published: bool = False
    """Let negatives avoid held-out items, as leaky published code does, to show its figure."""


@dataclass(frozen=True, slots=True)
class Experiment:
    choice: Choice
    course: Course
    filters: Filters
    protocol: Protocol
    synthetic: Synthetic
    settings: Settings
    tuned: bool
    """Whether settings found on this dataset's validation part are the defaults here."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Experiment:
        """From flat keys. What is not given comes from the dataset, then from the settings tuned for it."""
        if "algorithm" not in values:
            raise ConfigError(
                f"no algorithm is named (keys: {', '.join(values) or 'none'}); expected a key 'algorithm'. Add one."
            )
        made = str(values.get("dataset", "synthetic")) == "synthetic"
        chosen = algorithm(str(values["algorithm"]))
        owners: dict[str, type[Settings]] = {
            "choice": Choice,
            "course": Course,
            "filters": Filters,
            "protocol": Protocol,
            "settings": chosen.settings,
        }
        if made:
            owners["synthetic"] = Synthetic
        _refuse_federated_settings(values, chosen)
        shares = split_by_owner(values, owners)
        choice = Choice.of(shares["choice"])
        course = Course.of(shares["course"])
        source = dataset(choice.dataset)
        filters = Filters.of(source.filters | shares["filters"])
        made_up = Synthetic.of(shares.get("synthetic", {}))
        usual = as_usual(choice.dataset, filters, made_up)
        defaults = tuned_settings(choice.dataset, choice.algorithm) if usual else {}
        if filters.feedback == "explicit" and not chosen.explicit:
            raise ConfigError(
                f"setting 'feedback' is 'explicit', but {choice.algorithm} learns from implicit feedback alone. Leave it out, or use gmf."
            )
        judged_by = protocol(choice.protocol or source.protocol, shares["protocol"])
        if course.patience and not (judged_by.validation or judged_by.validation_file):
            raise ConfigError(
                f"setting 'patience' is {course.patience}, but there is no validation part; expected one. Set validation=true, or patience=0."
            )
        return cls(
            choice.model_copy(update={"protocol": choice.protocol or source.protocol}),
            course,
            filters,
            judged_by,
            made_up,
            owners["settings"].of(defaults | shares["settings"]),
            bool(defaults),
        )

    @property
    def judged_by(self) -> str:
        """The protocol's name, and in brackets what was changed of it."""
        name = str(self.choice.protocol)
        usual = protocol(name, {})
        changed = [
            f"{key}={_brief(value)}"
            for key, value in self.protocol
            if key not in ("headline", "category_bias", "validation", "validation_file")
            and value != getattr(usual, key)
        ]
        return f"{name} ({', '.join(changed)})" if changed else name

    def flat(self) -> dict[str, Any]:
        """Every key with its value; `Experiment.of` turns it back into the same experiment."""
        groups: list[Settings] = [
            self.choice,
            self.course,
            self.filters,
            self.protocol,
            self.settings,
        ]
        if self.choice.dataset == "synthetic":
            groups.append(self.synthetic)
        return {
            key: value for group in groups for key, value in group.model_dump(mode="json").items()
        }


def _refuse_federated_settings(values: Mapping[str, Any], chosen: Algorithm) -> None:
    """Of an algorithm that is trained in one place."""
    meant = [key for key in values if key in FederationSettings.model_fields]
    if meant and not chosen.federated:
        raise ConfigError(
            f"setting {meant[0]!r} is {values[meant[0]]!r}, but {values['algorithm']} is trained in one place, without devices; "
            "expected a federated algorithm (coterie algorithms). Leave it out."
        )


def changed(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Flat keys with changes on top; naming another protocol forgets the settings of the one before."""
    kept = dict(values)
    if changes.get("protocol"):
        kept = {key: value for key, value in kept.items() if key not in Protocol.model_fields}
    return kept | dict(changes)


def _brief(value: Any) -> str:
    from pathlib import PurePath

    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return PurePath(value).name if isinstance(value, str) else str(value)


@cache
def _tuned() -> dict[str, dict[str, dict[str, Any]]]:
    import yaml

    text = resources.files("coterie.experiments").joinpath("tuned.yaml").read_text()
    return yaml.safe_load(text) or {}


def tuned_settings(dataset_name: str, algorithm_name: str) -> dict[str, Any]:
    """Settings found on the dataset's validation part (benchmarks/tune.py), if there are any."""
    return dict(_tuned().get(dataset_name, {}).get(algorithm_name, {}))


def tuned_for(algorithm_name: str) -> list[str]:
    """The datasets that an algorithm is tuned for."""
    return [name for name, found in _tuned().items() if algorithm_name in found]


def parse_assignments(pairs: list[str]) -> dict[str, Any]:
    """`key=value` from the command line; values are read as YAML."""
    import yaml

    values: dict[str, Any] = {}
    for pair in pairs:
        key, found, text = pair.partition("=")
        if not found or not key.strip():
            raise ConfigError(
                f"--set {pair!r} is not key=value. Write for example --set embedding_size=16"
            )
        try:
            values[key.strip()] = yaml.safe_load(text) if text else None
        except yaml.YAMLError:
            values[key.strip()] = text
    return values


def as_yaml(values: Mapping[str, Any]) -> str:
    """Text that reads back as it was: U+0085 as it is would be read as the end of a line."""
    import yaml

    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    return yaml.safe_dump(dict(values), sort_keys=False) if "\x85" in text else text


def read_file(path: str) -> dict[str, Any]:
    """Flat keys of a YAML experiment file."""
    from pathlib import Path

    import yaml

    try:
        text = Path(path).read_text()
        values = yaml.safe_load(text)
        _refuse_repeated_keys(path, yaml.compose(text))
    except FileNotFoundError:
        raise ConfigError(f"{path}: does not exist. Check the path.") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}). Name an experiment file."
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: is not YAML ({' '.join(str(error).split())[:200]}). Fix it."
        ) from None
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: holds {type(values).__name__}; expected keys and values such as 'algorithm: gmf'. Fix it."
        )
    return {str(k): v for k, v in values.items()}


def _refuse_repeated_keys(path: str, node: Any) -> None:
    """YAML lets the last of two equal keys win, silently."""
    lines: dict[str, int] = {}
    for key, _ in getattr(node, "value", []) if getattr(node, "id", "") == "mapping" else []:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise ConfigError(
                f"{path}:{line}: key {key.value!r} stood on line {lines[key.value]} already; expected it once. Remove one."
            )
        lines[key.value] = line
