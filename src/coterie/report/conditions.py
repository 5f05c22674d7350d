"""The conditions of a result: data, filters, split and protocol, in words."""

from __future__ import annotations

from typing import NamedTuple

from coterie.types import JsonObject

UNKNOWN = "not recorded by the version that made the run"
SHORT = 8
"""Letters of a fingerprint that are shown."""


class Fact(NamedTuple):
    """One entry of a methods box."""

    name: str
    lines: list[str]


def facts(result: JsonObject) -> list[Fact]:
    """Everything that must be the same for two results to be comparable."""
    return [
        Fact("Data", [data_text(result)]),
        Fact("Filters", [filters_text(result)]),
        Fact("Split", [split_text(result)]),
        Fact("Protocol", [protocol_text(result)]),
    ]


def data_text(result: JsonObject) -> str:
    """The data after filtering, with its fingerprint."""
    text = f"{result['dataset']}, fingerprint {result['data'][:SHORT]}"
    made = result.get("synthetic")
    return f"{text}; generated with {key_values(made)}" if made else text


def filters_text(result: JsonObject) -> str:
    """The filters that are set."""
    if "filters" not in result:
        return UNKNOWN
    return key_values(result["filters"]) or "none"


def split_text(result: JsonObject) -> str:
    """What was held out."""
    if "evaluation" not in result:
        return UNKNOWN
    evaluation = result["evaluation"]
    text = str(evaluation["split"])
    if text in ("temporal", "global-time", "random"):
        text += f", {evaluation['fraction']:.0%} held out"
    if evaluation["validation"] or evaluation["validation_file"]:
        text += ", with a validation part"
    return text


def protocol_text(result: JsonObject) -> str:
    """How the held-out items were ranked."""
    name = str(result["protocol"])
    if "evaluation" not in result:
        return name
    evaluation = result["evaluation"]
    if evaluation["candidates_file"]:
        ranked = f"ranked among the candidates of {evaluation['candidates_file']}"
    elif evaluation["candidates"]:
        ranked = (
            f"ranked among {evaluation['candidates']} sampled candidates "
            f"per {evaluation['candidates_for']}"
        )
    else:
        ranked = "ranked among all items"
    lengths = ", ".join(map(str, evaluation["cutoffs"]))
    return f"{name}: {ranked}; lists of {lengths}"


def key_values(values: JsonObject) -> str:
    """A flat JSON object as text."""
    return ", ".join(f"{key} {value}" for key, value in values.items())
