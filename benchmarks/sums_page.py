"""Write the figure and the tables of docs/sums.md from runs of bytes_to_accuracy.py.

    python benchmarks/bytes_to_accuracy.py > curves.jsonl
    python benchmarks/sums_page.py --found curves.jsonl
    python benchmarks/sums_page.py

Stores the means over seeds in docs/assets/bytes-to-accuracy.json: those of the methods found
replace stored ones, and other methods stay. Draws docs/assets/bytes-*.svg, one panel for each kind
of cost, and replaces the tables between the marks in docs/sums.md. Without --found it reads the
stored means.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from bytes_to_accuracy import CENTRALISED, METRIC, TARGET, first_at, methods

from coterie.report.figures import Coordinates, Figure, Series
from coterie.report.lines import legend_plot, line_plot
from coterie.report.sizes import size_text
from coterie.report.table import markdown_table
from coterie.types import JsonObject

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "assets" / "bytes-to-accuracy.json"
PAGE = DOCS / "sums.md"
COMPARED_WITH = "fedfast"
PANELS = {
    "messages": "messages of a client",
    "up": "kB up, in the clear",
    "all": "MB up, down and model, in the clear",
    "secure-up": "MB up, under secure aggregation",
}
"""The axis of every panel, by the name of its file."""
WIDTH = 370
LEGEND_WIDTH = 420
LEAST_DRAWN = 0.45
"""Rounds below this accuracy are not drawn: the first ones of FedFast are far below."""
COSTS = ("up", "down", "secure up", "secure down")


# The runs as means over seeds


def summary(runs: Sequence[JsonObject], stored: Sequence[JsonObject] = ()) -> list[JsonObject]:
    """One entry for every method: what it reaches, and at which cost.

    Methods without a run have their stored entry.
    """
    by_name: dict[str, list[JsonObject]] = {}
    for run in runs:
        by_name.setdefault(run["name"], []).append(run)
    found = {one["name"]: one for one in stored}
    found |= {name: mean_run(same) for name, same in by_name.items()}
    entries = [found[name] for name in methods() if name in found]
    return [
        one if one["name"] in CENTRALISED else with_ratios(one, found[COMPARED_WITH])
        for one in entries
    ]


def mean_run(runs: Sequence[JsonObject]) -> JsonObject:
    """The mean curve of the runs of one method; the target counts where this curve reaches it."""
    curve = [mean_line(lines) for lines in zip(*(run["curve"] for run in runs), strict=True)]
    same = ("name", "dataset", "protocol", "part", "clients", "model bytes", "changed settings")
    common = {
        **{key: runs[0][key] for key in same},
        "seeds": [run["seed"] for run in runs],
        "best": max(line[METRIC] for line in curve),
    }
    if runs[0]["name"] in CENTRALISED:
        return common
    reached = [first_at(run["curve"]) for run in runs]
    return common | {
        "target": TARGET,
        "rounds to the target, by seed": [line and line["round"] for line in reached],
        "to the target": first_at(curve),
        "curve": curve,
    }


def mean_line(lines: Sequence[JsonObject]) -> JsonObject:
    """The same round of several runs."""
    digits = {METRIC: 5, "messages": 3}
    return {key: round(mean(line[key] for line in lines), digits.get(key)) for key in lines[0]}


def with_ratios(one: JsonObject, compared: JsonObject) -> JsonObject:
    """With the costs to the target as shares of the whole run that it is compared with."""
    reached = one["to the target"]
    whole = compared["curve"][-1]
    ratios = reached and {
        cost: float(f"{reached[cost] / whole[cost]:.3g}") for cost in ("messages", *COSTS)
    }
    return one | {f"of {compared['name']}": ratios}


# The figure


def figure(entries: Sequence[JsonObject]) -> Figure:
    series = [series_of(one) for one in federated(entries)]
    # They are so close that their lines are one.
    central = max((one for one in entries if one["name"] in CENTRALISED), key=best, default=None)
    if central is not None:
        series.append(Series(f"{central['name']}, centralised", [best(central)], {}, level=True))
    series.append(Series(f"{METRIC} {TARGET}", [TARGET], {}, level=True, reference=True))
    return Figure("bytes", METRIC, METRIC, series, log_x=True)


def best(one: JsonObject) -> float:
    return float(one["best"])


def federated(entries: Sequence[JsonObject]) -> list[JsonObject]:
    return [one for one in entries if one["name"] not in CENTRALISED]


def series_of(one: JsonObject) -> Series:
    lines = [line for line in one["curve"] if line[METRIC] >= LEAST_DRAWN]
    whole = str(one["name"]).split("/")[0]
    in_blocks = whole != one["name"]
    up: Coordinates = [line["up"] / 1e3 for line in lines]
    every: Coordinates = [(line["up"] + line["down"] + one["model bytes"]) / 1e6 for line in lines]
    if in_blocks:
        # Blocks save nothing in the clear: their lines would hide the others.
        up = every = [None] * len(lines)
    return Series(
        one["name"],
        [line[METRIC] for line in lines],
        {
            PANELS["messages"]: [line["messages"] for line in lines],
            PANELS["up"]: up,
            PANELS["all"]: every,
            PANELS["secure-up"]: [line["secure up"] / 1e6 for line in lines],
        },
        line=len(one["curve"]) > 1,
        like=whole if in_blocks else "",
    )


def pictures(entries: Sequence[JsonObject]) -> dict[str, str]:
    """The panels and their legend, by the name of the file."""
    drawn = figure(entries)
    found = {
        f"bytes-{key}.svg": line_plot(drawn, axis, WIDTH, legend=False) + "\n"
        for key, axis in PANELS.items()
    }
    return found | {"bytes-legend.svg": legend_plot(drawn, LEGEND_WIDTH) + "\n"}


# The tables


def tables(entries: Sequence[JsonObject]) -> dict[str, str]:
    """The tables of the page, by the name of their marks."""
    return {"to the target": target_table(entries), "whole runs": run_table(entries)}


def target_table(entries: Sequence[JsonObject]) -> str:
    """Costs of those that reach the target, and of the whole run that they are compared with."""
    header = ["", METRIC, "messages", "up", "up, secure", "down, with model"]
    rows = []
    for one in federated(entries):
        line = one["to the target"]
        if line is None:
            continue
        ratios = one[f"of {COMPARED_WITH}"]
        rows.append(
            [
                name(one["name"]),
                f"{line[METRIC]:.3f}",
                count(line["messages"]),
                f"{size_text(line['up'])} ({share(ratios['up'])})",
                f"{size_text(line['secure up'])} ({share(ratios['secure up'])})",
                size_text(line["down"] + one["model bytes"]),
            ]
        )
    whole = next(one for one in entries if one["name"] == COMPARED_WITH)
    last = whole["curve"][-1]
    rows.append(
        [
            f"{name(COMPARED_WITH)}, whole run",
            f"{last[METRIC]:.3f}",
            count(last["messages"]),
            size_text(last["up"]),
            size_text(last["secure up"]),
            size_text(last["down"] + whole["model bytes"]),
        ]
    )
    return markdown_table(header, rows)


def run_table(entries: Sequence[JsonObject]) -> str:
    header = ["", f"best {METRIC}", "messages", "up", "up, secure", "down", "model"]
    rows = []
    for one in federated(entries):
        last = one["curve"][-1]
        rows.append(
            [
                name(one["name"]),
                f"{one['best']:.4f}",
                count(last["messages"]),
                size_text(last["up"]),
                size_text(last["secure up"]),
                size_text(last["down"]) if last["down"] >= 100 else f"{last['down']} bytes",
                size_text(one["model bytes"]),
            ]
        )
    for one in entries:
        if one["name"] in CENTRALISED:
            blank = [""] * (len(header) - 2)
            rows.append([f"`{one['name']}`, centralised", f"{one['best']:.4f}", *blank])
    return markdown_table(header, rows)


def name(key: str) -> str:
    """The key with the algorithm as code."""
    algorithm, *sizes = key.split()
    return " ".join([f"`{algorithm}`", *sizes])


def count(messages: float) -> str:
    return f"{messages:,.1f}".removesuffix(".0")


def share(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:.0f}"


def with_tables(page: str, found: Mapping[str, str]) -> str:
    """The page with the text between its marks replaced."""
    for key, table in found.items():
        begin = f"<!-- {key} -->\n"
        end = f"<!-- end of {key} -->\n"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}{table}{end}{after}"
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--found", type=Path, help="lines of bytes_to_accuracy.py")
    options = parser.parse_args()
    if options.found:
        runs = [json.loads(line) for line in options.found.read_text().splitlines()]
        stored = json.loads(STORED.read_text())
        lines = ",\n".join(json.dumps(one) for one in summary(runs, stored))
        STORED.write_text(f"[\n{lines}\n]\n")
    entries = json.loads(STORED.read_text())
    for file, svg in pictures(entries).items():
        (STORED.parent / file).write_text(svg)
    PAGE.write_text(with_tables(PAGE.read_text(), tables(entries)))
    print(PAGE)


if __name__ == "__main__":
    main()
