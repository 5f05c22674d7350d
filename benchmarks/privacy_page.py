"""Write the figures and tables of docs/differential-privacy.md from runs of private_curves.py.

    python benchmarks/private_curves.py --dataset ml-1m > curves.jsonl
    python benchmarks/privacy_page.py --found curves.jsonl
    python benchmarks/privacy_page.py

Stores the runs in docs/assets/private-curves.jsonl: a run that was found replaces the stored one of
the same dataset, algorithm, epsilon and seed. Draws docs/assets/private-*.svg and replaces the
tables between the marks of the page. Without --found it reads the stored runs.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean

from coterie.report.figures import Figure, Series
from coterie.report.lines import line_plot
from coterie.report.table import markdown_table
from coterie.types import JsonObject

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "assets" / "private-curves.jsonl"
PAGE = DOCS / "differential-privacy.md"
DATASETS = {
    "ml-1m": "MovieLens-1M",
    "ml-100k": "MovieLens-100K",
    "pinterest": "Pinterest",
    "yelp": "Yelp",
}
DRAWN = ("fedease", "fedals", "fcf", "pfpl", "fl-dssm", "popular")
"""The algorithms of the figures; tables have those without a line of their own, too."""
ALGORITHMS = (
    *DRAWN[:-1],
    "pfpl+",
    "fedmf",
    "fl-clsm",
    DRAWN[-1],
)
METRIC = "NDCG@10, all items"
SYNTHETIC = "synthetic"
KEY = ("dataset", "users", "algorithm", "epsilon", "seed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--found", nargs="*", type=Path, default=[])
    given = parser.parse_args()
    runs = {key_of(run): run for run in read(STORED)}
    for path in given.found:
        runs |= {key_of(run): run for run in read(path)}
    ordered = sorted(runs.values(), key=lambda run: [str(run[name]) for name in KEY])
    STORED.write_text("".join(json.dumps(run) + "\n" for run in ordered))
    for dataset in DATASETS:
        write_figure(f"private-{dataset}", by_epsilon(ordered, dataset))
    write_figure("private-users", by_users(ordered))
    page = PAGE.read_text()
    page = replaced(page, "curves", "\n".join(table(ordered, dataset) for dataset in DATASETS))
    page = replaced(page, "users", users_table(ordered))
    PAGE.write_text(page)


def read(path: Path) -> list[JsonObject]:
    """The runs of a file; lines that are no runs are messages."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{")]


def key_of(run: JsonObject) -> tuple[object, ...]:
    return tuple(run[name] for name in KEY)


def means(runs: Iterable[JsonObject], axis: str, metric: str) -> dict[float, float]:
    """The mean over seeds for each value of an axis, ascending."""
    found: dict[float, list[float]] = {}
    for run in runs:
        found.setdefault(float(run[axis]), []).append(float(run[metric]))
    return {value: mean(found[value]) for value in sorted(found)}


def private_runs(runs: Sequence[JsonObject], dataset: str, algorithm: str) -> list[JsonObject]:
    return [
        run
        for run in runs
        if (run["dataset"], run["algorithm"]) == (dataset, algorithm) and run["epsilon"]
    ]


def by_epsilon(runs: Sequence[JsonObject], dataset: str) -> Figure:
    series = []
    for algorithm in DRAWN:
        curve = means(private_runs(runs, dataset, algorithm), "epsilon", METRIC)
        if curve:
            series.append(Series(algorithm, list(curve.values()), {"epsilon": list(curve)}))
    return Figure(dataset, f"{DATASETS[dataset]}: NDCG@10 of all items", METRIC, series, log_x=True)


def by_users(runs: Sequence[JsonObject]) -> Figure:
    """Accuracy at epsilon 1 with and without noise, by the number of users."""
    series = []
    for algorithm in DRAWN:
        private = means(private_runs(runs, SYNTHETIC, algorithm), "users", METRIC)
        plain = means(plain_runs(runs, algorithm), "users", METRIC)
        if private:
            series.append(Series(algorithm, list(private.values()), {"users": list(private)}))
        if plain:
            name = f"{algorithm}, no noise"
            series.append(
                Series(name, list(plain.values()), {"users": list(plain)}, like=algorithm)
            )
    return Figure(
        "users", "Synthetic data, epsilon 1: NDCG@10 of all items", METRIC, series, log_x=True
    )


def plain_runs(runs: Sequence[JsonObject], algorithm: str) -> list[JsonObject]:
    return [
        run
        for run in runs
        if (run["dataset"], run["algorithm"], run["epsilon"]) == (SYNTHETIC, algorithm, None)
    ]


def write_figure(name: str, figure: Figure) -> None:
    if figure.series:
        (DOCS / "assets" / f"{name}.svg").write_text(line_plot(figure, figure.axes[0]))


def table(runs: Sequence[JsonObject], dataset: str) -> str:
    """Metrics of one dataset by epsilon, the best of each column in bold if there are several."""
    curves = {name: private_runs(runs, dataset, name) for name in ALGORITHMS}
    curves = {name: found for name, found in curves.items() if found}
    epsilons = sorted({float(run["epsilon"]) for found in curves.values() for run in found})
    seeds = {name: seeds_of(found) for name, found in curves.items()}
    rows = []
    bold = []
    for metric in ("NDCG@10", METRIC):
        values = {name: means(found, "epsilon", metric) for name, found in curves.items()}
        for column, epsilon in enumerate(epsilons, start=2):
            compared = [name for name in values if epsilon in values[name]]
            best = max(compared, key=lambda name: values[name][epsilon])
            if len(compared) > 1:
                bold.append((len(rows) + list(values).index(best), column))
        for name, curve in values.items():
            cells = [f"{curve[e]:.4f}" if e in curve else "" for e in epsilons]
            rows.append([f"`{name}`, {metric}", seeds[name], *cells])
    header = [DATASETS[dataset], "seeds", *(f"{epsilon:g}" for epsilon in epsilons)]
    return markdown_table(header, rows, bold)


def seeds_of(runs: Sequence[JsonObject]) -> str:
    """How many seeds a mean is over: 3, or 2 to 3 where epsilons differ."""
    counts = Counter(run["epsilon"] for run in runs).values()
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def users_table(runs: Sequence[JsonObject]) -> str:
    private = {n: means(private_runs(runs, SYNTHETIC, n), "users", METRIC) for n in ALGORITHMS}
    plain = {n: means(plain_runs(runs, n), "users", METRIC) for n in ALGORITHMS}
    users = sorted({value for curve in private.values() for value in curve})
    rows = []
    for name in ALGORITHMS:
        for label, curve in ((f"`{name}`", private[name]), (f"`{name}`, no noise", plain[name])):
            if not curve:
                continue
            cells = [f"{curve[n]:.4f}" if n in curve else "" for n in users]
            rows.append([label, *cells])
    return markdown_table(["users", *(f"{int(n):,}" for n in users)], rows)


def replaced(page: str, name: str, text: str) -> str:
    """The page with the text between two marks replaced."""
    begin = f"<!-- {name} -->\n"
    end = f"<!-- end of {name} -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{text}\n{end}{after}"


if __name__ == "__main__":
    main()
