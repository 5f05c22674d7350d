"""Runs in groups of comparable ones: same data, filters, split and protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.report.conditions import SHORT, filters_text, split_text
from coterie.report.table import Reported
from coterie.types import JsonObject

MARKS = ("dataset", "data", "filters", "synthetic", "protocol", "evaluation")
"""Keys of a result that runs of one group share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunGroup:
    """Runs whose figures may stand in one table."""

    title: str
    runs: tuple[Reported, ...]


def grouped(runs: Sequence[Reported]) -> list[RunGroup]:
    """The groups, in the order of their first runs.

    A key that a run of an earlier version lacks separates no runs: the fingerprint of the data and
    the protocol's name are in every result.
    """
    marks = _shared_marks([run.result for run in runs])
    members: dict[str, list[Reported]] = {}
    for run in runs:
        values = [run.result.get(mark) for mark in marks]
        members.setdefault(json.dumps(values, sort_keys=True), []).append(run)
    titles = _titles([of_group[0].result for of_group in members.values()])
    return [
        RunGroup(title=title, runs=tuple(of_group))
        for title, of_group in zip(titles, members.values(), strict=True)
    ]


def are_comparable(one: JsonObject, other: JsonObject) -> bool:
    """Whether the figures of two results may stand in one table."""
    return all(one.get(mark) == other.get(mark) for mark in _shared_marks([one, other]))


def _shared_marks(results: Sequence[JsonObject]) -> list[str]:
    """The marks that all results have; `synthetic` is absent from those of other data."""
    optional = ("synthetic",)
    return [mark for mark in MARKS if mark in optional or all(mark in one for one in results)]


def warning(groups: Sequence[RunGroup]) -> str:
    """What a reader must know about several groups; "" for one."""
    if len(groups) < 2:
        return ""
    return (
        f"{len(groups)} groups of runs that are not comparable with each other: "
        f"they differ in {' and '.join(_differences(groups))}."
    )


def _differences(groups: Sequence[RunGroup]) -> list[str]:
    """The conditions in which the groups differ."""
    results = [group.runs[0].result for group in groups]
    words = {
        "dataset": [result["dataset"] for result in results],
        "filters": [filters_text(result) for result in results],
        "split": [split_text(result) for result in results],
        "protocol": [result["protocol"] for result in results],
    }
    found = [name for name, values in words.items() if len(set(values)) > 1]
    if "dataset" not in found and len({result["data"] for result in results}) > 1:
        found.insert(0, "the data's fingerprint")
    return found or ["the settings of their protocol"]


def _titles(results: Sequence[JsonObject]) -> list[str]:
    """Dataset and protocol; groups that share both are distinguished by what differs."""
    titles = [f"{result['dataset']}, {result['protocol']}" for result in results]
    details = (
        [f"filters: {filters_text(result)}" for result in results],
        [f"split: {split_text(result)}" for result in results],
        [f"data {result['data'][:SHORT]}" for result in results],
    )
    for texts in details:
        titles = [
            f"{title}, {text}" if _is_ambiguous(number, titles, texts) else title
            for number, (title, text) in enumerate(zip(titles, texts, strict=True))
        ]
    return titles


def _is_ambiguous(number: int, titles: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether another group has the same title and the detail tells the two apart."""
    return any(
        title == titles[number] and text != texts[number]
        for title, text in zip(titles, texts, strict=True)
    )
