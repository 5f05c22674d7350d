"""Typed, frozen, flat and closed settings.

An unknown key is an error with a suggestion; an invalid value is an error that states the rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from coterie.errors import ConfigError, did_you_mean

SearchSpace: TypeAlias = Mapping[str, tuple[float, float] | list[float] | list[int] | list[str]]

OTHER_WORDS: dict[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "eta", "alpha", "step_size", "rate", "learn_rate"),
    "embedding_size": (
        *("dim", "dims", "d", "k", "rank", "factors", "n_factors", "num_factors", "latent_dim"),
        *("embedding_dim", "emb_dim", "emb_size", "embed_dim", "n_components", "no_components"),
        *("hidden_size", "latent", "size"),
    ),
    "neighbours": ("k", "n_neighbors", "neighbors", "n_neighbours", "knn"),
    "reg": ("lambda", "l2", "weight_decay", "regularization", "regularisation", "reg_lambda"),
    "reg_l1": ("l1", "l1_reg", "lambda1", "lambda_1", "beta", "alpha"),
    "reg_l2": ("l2", "l2_reg", "lambda2", "lambda_2", "reg", "weight_decay", "regularization"),
    "reg_user": ("lambda", "l2", "reg", "weight_decay", "regularization", "regularisation"),
    "epochs": ("rounds", "n_epochs", "num_epochs", "iterations", "n_iter", "iters", "max_iter"),
    "rounds": ("epochs", "n_rounds", "num_rounds", "global_epochs", "iterations", "n_iter"),
    "local_epochs": ("E", "local_steps", "client_epochs"),
    "participation": ("C", "fraction_fit", "client_fraction", "sample_rate", "frac"),
    "users_per_round": ("clients_per_round", "n_clients", "cohort_size"),
    "negatives": ("neg", "n_neg", "num_neg", "num_negatives", "n_negatives", "negative_samples"),
    "batch_size": ("batch", "bs", "minibatch"),
    "start_scale": ("init_std", "init_scale", "sigma", "std"),
    "cutoffs": ("topk", "top_k", "top_n", "cutoff", "at"),
    "seed": ("random_state", "random_seed", "rng"),
    "patience": ("early_stopping", "stopping_step"),
    "evaluate_every": ("eval_every", "eval_step", "eval_interval", "log_interval"),
    "min_user_interactions": ("min_interactions", "k_core", "core"),
}
"""Settings, and the words that other libraries and papers have for them. Where two settings share a
word, the first that the algorithm has is meant."""


LIST_EXPECTED = ("list_type", "tuple_type")
"""Pydantic's names of the fault that one value stands where a list is expected."""


class DataSize(NamedTuple):
    """What everybody in a federation knows about the data."""

    users: int
    items: int
    interactions: int
    rated: bool
    """Whether users rate items, so that scores predict ratings."""


class Settings(BaseModel):
    """A group of settings. The docstring under each field is its help text everywhere."""

    search_space: ClassVar[SearchSpace] = {}
    """What `coterie tune` draws from: a range (low, high) on a logarithmic scale, or a list."""
    trial_steps: ClassVar[int | None] = None
    """Rounds or epochs that a trial of `coterie tune` trains at most; None takes the usual number.
    1 if one step gives the final model: then their number is not searched."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool(cls, value: object, info: ValidationInfo) -> object:
        """Reject booleans for other types. YAML reads `yes` as true, which Python counts as 1."""
        values = value if isinstance(value, (list, tuple)) else (value,)
        has_bool = any(isinstance(v, bool) for v in values)
        if has_bool and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError("expected something other than yes or no")
        return value

    def for_data(self, size: DataSize) -> Self:
        """The settings with those set that follow from the size of the data; here none do."""
        return self

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """Validate plain values; the first invalid one raises a one-line error."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(_first(cls, error)) from None

    @classmethod
    def rows(cls) -> list[tuple[str, str, str]]:
        """(name, default, help) of every setting, for help texts and the docs."""
        rows = []
        for name, f in cls.model_fields.items():
            help_text = " ".join(filter(None, [f.description, _choices(f.annotation)]))
            default = "" if f.is_required() else _plain(f.get_default(call_default_factory=True))
            rows.append((name, default, help_text))
        return rows


def split_by_owner(
    values: Mapping[str, object], owners: Mapping[str, type[Settings]]
) -> dict[str, dict[str, object]]:
    """Distribute flat keys over groups of settings; a key that no group has is an error."""
    known: dict[str, str] = {}
    for name, group in owners.items():
        if shared := known.keys() & group.model_fields.keys():
            raise ValueError(
                f"settings {sorted(shared)} are in two groups, {name} and another; "
                "expected one group per setting. Rename them."
            )
        known |= dict.fromkeys(group.model_fields, name)
    shares: dict[str, dict[str, object]] = {name: {} for name in owners}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(f"unknown setting {key!r} (value {value!r}). {hint(key, known)}")
        shares[known[key]][key] = value
    return shares


def hint(key: str, known: Collection[str]) -> str:
    """The setting that is meant: by another word for it, else by its letters."""
    meant = [
        name
        for name, words in OTHER_WORDS.items()
        if name in known and key.lower() in _lower(words)
    ]
    return f"Did you mean {meant[0]!r}?" if meant else did_you_mean(key, known)


def _lower(words: Collection[str]) -> list[str]:
    return [word.lower() for word in words]


def _first(group: type[Settings], error: ValidationError) -> str:
    fault = error.errors()[0]
    if not fault["loc"]:  # the message of a rule about several settings is complete
        return fault["msg"].removeprefix("Value error, ") + "."
    key = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"unknown setting {key!r}. {hint(key, group.model_fields)}"
    rule = fault["msg"].removeprefix("Value error, ")
    rule = rule[0].lower() + rule[1:]
    if fault["type"] in LIST_EXPECTED:
        rule = f"expected a list, such as [{fault['input']}]"
    help_text = group.model_fields[key].description if key in group.model_fields else None
    about = f" ({' '.join(help_text.split()).split('. ')[0].rstrip('.')})" if help_text else ""
    return (
        f"setting {key!r} is {fault.get('input')!r}; {rule}{about}. "
        f"Change it with --set {key}=VALUE."
    )


def _choices(annotation: object) -> str:
    """The allowed words of a setting that has a fixed set of them."""
    if get_origin(annotation) is not Literal:
        return ""
    return f"One of {', '.join(map(str, get_args(annotation)))}."


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None or value == {} else str(value)
