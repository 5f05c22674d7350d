"""Verdicts at a glance: counts of the paper's claims and of ours, badges, and where claims hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coterie.report.parts import label
from coterie.types import JsonObject

ORDER = ("holds", "holds in part", "does not hold", "cannot be tested")
CLASSES = {
    "holds": "holds",
    "holds in part": "part",
    "does not hold": "not",
    "cannot be tested": "open",
}
SIGNS = {"holds": "✓", "holds in part": "◐", "does not hold": "✗", "cannot be tested": "?"}
"""Verdicts differ by sign as well as by colour."""
PLURAL = {
    "holds": "hold",
    "holds in part": "hold in part",
    "does not hold": "do not hold",
    "cannot be tested": "cannot be tested",
}
ON = {
    "holds": "holds on",
    "holds in part": "in part on",
    "does not hold": "not on",
    "cannot be tested": "cannot be tested on",
}
LONGEST = 120
"""Most letters of a text that says where a claim holds."""


class Score(NamedTuple):
    """The verdict counts of one kind of claims."""

    title: str
    counts: dict[str, int]


def verdicts(items: Sequence[JsonObject], ours: bool) -> dict[str, int]:
    """How many of the paper's claims, or of ours, have each verdict."""
    given = [
        claim["verdict"] for item in items for claim in item["claims"] if claim["ours"] == ours
    ]
    return {verdict: given.count(verdict) for verdict in ORDER}


def scores(items: Sequence[JsonObject]) -> list[Score]:
    """The counts of the paper's claims, then of ours; a kind without claims is left out."""
    kinds = {False: "The paper's claims", True: "Our additional claims"}
    every = [Score(title, verdicts(items, ours)) for ours, title in kinds.items()]
    shown = [score for score in every if sum(score.counts.values())]
    if [score.title for score in shown] == [kinds[True]]:
        return [shown[0]._replace(title="Our claims")]
    return shown


def scores_text(items: Sequence[JsonObject]) -> str:
    """The scoreboard in one line of text."""
    return "; ".join(
        f"{score.title.lower()}: {counts_text(score.counts)}" for score in scores(items)
    )


def counts_text(counts: dict[str, int]) -> str:
    """The verdict counts in words; verdicts that no claim has are left out."""
    return ", ".join(_counted(verdict, n) for verdict, n in counts.items() if n)


def _counted(verdict: str, n: int) -> str:
    return f"{n} {verdict if n == 1 else PLURAL[verdict]}"


def badge(verdict: str, text: str = "") -> str:
    """A verdict as a coloured label in HTML."""
    words = f"{SIGNS[verdict]} {text or verdict}"
    return label(words, CLASSES[verdict])


def score_badges(score: Score) -> str:
    """The counts as coloured labels."""
    return " ".join(
        badge(verdict, _counted(verdict, n)) for verdict, n in score.counts.items() if n
    )


# ---- where a claim holds


def where_it_holds(claim: JsonObject) -> str:
    """On which datasets or in which comparisons a claim holds, or what few speak against it."""
    found = claim["by"]
    parts = [part for one in found.values() for part in one["parts"]]
    if claim["verdict"] == "does not hold":
        return _few_against(parts)
    if claim["verdict"] != "holds in part":
        return ""
    if {part["verdict"] for part in parts} == {"holds in part"}:
        # Only a factor has a part that holds in part: ours is above 1 and below the paper's.
        text = "in direction, not in size"
    else:
        text = _by_part(parts) or _by_dataset(found)
    return f"{text[:1].upper()}{text[1:]}."


def _few_against(parts: Sequence[JsonObject]) -> str:
    """The comparisons that fail; "" if they are not the fewer ones or too many to name."""
    failed = [part["verdict"] == "does not hold" for part in parts]
    names = sorted({name for name, fails in zip(part_names(parts), failed, strict=True) if fails})
    held = len(tested(parts)) - sum(failed)
    text = f"Fails for {', '.join(names)}; holds in the other {held} comparisons."
    return text if sum(failed) < held and len(text) < LONGEST else ""


def _by_part(parts: Sequence[JsonObject]) -> str:
    """The parts that hold and those that do not; "" if that differs by dataset or is too long."""
    by_name: dict[str, set[str]] = {}
    labels = part_names(parts)
    for name, part in zip(labels, parts, strict=True):
        by_name.setdefault(name, set()).add(part["verdict"])
    held = [name for name, given in by_name.items() if given == {"holds"}]
    failed = [name for name, given in by_name.items() if given == {"does not hold"}]
    text = f"holds for {', '.join(held)}; not for {', '.join(failed)}"
    clear = held and failed and len(held) + len(failed) == len(by_name)
    return text if clear and len(text) < LONGEST else ""


def _by_dataset(found: JsonObject) -> str:
    if len(found) == 1:
        (only,) = found.values()
        return f"holds in {share_text(only['parts'])}"
    texts = []
    for verdict in ORDER:
        names = [
            f"{name} ({share_text(one['parts'])})" if verdict == "holds in part" else name
            for name, one in found.items()
            if one["verdict"] == verdict
        ]
        if names:
            texts.append(f"{ON[verdict]} {', '.join(names)}")
    return "; ".join(texts)


def share_text(parts: Sequence[JsonObject]) -> str:
    """The parts that hold: by name if it is one, else counted."""
    held = [part for part in parts if part["verdict"] == "holds"]
    names = part_names(parts)
    if len(held) == 1 and len(set(names)) == len(names):
        return f"{names[parts.index(held[0])]} only"
    return f"{len(held)} of {len(tested(parts))} comparisons"


def dataset_text(dataset: str, found: JsonObject) -> str:
    """A dataset, with the number of its comparisons that hold if there are several."""
    parts = tested(found["parts"])
    if len(parts) == 1 or found["verdict"] == "cannot be tested":
        return dataset
    return f"{dataset}: {sum(part['verdict'] == 'holds' for part in parts)} of {len(parts)}"


def tested(parts: Sequence[JsonObject]) -> list[JsonObject]:
    """The parts that can be tested."""
    return [part for part in parts if part["verdict"] != "cannot be tested"]


def part_names(parts: Sequence[JsonObject]) -> list[str]:
    """What each part compares: the label of its effect, or the start of its evidence."""
    labels = [part["effect"]["label"] for part in parts if part["effect"]]
    if len(labels) == len(parts):
        short = short_labels(labels)
        return [short[label] for label in labels]
    return [str(part["evidence"]).partition(":")[0] for part in parts]


# ---- labels of effects


def short_labels(labels: Sequence[str]) -> dict[str, str]:
    """Labels such as "HR@10: fedfast − fedavg" without the half that all of them share."""
    halves = {label: label.partition(": ") for label in labels}
    metrics = {half[0] for half in halves.values()}
    pairs = {half[2] for half in halves.values()}
    if len(pairs) == 1:
        return {label: half[0] if len(metrics) > 1 else "" for label, half in halves.items()}
    short = {label: short_pair(half[2]) for label, half in halves.items()}
    if len(metrics) == 1:
        return short
    return {label: f"{half[0]}: {short[label]}" for label, half in halves.items()}


def short_pair(pair: str) -> str:
    """A pair such as "fedbso, tuned − fedfast, tuned" with what both share named once."""
    for sign in (" − ", " / "):
        first, found, other = pair.partition(sign)
        if not found:
            continue
        name, comma, variant = first.rpartition(", ")
        if comma and other.endswith(f", {variant}"):
            return f"{name}{sign}{other.removesuffix(f', {variant}')} (both {variant})"
        method, comma, variant = first.partition(", ")
        if comma and other.startswith(f"{method}, "):
            return f"{method}: {variant}{sign}{other.removeprefix(f'{method}, ')}"
    return pair
