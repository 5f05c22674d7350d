"""CoLR: accuracy against the bytes of a message, by rank. Prints one line of JSON per run.

    python benchmarks/low_rank.py > dial.jsonl
    python benchmarks/low_rank.py --seeds 1 --ways anew
    python benchmarks/low_rank.py --table dial.jsonl

`anew` draws B in every round and `once` for all of them; `small` is matrix factorisation with rows
of that length, which is what else would send as few bytes. Bytes are those of one client in one
round, in the clear and under secure aggregation (computed from the summed vector and the sizes of
groups; the model has the same bits). Settings are the defaults; accuracy is that of the test part.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bytes_to_accuracy import secure_traffic
from tables import spread

import coterie
from coterie.core.progress import SILENT
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.types import JsonObject

RANKS = (1, 2, 4, 8, 16, 32)
SIZE = 32
WAYS: dict[str, tuple[int, ...]] = {
    "anew": RANKS,
    "once": (1, 4, 16),
    "small": RANKS[:-1],
}
ACCURACY = ("HR@10", "NDCG@10")
BYTES = ("up", "down", "secure up", "secure down")


def settings_of(way: str, rank: int) -> dict[str, Any]:
    if way == "small":
        return {"rank": rank, "embedding_size": rank}
    return {"rank": rank, "embedding_size": SIZE, "basis": way}


def measured(dataset: str, protocol: str, way: str, rank: int, seed: int) -> JsonObject:
    given = {"seed": seed, "evaluate_every": 1_000_000, "protocol": protocol}
    given |= settings_of(way, rank)
    run = coterie.run("colr", dataset, **given)
    experiment = Experiment.of(given | {"algorithm": "colr", "dataset": dataset})
    secure = secure_traffic(experiment, prepare(experiment, None, SILENT).training).message
    return {
        "dataset": dataset,
        "protocol": protocol,
        "way": way,
        "rank": rank,
        "seed": seed,
        "rounds": experiment.settings.n_steps,
        **{name: round(run.metrics[name], 4) for name in ACCURACY},
        "NDCG@10, all items": round(run.full["NDCG@10"], 4),
        "up": round(run.result["bytes_up"] / run.result["updates"]),
        "down": round(run.result["bytes_down"] / run.result["updates"]),
        "secure up": round(secure.up),
        "secure down": round(secure.down),
    }


def table(lines: Iterable[JsonObject]) -> Iterator[str]:
    """Rows of a Markdown table: means over seeds, and the standard deviation of NDCG@10."""
    found: dict[tuple[str, int], list[JsonObject]] = {}
    for line in lines:
        found.setdefault((line["way"], line["rank"]), []).append(line)
    yield f"| B | rank | {' | '.join((*ACCURACY, *BYTES))} | seeds |"
    yield "| --- " * (3 + len(ACCURACY) + len(BYTES)) + "|"
    for (way, rank), runs in sorted(found.items()):
        accuracy = [spread([run[name] for run in runs]) for name in ACCURACY]
        shown = [f"{one['mean']:.4f} ±{one['sd']:.4f}" for one in accuracy]
        kilobytes = [f"{sum(run[name] for run in runs) / len(runs) / 1e3:.1f}" for name in BYTES]
        yield f"| {way} | {rank} | {' | '.join((*shown, *kilobytes))} | {len(runs)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--protocol", default="loo-99")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--ranks", nargs="*", type=int, default=list(RANKS), choices=RANKS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--table", type=Path, help="print the table of finished lines")
    options = parser.parse_args()
    if options.table is not None:
        found = [json.loads(line) for line in options.table.read_text().splitlines()]
        print("\n".join(table(found)))
        return
    for way in options.ways:
        for rank in sorted(set(WAYS[way]) & set(options.ranks)):
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                line = measured(options.dataset, options.protocol, way, rank, seed)
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
