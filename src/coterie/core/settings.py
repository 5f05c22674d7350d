"""Typed, frozen, flat and closed settings: an unknown key is an error with a suggestion, a value out of range a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from coterie.errors import ConfigError, did_you_mean

SearchSpace: TypeAlias = Mapping[str, tuple[float, float] | list[Any]]

STEPS = {"rounds": "epochs", "epochs": "rounds"}
"""What one algorithm counts in is not what another does."""


class Settings(BaseModel):
    """A group of settings. The docstring under each field is its help text everywhere."""

    search_space: ClassVar[SearchSpace] = {}
    """What `coterie tune` draws from: a range (low, high) on a logarithmic scale, or a list."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _yes_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads `yes` as true, and Python counts true as 1: `epochs=yes` must not train one epoch."""
        yes_or_no = isinstance(value, bool) or (
            isinstance(value, (list, tuple)) and any(isinstance(v, bool) for v in value)
        )
        if yes_or_no and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError("expected something other than yes or no")
        return value

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From plain values; the first wrong one becomes one line that names it."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise ConfigError(_first(cls, error)) from None

    @classmethod
    def rows(cls) -> list[tuple[str, str, str]]:
        """(name, default, help) of every setting, for help texts and the docs."""
        return [
            (
                name,
                _plain(f.default),
                " ".join(filter(None, [f.description, _choices(f.annotation)])),
            )
            for name, f in cls.model_fields.items()
        ]


def split_by_owner(
    values: Mapping[str, Any], owners: Mapping[str, type[Settings]]
) -> dict[str, dict[str, Any]]:
    """Share out flat keys among groups of settings; a key nobody has is an error."""
    known: dict[str, str] = {}
    for name, group in owners.items():
        if shared := known.keys() & group.model_fields.keys():
            raise ValueError(
                f"settings {sorted(shared)} stand in two groups, {name} and another; flat keys need one owner"
            )
        known |= dict.fromkeys(group.model_fields, name)
    shares: dict[str, dict[str, Any]] = {name: {} for name in owners}
    for key, value in values.items():
        if key not in known:
            other = STEPS.get(key)
            hint = f"Did you mean {other!r}?" if other in known else did_you_mean(key, known)
            raise ConfigError(f"unknown setting {key!r} (value {value!r}). {hint}")
        shares[known[key]][key] = value
    return shares


def _first(group: type[Settings], error: ValidationError) -> str:
    fault = error.errors()[0]
    if not fault["loc"]:  # a rule about several settings says it all
        return fault["msg"].removeprefix("Value error, ") + "."
    key = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"unknown setting {key!r}. {did_you_mean(key, group.model_fields)}"
    rule = fault["msg"].removeprefix("Value error, ")
    rule = rule[0].lower() + rule[1:]
    hint = group.model_fields[key].description if key in group.model_fields else None
    about = f" ({' '.join(hint.split()).split('. ')[0].rstrip('.')})" if hint else ""
    return f"setting {key!r} is {fault.get('input')!r}; {rule}{about}. Change it with --set {key}=VALUE."


def _choices(annotation: Any) -> str:
    """What a setting of a few words may be."""
    return (
        f"One of {', '.join(map(str, get_args(annotation)))}."
        if get_origin(annotation) is Literal
        else ""
    )


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else str(value)
