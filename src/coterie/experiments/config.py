"""An experiment as a value: flat keys outside (YAML, --set, Python), typed settings inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from coterie.algorithms.algorithm import Algorithm
from coterie.algorithms.registry import algorithm
from coterie.core.missing_files import remedy_for
from coterie.core.plain_files import MOST_YAML_BYTES, parse_yaml, read_text
from coterie.core.printable import one_line
from coterie.core.settings import Settings, split_by_owner
from coterie.data.datasets import dataset, has_default_filters
from coterie.data.filters import Filters
from coterie.data.synthetic import Synthetic
from coterie.errors import ConfigError, DataError
from coterie.evaluation.protocols import Protocol, protocol
from coterie.evaluation.rating_errors import check_ratings
from coterie.federated.settings import FederationSettings
from coterie.types import JsonObject

if TYPE_CHECKING:
    import yaml

NAMING_FILES = (
    "test_file",
    "validation_file",
    "candidates_file",
    "start_from",
    "disclosure_file",
    "private_items",
    "availability_file",
)
"""Settings that name files or a run folder, whose content is part of the experiment."""
READING = "average"
"""The setting that chooses between readings of one formula, each with its own tuned settings."""
RENAMED = {
    "protect": "secure_aggregation",
    "drop_out": "client_dropout",
    "users_a_round": "users_per_round",
    "rounds_a_day": "rounds_per_day",
    "over_select": "over_selection",
}
"""Settings of earlier development versions and their names today."""
OF_NODES = "federation.csv"
"""The dataset of a federation's run: its interactions are on nodes."""


Saved: TypeAlias = Literal["recommendations", "split"]


def _as_words(value: object) -> object:
    """Accept words from the command line, where `recommendations,split` is one text."""
    return tuple(value.split(",")) if isinstance(value, str) else value


class Choice(Settings):
    """The algorithm, the data, the protocol and the seed."""

    algorithm: str
    """Name of the algorithm: coterie algorithms"""
    dataset: str = "synthetic"
    """Name of a dataset, or a path: coterie data list"""
    protocol: str | None = None
    """Name of the protocol; the dataset's own by default."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of all randomness; the same seed gives the same result."""
    columns: dict[str, str] = Field(default_factory=dict)
    """For files: the column of every role, as role: column."""
    skip_bad_rows: bool = False
    """For files: count bad rows and drop them instead of stopping at the first."""
    encoding: str | None = None
    """For csv, tsv and txt files: the encoding, such as latin-1; UTF-8 by default."""
    delimiter: str | None = None
    """For csv, tsv and txt files: what separates cells; by default the header shows it."""
    header: bool = True
    """For csv, tsv and txt files: false if there is no header; columns are then numbers from 1."""


class Course(Settings):
    """Measurements, checkpoints, stopping, warm start, and what is shown and saved."""

    evaluate_every: int = Field(0, ge=0)
    """Rounds or epochs between measurements; 0 measures about twenty times."""
    curve_users: int | None = Field(None, ge=0)
    """Users that the curve on the test part is measured on; 0 takes all. By default as many as keep
    the curve to about a tenth of training. Final figures are always those of all users."""
    checkpoint_every: int = Field(0, ge=0)
    """Rounds or epochs between checkpoints; 0 saves one every few seconds."""
    target: float | None = Field(None, ge=0)
    """Target for the followed metric; the result reports the rounds and updates to reach it."""
    start_from: str | None = None
    """Run folder to take weights from; users and items it does not know start untrained."""
    patience: int = Field(0, ge=0)
    """Measurements without improvement on validation before stopping; 0 trains to the end."""
    patience_from: int = Field(0, ge=0)
    """Round or epoch from which patience counts: a curve that begins flat is not stopped there."""
    popularity_prior: float | None = Field(None, ge=0)
    """Interactions of a user that popularity counts as in the user's scores; 0 leaves it out. By
    default derived from the data where the algorithm learns little of popularity and is not tuned
    for the data; else 0."""
    dataset_name: str | None = None
    """Name of the data in results; by default as in `dataset`."""
    save: Annotated[tuple[Saved, ...], BeforeValidator(_as_words)] | None = None
    """What to save in the run folder besides the model: recommendations (the best items of every
    user), split (the training, validation and test interactions), or both. Only the owner
    can read them."""
    as_published: bool = False
    """Exclude held-out items from negatives, as leaky published code does, to show its figure."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """Everything that defines a run."""

    choice: Choice
    course: Course
    filters: Filters
    protocol: Protocol
    synthetic: Synthetic
    settings: Settings
    tuned: bool
    """Whether the defaults are settings tuned on this dataset's validation part."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Experiment:
        """From flat keys. Missing ones come from the dataset, then from settings tuned for it."""
        if "algorithm" not in values:
            raise ConfigError(
                f"the keys are {', '.join(values) or 'empty'}; expected a key 'algorithm'. Add one."
            )
        _refuse_renamed_settings(values)
        is_synthetic = str(values.get("dataset", "synthetic")) == "synthetic"
        chosen = algorithm(str(values["algorithm"]))
        owners: dict[str, type[Settings]] = {
            "choice": Choice,
            "course": Course,
            "filters": Filters,
            "protocol": Protocol,
            "settings": chosen.settings,
        }
        if is_synthetic:
            owners["synthetic"] = Synthetic
        _refuse_federated_settings(values, chosen)
        shares = split_by_owner(values, owners)
        choice = Choice.of(shares["choice"])
        course = Course.of(shares["course"])
        source = dataset(choice.dataset)
        filters = Filters.of(source.filters | shares["filters"])
        synthetic = Synthetic.of(shares.get("synthetic", {}))
        usual = has_default_filters(choice.dataset, filters, synthetic)
        defaults = {}
        # Settings tuned on the users' own data would say something about them.
        if usual and shares["settings"].get("epsilon") is None:
            defaults = tuned_settings(choice.dataset, choice.algorithm, shares["settings"])
        if filters.feedback == "explicit" and not chosen.explicit:
            raise ConfigError(
                f"setting 'feedback' is 'explicit', but {choice.algorithm} learns from implicit "
                "feedback only. Remove the setting, or use an algorithm that learns from ratings, "
                "such as fedals or gmf."
            )
        if filters.feedback == "explicit" and course.popularity_prior:
            raise ConfigError(
                f"setting 'popularity_prior' is {course.popularity_prior:g}, but 'feedback' is "
                "'explicit', and popularity does not predict ratings. Remove one of the two."
            )
        _refuse_unaccounted(course, shares["settings"])
        protocol_name = choice.protocol or source.protocol
        evaluated_by = protocol(protocol_name, shares["protocol"])
        # Data passed in from Python may have ratings; it is checked once it is here.
        if choice.dataset != "given":
            check_ratings(evaluated_by, filters.feedback == "explicit")
        held_out = evaluated_by.validation or evaluated_by.validation_file
        # Parts passed in from Python may have a validation part; training checks it.
        if course.patience and not held_out and evaluated_by.split != "given":
            raise ConfigError(
                f"setting 'patience' is {course.patience}, but there is no validation part; "
                "expected one. Set validation=true, or patience=0."
            )
        return cls(
            choice=choice.model_copy(update={"protocol": protocol_name}),
            course=course,
            filters=filters,
            protocol=evaluated_by,
            synthetic=synthetic,
            settings=owners["settings"].of(defaults | shares["settings"]),
            tuned=bool(defaults),
        )

    @property
    def data_label(self) -> str:
        """The name of the data in results; a resumed run knows its file by another path."""
        return self.course.dataset_name or self.choice.dataset

    @property
    def protocol_label(self) -> str:
        """The protocol's name, with changed settings in brackets."""
        name = str(self.choice.protocol)
        usual = protocol(name, {})
        changed = [
            f"{key}={_brief(value)}"
            for key, value in self.protocol
            if key not in ("headline", "metrics", "category_bias", "validation", "validation_file")
            and value != getattr(usual, key)
        ]
        return f"{name} ({', '.join(changed)})" if changed else name

    def flat(self) -> JsonObject:
        """Every setting with its value; `Experiment.of` makes the same experiment from it."""
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


def renamed_setting(values: Mapping[str, object]) -> str | None:
    """The first setting that has another name today, if there is one."""
    return next((key for key in values if key in RENAMED), None)


def _refuse_renamed_settings(values: Mapping[str, object]) -> None:
    old = renamed_setting(values)
    if old is not None:
        raise ConfigError(
            f"setting {old!r} is of an earlier development version; expected {RENAMED[old]!r}. "
            "Rename the key."
        )


def _refuse_federated_settings(values: Mapping[str, object], chosen: Algorithm) -> None:
    """A centralised algorithm has no settings of a federation."""
    own = chosen.settings.model_fields
    federated = [k for k in values if k in FederationSettings.model_fields and k not in own]
    if federated and not chosen.federated:
        raise ConfigError(
            f"setting {federated[0]!r} is {values[federated[0]]!r}, but {values['algorithm']} is "
            "centralised; expected a federated algorithm (coterie algorithms). Remove the setting."
        )


def changed(values: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Flat keys with changes on top. Another protocol drops the settings of the previous one."""
    base = dict(values)
    if changes.get("protocol"):
        base = {key: value for key, value in base.items() if key not in Protocol.model_fields}
    return base | dict(changes)


def _refuse_unaccounted(course: Course, settings: Mapping[str, object]) -> None:
    """Under a privacy budget, refuse what looks at users' data without spending from it."""
    if settings.get("epsilon") is None:
        return
    if course.popularity_prior:
        raise ConfigError(
            f"setting 'popularity_prior' is {course.popularity_prior:g}, but 'epsilon' is set, and "
            "the popularity of items is counted without noise; expected 0. Remove one of the two."
        )
    if course.patience:
        raise ConfigError(
            f"setting 'patience' is {course.patience}, but 'epsilon' is set, and choosing a model "
            "by its validation metrics is not paid for; expected 0. Remove one of the two."
        )
    if course.start_from:
        raise ConfigError(
            f"setting 'start_from' is {course.start_from!r}, but 'epsilon' is set, and what the "
            "other run spent is not known; expected neither or one. Remove one of the two."
        )


def _brief(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return PurePath(value).name if isinstance(value, str) else str(value)


@cache
def _tuned() -> dict[str, dict[str, JsonObject]]:
    import yaml

    text = resources.files("coterie.experiments").joinpath("tuned.yaml").read_text()
    return yaml.safe_load(text) or {}


def tuned_settings(
    dataset_name: str, algorithm_name: str, given: Mapping[str, object] | None = None
) -> JsonObject:
    """Settings tuned on the dataset's validation part (benchmarks/tune.py), if there are any.

    FedAvg has two readings of its formula (`average`), and settings found for one are not used for
    the other: `given` chooses the reading. Without it, the settings are those of the default.
    """
    entries = _tuned().get(dataset_name, {})
    usual = entries.get(algorithm_name, {})
    reading = (given or {}).get(READING, usual.get(READING))
    entry = usual if usual.get(READING, reading) == reading else {}
    return dict(entries.get(f"{algorithm_name}, {READING}={reading}", entry))


def tuned_for(algorithm_name: str) -> list[str]:
    """The datasets that an algorithm is tuned for."""
    return [name for name, tuned in _tuned().items() if algorithm_name in tuned]


def parse_assignments(pairs: list[str]) -> JsonObject:
    """`key=value` from the command line; values are read as YAML."""
    import yaml

    values: JsonObject = {}
    for pair in pairs:
        key, separator, text = pair.partition("=")
        if not separator or not key.strip():
            raise ConfigError(
                f"--set is {pair!r}; expected key=value. Write for example --set embedding_size=16"
            )
        try:
            values[key.strip()] = parse_yaml(text) if text else None
        except yaml.YAMLError:
            values[key.strip()] = text
    return values


def as_yaml(values: Mapping[str, object]) -> str:
    """YAML that reads back unchanged: a literal U+0085 would be read as a line break."""
    import yaml

    text = yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True)
    return yaml.safe_dump(dict(values), sort_keys=False) if "\x85" in text else text


def read_file(path: str, example: str = "algorithm: gmf") -> JsonObject:
    """Flat keys of a YAML file; `example` is one of them."""
    import yaml

    try:
        text = read_text(Path(path), MOST_YAML_BYTES)
        values = parse_yaml(text)
        _refuse_repeated_keys(path, yaml.compose(text))
    except FileNotFoundError:
        raise ConfigError(f"{path}: does not exist. {remedy_for(Path(path))}") from None
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}). Check the path and its permissions."
        ) from None
    except (yaml.YAMLError, DataError) as error:
        why = one_line(" ".join(str(error).split())).removeprefix(f"{path}: ")
        raise ConfigError(f"{path}: is not YAML ({why[:200]}). Fix it.") from None
    if not isinstance(values, dict):
        found = "is empty" if values is None else f"is a {type(values).__name__}"
        raise ConfigError(f"{path}: {found}; expected keys and values such as {example!r}. Fix it.")
    return {str(k): v for k, v in values.items()}


def _refuse_repeated_keys(path: str, node: yaml.Node | None) -> None:
    """YAML silently uses the last of two equal keys."""
    lines: dict[str, int] = {}
    for key, _ in getattr(node, "value", []) if getattr(node, "id", "") == "mapping" else []:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise ConfigError(
                f"{path}:{line}: key {key.value!r} is already on line {lines[key.value]}; "
                "expected it once. Remove one."
            )
        lines[key.value] = line
