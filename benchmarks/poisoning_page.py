"""Write figures and tables of docs/poisoning.md and docs/poisoning-tables.md from stored runs.

    python benchmarks/poisoning.py --seeds 3 --store docs/assets/poisoning.jsonl
    python benchmarks/poisoning_page.py

The runs are in docs/assets/poisoning.jsonl. Means are over the seeds that were run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from poisoning import KEY, NO_ATTACK, read
from poisoning_figure import Panel, poisoning_figure
from privacy_page import replaced

from coterie.attacks.poisoning import ATTACKS
from coterie.report.table import markdown_table
from coterie.types import JsonObject

DOCS = Path(__file__).parents[1] / "docs"
STORED = DOCS / "assets" / "poisoning.jsonl"
DATASETS = {"ml-100k": "MovieLens-100K", "ml-1m": "MovieLens-1M"}
ALGORITHMS = {
    "fedfast": "FedFast",
    "fedavg": "FedAvg",
    "fcf": "FCF",
    "pfpl+": "pFPL+",
    "fedals": "FedALS",
    "fedease": "FedEASE",
}
DEFENCES = ("none", "bounded", "trimmed", "groups")
USUAL_SHARE = 0.01
DRAWN_SHARES = (0.01, 0.05)
FEWEST_SEEDS = 2
"""Seeds of every attack that applies, without which there is no worst attack."""
LOST = 0.01
"""HR@10 that is lost, and exposure, above which a cell is bold, or names the attack."""

Runs = Sequence[JsonObject]


def main() -> None:
    runs = comparable([run for run in read(STORED) if run["HR@10"] is not None])
    page = (DOCS / "poisoning.md").read_text()
    for dataset in {run["dataset"] for run in runs}:
        page = replaced(page, f"worst on {dataset}", worst_table(runs, dataset))
        page = replaced(page, f"clean on {dataset}", clean_table(runs, dataset))
        (DOCS / "assets" / f"poisoning-{dataset}.svg").write_text(figure(runs, dataset))
    undefended = select(runs, dataset="ml-100k", share=USUAL_SHARE, robust="none")
    page = replaced(page, "without a defence", table(undefended))
    (DOCS / "poisoning.md").write_text(page)
    (DOCS / "poisoning-tables.md").write_text(all_tables(runs))


def comparable(runs: Runs) -> Runs:
    """The runs of which the same run without attackers has been made, too."""

    def conditions(run: JsonObject) -> tuple[object, ...]:
        return tuple(run[name] for name in KEY if name != "attack")

    clean = {conditions(run) for run in select(runs, attack=NO_ATTACK)}
    return [run for run in runs if conditions(run) in clean]


def select(runs: Runs, **wanted: object) -> list[JsonObject]:
    return [run for run in runs if all(run[name] == value for name, value in wanted.items())]


def mean_of(runs: Runs, measure: str) -> float:
    return mean(float(run[measure]) for run in runs)


def worst_table(runs: Runs, dataset: str) -> str:
    """For each share and defence: what the worst attack does to each algorithm."""
    rows = []
    for share in shares_of(runs, dataset):
        for defence in DEFENCES:
            cells = [
                worst_cell(
                    select(runs, dataset=dataset, share=share, robust=defence, algorithm=name),
                    attacks_on(runs, name),
                )
                for name in ALGORITHMS
            ]
            if any(cells):
                rows.append([f"{share:.1%}", f"`{defence}`", *cells])
    return markdown_table(["attackers", "`robust`", *ALGORITHMS.values()], rows)


def attacks_on(runs: Runs, algorithm: str) -> list[str]:
    """The attacks that apply to an algorithm."""
    return [name for name in ATTACKS if select(runs, attack=name, algorithm=algorithm)]


class Worst(NamedTuple):
    """What the attacks on an algorithm come to, and which of them."""

    lost: float
    """Points of HR@10."""
    by: str
    exposed: float
    """ER@10."""
    by_promoting: str


def worst(runs: Runs, attacks: Sequence[str]) -> Worst | None:
    """The worst of all attacks that apply; None unless all were run."""
    clean = select(runs, attack=NO_ATTACK)
    attacked = {name: select(runs, attack=name) for name in attacks}
    if any(len(found) < FEWEST_SEEDS for found in attacked.values()):
        return None
    lost = {name: lost_by(found, clean) for name, found in attacked.items()}
    exposed = {name: mean_of(found, "ER@10") for name, found in attacked.items()}
    by = max(lost, key=lambda name: lost[name])
    most = max(exposed, key=lambda name: exposed[name])
    return Worst(100 * max(lost[by], 0), by, exposed[most], most)


def worst_cell(runs: Runs, attacks: Sequence[str]) -> str:
    found = worst(runs, attacks)
    if found is None:
        return ""
    lost = named(f"{found.lost:.1f}", 100 * LOST, found.by)
    return f"{lost} / {named(f'{found.exposed:.3f}', LOST, found.by_promoting)}"


def figure(runs: Runs, dataset: str) -> str:
    """The same as a picture: a row of panels for each share."""
    rows = []
    for share in DRAWN_SHARES:
        lost: dict[str, dict[str, float]] = {}
        exposed: dict[str, dict[str, float]] = {}
        for name, title in ALGORITHMS.items():
            lost[title] = {}
            exposed[title] = {}
            attacks = attacks_on(runs, name)
            for defence in DEFENCES:
                of_cell = select(runs, dataset=dataset, share=share, robust=defence, algorithm=name)
                found = worst(of_cell, attacks)
                if found is not None:
                    lost[title][defence] = found.lost
                    exposed[title][defence] = 100 * found.exposed
        attackers = f"{share:.0%} attackers"
        rows.append(
            (
                Panel(f"{attackers}: HR@10 lost, points", 65, lost),
                Panel(f"{attackers}: lists with the target, %", 100, exposed),
            )
        )
    return poisoning_figure(rows, f"{DATASETS[dataset]}, the worst attack; robust =")


def clean_table(runs: Runs, dataset: str) -> str:
    """HR@10 without attackers, of the users who are honest at the usual share."""
    clean = select(runs, dataset=dataset, attack=NO_ATTACK, share=USUAL_SHARE)
    rows = []
    for defence in DEFENCES:
        found = [select(clean, robust=defence, algorithm=name) for name in ALGORITHMS]
        cells = [
            f"{mean_of(one, 'HR@10'):.3f}" if len(one) >= FEWEST_SEEDS else "" for one in found
        ]
        rows.append([f"`{defence}`", *cells])
    return markdown_table(["`robust`", *ALGORITHMS.values()], rows)


def lost_by(attacked: Runs, clean: Runs) -> float:
    """HR@10 lower than without attackers, by the same seeds."""
    before = {run["seed"]: float(run["HR@10"]) for run in clean}
    return mean(before[run["seed"]] - float(run["HR@10"]) for run in attacked)


def named(shown: str, least: float, attack: str) -> str:
    """The figure, with the attack that gets through if it is above what is usual."""
    return f"{shown} (`{attack}`)" if float(shown) >= least else shown


def shares_of(runs: Runs, dataset: str) -> list[float]:
    return sorted({float(run["share"]) for run in select(runs, dataset=dataset)})


def all_tables(runs: Runs) -> str:
    parts = [
        "# Poisoning: all runs\n",
        "HR@10 / ER@10 of honest users, means over the seeds that were run; `loo-50`. `none` in",
        "the column of attacks is the run without attackers. Bold: HR@10 lower by more than 0.01",
        "than without attackers under the same defence, or ER@10 above 0.01. Empty: not run, or",
        "the attack does not apply. See [what poisoned updates do](poisoning.md).\n",
    ]
    for dataset, title in DATASETS.items():
        for share in shares_of(runs, dataset):
            for defence in DEFENCES:
                found = select(runs, dataset=dataset, share=share, robust=defence)
                if found:
                    parts.append(f"## {title}, {share:.1%} attackers, `robust={defence}`\n")
                    parts.append(table(found) + "\n")
    return "\n".join(parts)


def table(runs: Runs) -> str:
    rows: list[list[str]] = []
    bold = []
    for attack in (NO_ATTACK, *ATTACKS):
        of_attack = select(runs, attack=attack)
        if not of_attack:
            continue
        cells = []
        for column, name in enumerate(ALGORITHMS, 2):
            found = select(of_attack, algorithm=name)
            clean = select(runs, attack=NO_ATTACK, algorithm=name)
            cells.append(
                f"{mean_of(found, 'HR@10'):.3f} / {mean_of(found, 'ER@10'):.3f}" if found else ""
            )
            if found and clean and is_hurt(found, clean):
                bold.append((len(rows), column))
        rows.append([f"`{attack}`", seeds_of(of_attack), *cells])
    return markdown_table(["attack", "seeds", *ALGORITHMS.values()], rows, bold)


def is_hurt(attacked: Runs, clean: Runs) -> bool:
    return lost_by(attacked, clean) > LOST or mean_of(attacked, "ER@10") > LOST


def seeds_of(runs: Runs) -> str:
    counts = [len(select(runs, algorithm=name)) for name in {run["algorithm"] for run in runs}]
    low = min(counts)
    high = max(counts)
    return str(low) if low == high else f"{low} to {high}"


if __name__ == "__main__":
    main()
