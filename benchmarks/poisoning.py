"""What poisoning attacks do to runs, with and without defences. Prints JSON lines.

    python benchmarks/poisoning.py --robust none bounded
    python benchmarks/poisoning.py --algorithms fedfast --attacks pieck --share 0.005 0.01 0.05
    python benchmarks/poisoning.py --seeds 3 --store docs/assets/poisoning.jsonl
    COTERIE_THREADS=1 python benchmarks/poisoning.py --dataset ml-1m --workers 16 --store runs.jsonl

One line for each run: dataset, algorithm, defence, attack ("none" without attackers), share of the
users who attack, seed, and of honest users HR@10, NDCG@10, ER@10 and the median rank of the target.
Settings of attacks and algorithms are the defaults. An attack that does not apply has null for all
of them. With --store, lines are appended to a file, and runs that are in it are not repeated;
`poisoning_page.py` makes the tables of the docs from it. With --workers, runs end in any order.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning import ATTACKS, Colluders, attack, poisoned
from coterie.attacks.poisoning.replay import replay
from coterie.core.parent_process import exit_with_parent
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, load_data, prepare
from coterie.federated.federation import Federation
from coterie.types import JsonObject

ALGORITHMS = ("fedfast", "fedavg", "fcf", "pfpl+", "fedals", "fedease")
NO_ATTACK = "none"
MEASURES = ("HR@10", "NDCG@10", "ER@10", "target rank")


class Run(NamedTuple):
    """What is run, and the key of its line in a store."""

    dataset: str
    algorithm: str
    robust: str
    attack: str
    share: float
    seed: int


KEY = Run._fields


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--attacks", nargs="*", default=(NO_ATTACK, *ATTACKS))
    parser.add_argument("--robust", nargs="*", default=["none"])
    parser.add_argument("--share", nargs="*", type=float, default=[0.01])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    done = {key_of(run) for run in read(given.store)} if given.store else set()
    wanted = product(range(given.seeds), given.algorithms, given.robust, given.share, given.attacks)
    runs = [
        Run(given.dataset, name, defence, attack_name, share, seed)
        for seed, name, defence, share, attack_name in wanted
    ]
    missing = [run for run in runs if run not in done]
    for n, line in enumerate(lines(missing, given.workers), 1):
        print(line, flush=True)
        print(f"{n} of {len(missing)} runs", file=sys.stderr)
        if given.store:
            append(given.store, line)


def lines(runs: Sequence[Run], workers: int) -> Iterator[str]:
    """The line of each run, as soon as it is known."""
    if workers == 1:
        yield from map(line_of, runs)
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=exit_with_parent)
    try:
        for future in as_completed([pool.submit(line_of, run) for run in runs]):
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def line_of(run: Run) -> str:
    return json.dumps(run._asdict() | measured(run))


def read(store: Path) -> list[JsonObject]:
    found = store.read_text().splitlines() if store.exists() else []
    return [json.loads(line) for line in found]


def key_of(run: JsonObject) -> Run:
    return Run(*(run[name] for name in KEY))


def append(store: Path, line: str) -> None:
    with store.open("a") as file:
        file.write(line + "\n")


def measured(run: Run) -> JsonObject:
    """The measures of a run with attackers; nulls if the attack does not apply."""
    ready = prepared(run)
    federation = algorithm(run.algorithm).train
    assert isinstance(federation, Federation)
    colluders = Colluders.of(ready.training, share=run.share, seed=run.seed)
    attacked = federation
    if run.attack != NO_ATTACK:
        attacked = poisoned(federation, attack(run.attack), colluders)
    try:
        found = replay(ready, attacked, colluders).measures
    except ConfigError as error:
        print(f"{run.attack}: {error}", file=sys.stderr)
        return dict.fromkeys(MEASURES)
    values = (found.hr, found.ndcg, found.exposure, found.target_rank)
    return {name: round(value, 4) for name, value in zip(MEASURES, values, strict=True)}


def prepared(run: Run) -> Prepared:
    experiment = Experiment.of(
        {
            "algorithm": run.algorithm,
            "dataset": run.dataset,
            "robust": run.robust,
            "seed": run.seed,
        }
    )
    return prepare(experiment, loaded(run.dataset), SILENT)


@lru_cache(maxsize=1)
def loaded(dataset: str) -> Interactions:
    return load_data(Experiment.of({"algorithm": ALGORITHMS[0], "dataset": dataset}), SILENT)


if __name__ == "__main__":
    main()
