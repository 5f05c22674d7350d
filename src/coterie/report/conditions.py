"""The conditions of a result: data, filters, split and protocol, in words."""

from __future__ import annotations

from typing import NamedTuple

from coterie.types import JsonObject

READING = "How the data was read"
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
        Fact("Split", [split_text(result), *_lines(held_out_text(result))]),
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


def held_out_text(result: JsonObject) -> str:
    """What the split held out, in plain words; "" if the result does not say."""
    if "evaluation" not in result:
        return ""
    evaluation = result["evaluation"]
    share = f"{evaluation['fraction']:.0%}"
    if evaluation["candidates_file"]:
        return f"the test pairs of {evaluation['candidates_file']} held out"
    has_times = result["future_share"] is not None
    kinds = {
        "leave-one-out": "the newest interaction of every user",
        "temporal": f"the newest {share} of every user's interactions",
        "global-time": f"the newest {share} of all interactions",
        "random": f"{share} of every user's interactions, drawn at random,",
        "k-fold": f"one of {evaluation.get('folds')} random parts of every user's interactions",
        "own": f"the interactions of {evaluation.get('test_file')}",
        "given": "the test part that was passed in",
    }
    without_times = {
        "leave-one-out": "one interaction of every user, drawn at random (no times),",
        "temporal": f"{share} of every user's interactions, drawn at random (no times),",
    }
    words = kinds if has_times else kinds | without_times
    return f"{words[evaluation['split']]} held out"


def protocol_line(result: JsonObject) -> str:
    """The protocol in one line: its name, what is held out and how it is ranked."""
    name, _, ranked = protocol_text(result).partition(": ")
    texts = [text for text in (held_out_text(result), ranked) if text]
    return f"Protocol {name}" + (f": {', '.join(texts)}" if texts else "")


def reading_lines(result: JsonObject) -> list[str]:
    """How the data was read; earlier versions did not record it."""
    return list(result.get("reading", []))


def _lines(text: str) -> list[str]:
    return [text] if text else []


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
        ranked = "ranked among all items that the user has not seen"
    lengths = ", ".join(map(str, evaluation["cutoffs"]))
    return f"{name}: {ranked}; lists of {lengths}"


def key_values(values: JsonObject) -> str:
    """A flat JSON object as text."""
    return ", ".join(f"{key} {value}" for key, value in values.items())
