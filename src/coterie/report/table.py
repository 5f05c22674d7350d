"""Results as a table, and the table as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Protocol

WHOLE = ("IC",)


class Reported(Protocol):
    """What a report needs of a run, be it one with its model or a finished cell of a plan."""

    @property
    def result(self) -> dict[str, Any]: ...

    @property
    def curve(self) -> list[dict[str, Any]]: ...


def shown(name: str, value: float) -> str:
    """Metrics with four decimals, counts as whole numbers, tiny shares with five."""
    if name.split("@")[0] in WHOLE:
        return f"{value:,.0f}"
    return f"{value:.5f}" if 0 < abs(value) < 0.001 else f"{value:.4f}"


def table(runs: Sequence[Reported]) -> tuple[list[str], list[list[str]]]:
    """(header, rows): the protocol's metrics and beside each the one by full ranking."""
    names = list(dict.fromkeys(name for run in runs for name in run.result["headline"]))
    told_apart = labels(runs)
    sampled = any(run.result["metrics"] != run.result["full"] for run in runs)
    header = ["run", "dataset", "protocol", "seed", "rounds", "seconds", *names]
    header += [f"{name} full" for name in names] if sampled else []
    rows = []
    for run, label in zip(runs, told_apart, strict=True):
        r = run.result
        cells = [
            label,
            r["dataset"],
            r["protocol"],
            str(r["seed"]),
            str(r["rounds"]),
            f"{r['seconds']:.2f}",
        ]
        cells += [shown(n, r["metrics"][n]) if n in r["metrics"] else "" for n in names]
        cells += (
            [shown(n, r["full"][n]) if n in r["full"] else "" for n in names] if sampled else []
        )
        rows.append(cells)
    return header, rows


def notes(run: Reported) -> list[str]:
    """What a reader must know to judge the figures."""
    r = run.result
    lines = [
        f"{r['tested_users']:,} users tested; trained on {r['training_interactions']:,} interactions of {r['users']:,} users; {r['items']:,} items to choose from."
    ]
    if r["full"].get("UC", 1) < 1:
        lines.append(
            f"{r['full']['UC']:.1%} of the tested users are served; whoever is not scores 0."
        )
    if r["future_share"] is not None:
        lines.append(
            f"Global-time leakage: on average {r['future_share']:.1%} of the training data is newer than a test interaction."
        )
    elif "split=own" not in r["protocol"]:
        lines.append("The data has no times: what is tested was held out at random.")
    if "updates" in r:
        lines.append(costs(r))
    if "in_the_clear" in r:
        lines.append(
            f"In rings; in the clear a server heard of every user: {'; '.join(r['in_the_clear']) or 'nothing'}."
        )
    if "disclosure" in r.get("settings", {}):
        lines.append(disclosure(r))
    target = r.get("convergence", {}).get("target")
    if target is not None:
        reached = r["convergence"]["rounds_to_target"]
        when = f"after {reached:,} rounds, as far as measured" if reached else "never"
        lines.append(f"{r['convergence']['metric']} of {target:g} was reached {when}.")
    if r["as_published"]:
        lines.append(
            "Leaky on purpose: training negatives avoided the held-out items (as_published)."
        )
    return lines


def costs(result: dict[str, Any]) -> str:
    """What a federated run cost its users; how often one of them was asked is `selections`."""
    asked = result["asked"]
    sent = result["updates"]
    text = f"Asked {asked:,} times ({result['selections']['users']:,} users): {sent:,} updates accepted"
    text += f", {result['dropped']:,} never came" if result["dropped"] else ""
    if result["refused"]:
        reasons = ", ".join(
            f"{reason} {count:,}" for reason, count in sorted(result["refused"].items())
        )
        text += f", {sum(result['refused'].values()):,} refused ({reasons})"
    text += f". {result['bytes_up'] / 1e6:,.1f} MB up and {result['bytes_down'] / 1e6:,.1f} MB down"
    if asked and sent:
        text += f", about {result['bytes_up'] / sent / 1e3:,.1f} kB an update and {result['bytes_down'] / asked / 1e3:,.1f} kB a request"
    return text + "."


def disclosure(result: dict[str, Any]) -> str:
    """At which rates people disclosed what they liked, whether that served those worse who kept more, and what it is not."""
    said = result["settings"]
    rates = f"pi = {said['disclosure']}"
    rates += f" but for users in {said['disclosure_file']}" if said.get("disclosure_file") else ""
    rates += f", never what is in {said['private_items']}" if said.get("private_items") else ""
    text = f"Disclosure: {rates}; pi is a disclosure rate, not a privacy guarantee (coterie disclosure shows what a server learns)."
    rows = result.get("by_disclosure", [])
    if rows:
        metric = next(key for key in rows[0] if key not in ("from", "to", "users"))
        told = (f"{_span(row)}: {shown(metric, row[metric])} ({row['users']:,})" for row in rows)
        text += f" {metric} by the users' own rate at the end: {', '.join(told)}."
    return text


def _span(row: dict[str, Any]) -> str:
    return f"{row['from']:g}" if row["from"] == row["to"] else f"{row['from']:g} to {row['to']:g}"


def all_notes(runs: Sequence[Reported]) -> list[str]:
    """Each note once, with the names of the runs it is about."""
    about: dict[str, list[str]] = {}
    for run in runs:
        about.setdefault(" ".join(notes(run)), []).append(
            f"{run.result['algorithm']} on {run.result['dataset']}"
        )
    return [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in about.items()]


def labels(runs: Sequence[Reported]) -> list[str]:
    """A name for every run that tells it from the others: the algorithm, then the seed, then the folder."""
    for name in (
        lambda r: r["algorithm"],
        lambda r: f"{r['algorithm']} seed {r['seed']}",
        lambda r: f"{r['algorithm']} {PurePath(r['run'] or '').name}",
    ):
        names = [str(name(run.result)) for run in runs]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, 1)]


def markdown(runs: Sequence[Reported]) -> str:
    return "# Results\n\n" + markdown_table(*table(runs)) + "\n" + markdown_list(all_notes(runs))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [
        "| " + " | ".join(map(_cell, cells)) + " |"
        for cells in (header, ["---"] * len(header), *rows)
    ]
    return "\n".join(lines) + "\n"


def markdown_list(items: Sequence[str]) -> str:
    return "".join(f"- {_cell(item)}\n" for item in items)


def _cell(text: str) -> str:
    """A file name may hold what would end a Markdown cell."""
    return " ".join(text.replace("|", "\\|").split())
