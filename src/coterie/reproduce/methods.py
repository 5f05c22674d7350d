"""How the figures of a report came about: seeds, protocols, settings, searches, machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean

from coterie.report.conditions import Fact, key_values
from coterie.reproduce import references, tables
from coterie.types import JsonObject

RISING = 0.01
"""A curve that rises by more than this share of its value in its last tenth has not converged."""


def facts(report: JsonObject) -> list[Fact]:
    """The methods box."""
    items = report["items"]
    return [
        Fact("Seeds", by_item(items, _seeds)),
        Fact("Evaluation", by_item(items, _evaluation)),
        Fact("Search of settings", by_item(items, _searches)),
        Fact("Not converged", not_converged(items)),
        Fact("Diverged", _diverged(items)),
        Fact("Machine", by_item(items, lambda item: machine_text(item["machine"]))),
        Fact("Code", [key_values(report["code"])]),
    ]


def by_item(items: Sequence[JsonObject], text_of: Callable[[JsonObject], str]) -> list[str]:
    """A text for every item; items with the same text share a line."""
    named: dict[str, list[str]] = {}
    for item in items:
        named.setdefault(text_of(item), []).append(tables.short_title(item))
    if len(named) == 1:
        return [f"{text}." for text in named]
    return [f"{'; '.join(names)}: {text}." for text, names in named.items()]


def _seeds(item: JsonObject) -> str:
    by_count: dict[int, list[str]] = {}
    for table in item["tables"]:
        if "seeds" in table:
            by_count.setdefault(table["seeds"], []).append(table["dataset"])
    if len(by_count) < 2:
        return next((str(n) for n in by_count), "measured once")
    return ", ".join(f"{n} ({', '.join(datasets)})" for n, datasets in by_count.items())


def _evaluation(item: JsonObject) -> str:
    texts = [
        f"{table['dataset']} ({table['protocol']}, {table['tested_users']:,} test users)"
        for table in item["tables"]
        if "seeds" in table
    ]
    return ", ".join(texts) if texts else "no evaluation: times, sizes or counts"


def _searches(item: JsonObject) -> str:
    """The number of settings tried for each method, dataset by dataset."""
    texts = [
        f"{table['dataset']}: {trials_text(table['searches'])}"
        for table in item["tables"]
        if table["searches"]
    ]
    return "; ".join(texts) if texts else "Trials per method are not declared"


def trials_text(searches: JsonObject) -> str:
    """Methods by their number of trials."""
    by_trials: dict[int, list[str]] = {}
    for method, search in searches.items():
        by_trials.setdefault(search["trials"], []).append(method)
    return ", ".join(
        f"{trials} trials for {' / '.join(methods)}"
        if trials
        else f"none for {' / '.join(methods)}"
        for trials, methods in sorted(by_trials.items(), reverse=True)
    )


def not_converged(items: Sequence[JsonObject]) -> list[str]:
    """The methods whose curve still rises at the end, and what the declaration notes."""
    lines = []
    for item in items:
        for table in item["tables"]:
            rising = [label for label, row in table["rows"].items() if still_rising(row, table)]
            if rising:
                place = f"{tables.short_title(item)}, {table['dataset']}"
                lines.append(f"{place}: {'; '.join(rising)}.")
    rule = f"more than {RISING:.0%} in the last tenth of the rounds"
    return [f"These still gain {rule}:", *lines] if lines else [f"No method gains {rule}."]


def still_rising(row: JsonObject, table: JsonObject) -> bool:
    """Whether a method's first metric still rises over the last tenth of its rounds."""
    metric = table["metrics"][0]
    curve = row.get("curve", {})
    if metric not in curve.get("values", {}) or not references.is_accuracy(metric):
        return False
    means = [
        mean(values) if None not in values else None
        for values in zip(*curve["values"][metric], strict=True)
    ]
    measured = [(n, m) for n, m in zip(curve["rounds"], means, strict=True) if m is not None]
    if len(measured) < 2:
        return False
    last_round, last = measured[-1]
    before = [m for n, m in measured[:-1] if n <= 0.9 * last_round]
    return bool(before) and bool(last > (1 + RISING) * before[-1])


def _diverged(items: Sequence[JsonObject]) -> list[str]:
    lines = [
        f"{tables.short_title(item)}, {table['dataset']}: {name} ({why})."
        for item in items
        for table in item["tables"]
        for name, why in table["diverged"].items()
    ]
    return lines or ["None."]


def settings_lines(table: JsonObject) -> list[str]:
    """The settings of every method of a table, and how they were found."""
    lines = []
    for label, row in table["rows"].items():
        settings = row.get("settings") or {}
        text = key_values(settings) if settings else "defaults"
        search = table["searches"].get(label)
        lines.append(f"{label}: {text}.{search_text(search) if search else ''}")
    return lines


def search_text(search: JsonObject) -> str:
    """How the settings of a method were found."""
    if not search["trials"]:
        text = " The paper gives them."
    else:
        text = f" Best of {search['trials']} trials"
        if search["space"]:
            text += " over " + ", ".join(f"{k} {_range(v)}" for k, v in search["space"].items())
        text += "."
    return text + (f" {search['note']}" if search["note"] else "")


def _range(values: object) -> str:
    if isinstance(values, (list, tuple)):
        numbers = all(isinstance(value, (int, float)) for value in values)
        if len(values) == 2 and numbers:
            return f"{values[0]:g} to {values[1]:g}"
        return " / ".join(map(str, values))
    return str(values)


def machine_text(machine: JsonObject) -> str:
    """The machine in words; what is not known is left out."""
    texts = [
        machine.get("processor", ""),
        f"{machine['cores']} cores" if "cores" in machine else "",
        f"Python {machine['python']}" if "python" in machine else "",
        machine.get("gpu", ""),
    ]
    return ", ".join(text for text in texts if text)
