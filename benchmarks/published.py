"""Figures that papers publish under a leaky protocol, with the leak and without.

    python benchmarks/published.py > published.jsonl
    python benchmarks/published.py --only colr lightfr --seeds 3
    python benchmarks/published.py --table published.jsonl

One JSON line for each claim and seed: `loo-99` with the settings of the authors, trained as their
code does (`as_published`: negatives exclude the tested item) and without that leak. --table prints
the table of docs/published.md from such lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tables import spread

import coterie
from coterie.types import JsonObject

ACCURACY = ("HR@10", "NDCG@10")
PROTOCOL: dict[str, Any] = {"protocol": "loo-99", "validation": True, "evaluate_every": 1_000_000}
DATASETS = {"ml-100k": "MovieLens-100K", "ml-1m": "MovieLens-1M"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A figure that a paper publishes, and how its authors come to it."""

    algorithm: str
    dataset: str
    label: str
    settings: dict[str, Any]
    published: tuple[float | None, float | None]
    """HR@10 and NDCG@10."""


PFEDREC = {
    "average": "all",
    "rounds": 100,
    "start_scale": 1.0,
    "learning_rate": 0.1,
    "item_rate": 80.0,
}
FEDRAP = {
    "curriculum": "constant",
    "learning_rate": 0.5,
    "item_learning_rate": 200.0,
    "apart_weight": 0.1,
    "sparse_weight": 0.1,
    "reg": 1e-4,
    "rounds": 30,
}
COLR = {
    "embedding_size": 64,
    "participation": 60 / 6040,
    "rounds": 1000,
    "batch_size": 256,
    "learning_rate": 0.5,
    "reg": 0.001,
    "start_scale": 0.125,
}

CLAIMS = (
    Claim(
        algorithm="pfedrec",
        dataset="ml-1m",
        label="PFedRec",
        settings=PFEDREC,
        published=(0.7326, 0.4436),
    ),
    Claim(
        algorithm="pfedrec",
        dataset="ml-100k",
        label="PFedRec",
        settings=PFEDREC,
        published=(0.72, None),
    ),
    Claim(
        algorithm="gpfedrec",
        dataset="ml-100k",
        label="GPFedRec",
        settings={},
        published=(0.7265, None),
    ),
    Claim(
        algorithm="fedrap",
        dataset="ml-100k",
        label="FedRAP",
        settings=FEDRAP,
        published=(None, None),
    ),
    *(
        Claim(
            algorithm="colr",
            dataset="ml-1m",
            label=f"CoLR, rank {rank}",
            settings=COLR | {"rank": rank},
            published=published,
        )
        for rank, published in {
            1: (0.572, 0.320),
            4: (0.606, 0.345),
            16: (0.634, 0.366),
            64: (0.648, 0.375),
        }.items()
    ),
    Claim(
        algorithm="lightfr",
        dataset="ml-1m",
        label="LightFR, 64 bits",
        settings={"rounds": 50},
        published=(0.5014, 0.2709),
    ),
)


def measured(claim: Claim, seed: int) -> JsonObject:
    line: JsonObject = {
        "label": claim.label,
        "dataset": claim.dataset,
        "seed": seed,
        "published": claim.published,
    }
    for name, leaky in (("with the leak", True), ("without", False)):
        settings = PROTOCOL | claim.settings | {"seed": seed, "as_published": leaky}
        run = coterie.run(claim.algorithm, claim.dataset, **settings)
        line[name] = [round(run.metrics[metric], 4) for metric in ACCURACY]
    return line


def table(lines: Iterable[JsonObject]) -> Iterator[str]:
    """Rows of a Markdown table: HR@10 / NDCG@10, means over seeds."""
    found: dict[tuple[str, str], list[JsonObject]] = {}
    for line in lines:
        found.setdefault((line["label"], line["dataset"]), []).append(line)
    yield "| | | published | with the leak | without | seeds |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for (label, dataset), runs in found.items():
        published = " / ".join("–" if one is None else f"{one}" for one in runs[0]["published"])
        cells = [
            " / ".join(f"{spread([run[name][k] for run in runs])['mean']:.3f}" for k in range(2))
            for name in ("with the leak", "without")
        ]
        yield f"| {label} | {DATASETS[dataset]} | {published} | {' | '.join(cells)} | {len(runs)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    algorithms = sorted({claim.algorithm for claim in CLAIMS})
    parser.add_argument("--only", nargs="*", default=algorithms, choices=algorithms)
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--table", type=Path, help="print the table of finished lines")
    given = parser.parse_args()
    if given.table is not None:
        finished = [json.loads(line) for line in given.table.read_text().splitlines()]
        print("\n".join(table(finished)))
        return
    wanted = [
        (claim, seed)
        for claim in CLAIMS
        if claim.algorithm in given.only and claim.dataset in given.datasets
        for seed in range(given.seeds)
    ]
    for n, (claim, seed) in enumerate(wanted, 1):
        print(json.dumps(measured(claim, seed)), flush=True)
        print(f"{n} of {len(wanted)} runs", file=sys.stderr)


if __name__ == "__main__":
    main()
