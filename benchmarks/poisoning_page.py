"""Write the tables of docs/poisoning.md and docs/poisoning-tables.md from runs of poisoning.py.

    python benchmarks/poisoning.py --seeds 3 --store docs/assets/poisoning.jsonl
    python benchmarks/poisoning_page.py

The runs are in docs/assets/poisoning.jsonl. Means are over the seeds that were run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from poisoning import KEY, NO_ATTACK, read
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
FEWEST_SEEDS = 2
"""Seeds of every attack that applies, without which there is no worst attack."""
LOST = 0.01
"""HR@10 that is lost, and exposure, above which a cell is bold."""

Runs = Sequence[JsonObject]


def main() -> None:
    runs = comparable([run for run in read(STORED) if run["HR@10"] is not None])
    page = (DOCS / "poisoning.md").read_text()
    for dataset in {run["dataset"] for run in runs}:
        page = replaced(page, f"worst on {dataset}", worst_table(runs, dataset))
        page = replaced(page, f"clean on {dataset}", clean_table(runs, dataset))
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


def worst_cell(runs: Runs, attacks: Sequence[str]) -> str:
    clean = select(runs, attack=NO_ATTACK)
    attacked = {name: select(runs, attack=name) for name in attacks}
    if any(len(found) < FEWEST_SEEDS for found in attacked.values()):
        return ""
    lost = {name: lost_by(found, clean) for name, found in attacked.items()}
    exposed = {name: mean_of(found, "ER@10") for name, found in attacked.items()}
    worst = max(lost, key=lambda name: lost[name])
    most = max(exposed, key=lambda name: exposed[name])
    points = named(100 * max(lost[worst], 0), 1, worst)
    return f"{points} / {named(exposed[most], 3, most)}"


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


def named(value: float, digits: int, attack: str) -> str:
    shown = f"{value:.{digits}f}"
    return shown if float(shown) == 0 else f"{shown} (`{attack}`)"


def shares_of(runs: Runs, dataset: str) -> list[float]:
    return sorted({float(run["share"]) for run in select(runs, dataset=dataset)})


def all_tables(runs: Runs) -> str:
    parts = [
        "# Poisoning: all runs\n",
        "HR@10 / ER@10 of honest users, means over the seeds that were run; `loo-50`. `none` in",
        "the column of attacks is the run without attackers. Bold: HR@10 lower by more than 0.01",
        "than without attackers under the same defence, or ER@10 above 0.01. Empty: not run, or",
        "the attack does not apply. See [](poisoning.md).\n",
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
