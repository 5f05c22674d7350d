"""Draw docs/assets/convergence.svg, the figure of README.md and of the docs' front page.

    coterie compare fedfast fedavg fedals fedease fedslim popular itemknn gmf als --dataset ml-100k
    python benchmarks/front_page.py

The first command makes the table of the README; the second reuses its finished runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean

from coterie.experiments.cell_cache import CellResult
from coterie.experiments.plan import Plan
from coterie.experiments.plan_runner import run_plan
from coterie.report import static
from coterie.report.figure import panels
from coterie.report.figures import Figure, Series

PICTURE = Path(__file__).parents[1] / "docs" / "assets" / "convergence.svg"
FEDERATED = ("fedfast", "fedavg")
CENTRALISED = ("ease", "gmf", "popular")
AXES = {"HR@10": "HR@10, loo-50", "NDCG@10": "NDCG@10, loo-50"}


def main(cells: Path | None) -> None:
    plan = Plan(datasets=("ml-100k",), methods=(*FEDERATED, *CENTRALISED), seeds=(0, 1, 2))
    outcomes = run_plan(plan, cells)
    by_method: dict[str, list[CellResult]] = {}
    for outcome in outcomes:
        by_method.setdefault(outcome.cell.method.label, []).append(outcome)

    federated = [outcome for name in FEDERATED for outcome in by_method[name]]
    labels = [outcome.cell.method.label for outcome in federated]
    figures = []
    for panel in panels(federated, labels):
        levels = [_level(name, by_method[name], panel.key) for name in CENTRALISED]
        title = f"{panel.title} on MovieLens-100K"
        figures.append(Figure(panel.key, title, AXES[panel.key], [*panel.series, *levels]))
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_bytes(static.draw(figures, "svg"))
    print(PICTURE)


def _level(name: str, outcomes: list[CellResult], metric: str) -> Series:
    """A centralised method has no rounds: its final mean is a dashed line."""
    value = mean(outcome.result["metrics"][metric] for outcome in outcomes)
    return Series(f"{name} (centralised)", [value], {}, level=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
