"""The hand-made pictures of a report: a forest plot per claim, and ours next to the paper's."""

from __future__ import annotations

from statistics import mean
from typing import NamedTuple

from coterie.report.dots import DotPanel, DotRow, dot_plot
from coterie.report.forest import BETTER, UNCLEAR, WORSE, Interval, forest
from coterie.reproduce import references
from coterie.reproduce.figures import metric_key
from coterie.reproduce.scoreboard import short_labels
from coterie.reproduce.tables import short_title
from coterie.types import JsonObject

COLOURS = {
    "holds": BETTER,
    "holds in part": "#b8860b",
    "does not hold": WORSE,
    "cannot be tested": UNCLEAR,
}
DOTS_CAPTION = (
    "Dots are our means with the range over seeds; diamonds are the paper's figures, joined by a "
    "pale line."
)
TUNED = ", tuned"
"""The end of the label of a tuned method."""
MOST_IN_A_ROW = 8
"""A claim with more effects than this has its plot with the folded evidence."""
NO_EFFECT = {"difference": 0.0, "ratio": 1.0}


class Overview(NamedTuple):
    """The figure of a report's first screen."""

    key: str
    """The name of its file, without the ending."""
    svg: str
    caption: str


def overview(report: JsonObject) -> Overview | None:
    """Ours next to the paper's headline figures; without any, the effects of the first claim."""
    for item in report["items"]:
        for key, svg in dot_plots(item).items():
            return Overview(key, svg, f"{short_title(item)}. {DOTS_CAPTION}")
    for item in report["items"]:
        for svg in forests(all_effects(item)):
            return Overview(f"effects-{item['key']}", svg, item["title"])
    return None


def all_pictures(report: JsonObject) -> dict[str, str]:
    """The name of each picture's file, without the ending, and its SVG."""
    pictures: dict[str, str] = {}
    first = overview(report)
    if first is not None:
        pictures[first.key] = first.svg
    for item in report["items"]:
        pictures |= dot_plots(item)
        for claim in item["claims"]:
            for number, drawn in enumerate(forests(claim)):
                pictures[claim_key(item, claim, number)] = drawn
    return pictures


def claim_key(item: JsonObject, claim: JsonObject, number: int) -> str:
    """The file name of a claim's picture."""
    ending = f"-{number + 1}" if number else ""
    return f"claim-{item['key']}-{claim['name']}{ending}"


# ---- forest plots


def forests(claim: JsonObject) -> list[str]:
    """The effects of a claim by dataset: one plot of differences and one of ratios."""
    return [
        _forest(claim, scale)
        for scale in ("difference", "ratio")
        if any(effect["scale"] == scale for effect in effects(claim))
    ]


def fits_a_row(claim: JsonObject) -> bool:
    """Whether a claim has effects, and few enough to plot them in its row."""
    return 0 < len(effects(claim)) <= MOST_IN_A_ROW


def effects(claim: JsonObject) -> list[JsonObject]:
    """The effects of all parts on all datasets."""
    parts = [part for found in claim["by"].values() for part in found["parts"]]
    return [part["effect"] for part in parts if part["effect"]]


def _forest(claim: JsonObject, scale: str) -> str:
    labels = short_labels([effect["label"] for effect in effects(claim)])
    intervals = []
    for dataset, found in claim["by"].items():
        lines = [
            Interval(
                group=dataset,
                label=labels[part["effect"]["label"]],
                colour=COLOURS[part["verdict"]],
                value=part["effect"]["value"],
                low=part["effect"]["low"],
                high=part["effect"]["high"],
            )
            for part in found["parts"]
            if part["effect"] and part["effect"]["scale"] == scale
        ]
        untested = Interval(group=dataset, label="", colour="", note="cannot be tested")
        if lines or found["verdict"] == "cannot be tested":
            intervals += lines or [untested]
    title = f"{claim['said']}: {scale} and interval by dataset"
    return forest(intervals, thresholds(claim, scale), NO_EFFECT[scale], title)


def all_effects(item: JsonObject) -> JsonObject:
    """The effects of all claims of an item, as if they were parts of one."""
    by_dataset: dict[str, list[JsonObject]] = {}
    for claim in item["claims"]:
        for dataset, found in claim["by"].items():
            parts = [part for part in found["parts"] if part["effect"]]
            by_dataset.setdefault(dataset, []).extend(parts)
    return {
        "said": item["title"],
        "by": {name: {"verdict": "", "parts": parts} for name, parts in by_dataset.items()},
    }


def thresholds(claim: JsonObject, scale: str) -> list[float]:
    """Where the claim begins to hold; a tolerance has a line on both sides of zero."""
    marks: set[float] = set()
    for found in claim["by"].values():
        for part in found["parts"]:
            effect = part["effect"]
            if effect and effect["scale"] == scale:
                marks.add(effect["threshold"])
                if effect["tolerance"]:
                    marks.add(-effect["threshold"])
    return sorted(marks)


# ---- ours next to the paper's


def dot_plots(item: JsonObject) -> dict[str, str]:
    """A plot for every metric of which the paper prints figures; in the order of the metrics."""
    if not item["tables"]:
        return {}
    plots = {}
    for number, metric in enumerate(item["tables"][0]["metrics"]):
        panels = [panel for table in item["tables"] if (panel := dot_panel(table, number))]
        if panels:
            name = f"dots-{item['key']}-{metric_key(metric)}"
            plots[name] = dot_plot(panels, metric, f"{metric}: ours next to the paper's")
    return plots


def dot_panel(table: JsonObject, number: int) -> DotPanel | None:
    """One dataset's methods with printed figures, and their variants."""
    metric = table["metrics"][number]
    printed = {label: row[number] for label, row in table["paper"].items() if len(row) > number}
    rows = [
        dot_row(table, label, metric, printed.get(label))
        for label in table["rows"]
        if variant_of(label, printed) and not has_untuned(label, table) and label != "random"
    ]
    if not printed or not rows:
        return None
    best = references.best_centralised(table, metric)
    return DotPanel(
        title=table["dataset"],
        rows=tuple(rows),
        chance=references.chance(table, metric),
        central=best.value if best else None,
        central_name=best.name if best else "",
    )


def variant_of(label: str, printed: JsonObject) -> bool:
    """Whether a method has printed figures, or is a variant of one that has."""
    return any(label == name or label.startswith(f"{name}, ") for name in printed)


def has_untuned(label: str, table: JsonObject) -> bool:
    """Whether the label is a tuned method whose row with the paper's settings is there too."""
    return label.endswith(TUNED) and label.removesuffix(TUNED) in table["rows"]


def dot_row(table: JsonObject, label: str, metric: str, printed: float | None) -> DotRow:
    ours = table["rows"][label]["metrics"].get(metric)
    tuned = table["rows"].get(label + TUNED, {}).get("metrics", {}).get(metric)
    return DotRow(
        label=label,
        ours=mean(ours) if ours else None,
        low=min(ours) if ours else None,
        high=max(ours) if ours else None,
        tuned=mean(tuned) if tuned else None,
        printed=printed,
    )
