"""What poisoning attacks do to runs, with and without defences. Prints JSON lines.

    python benchmarks/poisoning.py --robust none bounded
    python benchmarks/poisoning.py --algorithms fedfast --attacks pieck --share 0.005 0.01 0.05
    python benchmarks/poisoning.py --seeds 3 --store docs/assets/poisoning.jsonl

One line for each run: dataset, algorithm, defence, attack ("none" without attackers), share of the
users who attack, seed, and of honest users HR@10, NDCG@10, ER@10 and the median rank of the target.
Settings of attacks and algorithms are the defaults. An attack that does not apply has null for all
of them. With --store, lines are appended to a file, and runs that are in it are not repeated;
`poisoning_page.py` makes the tables of the docs from it.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product
from pathlib import Path

from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning import ATTACKS, Colluders, attack, poisoned
from coterie.attacks.poisoning.replay import replay
from coterie.core.progress import SILENT
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.federated.federation import Federation
from coterie.types import JsonObject

ALGORITHMS = ("fedfast", "fedavg", "fcf", "pfpl+", "fedals", "fedease")
NO_ATTACK = "none"
KEY = ("dataset", "algorithm", "robust", "attack", "share", "seed")
MEASURES = ("HR@10", "NDCG@10", "ER@10", "target rank")


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
    parser.add_argument("--store", type=Path)
    given = parser.parse_args()
    done = {key_of(run) for run in read(given.store)} if given.store else set()
    for seed in range(given.seeds):
        for name, defence in product(given.algorithms, given.robust):
            ready = None
            for share, attack_name in product(given.share, given.attacks):
                key = (given.dataset, name, defence, attack_name, share, seed)
                if key in done:
                    continue
                ready = ready or prepared(given.dataset, name, defence, seed)
                line = json.dumps(dict(zip(KEY, key, strict=True)) | measured(ready, *key[3:]))
                print(line, flush=True)
                if given.store:
                    append(given.store, line)


def read(store: Path) -> list[JsonObject]:
    lines = store.read_text().splitlines() if store.exists() else []
    return [json.loads(line) for line in lines]


def key_of(run: JsonObject) -> tuple[object, ...]:
    return tuple(run[name] for name in KEY)


def append(store: Path, line: str) -> None:
    with store.open("a") as file:
        file.write(line + "\n")


def prepared(dataset: str, name: str, defence: str, seed: int) -> Prepared:
    values = {"algorithm": name, "dataset": dataset, "robust": defence, "seed": seed}
    return prepare(Experiment.of(values), None, SILENT)


def measured(ready: Prepared, attack_name: str, share: float, seed: int) -> JsonObject:
    """One run with attackers; nulls if the attack does not apply to the algorithm."""
    federation = algorithm(ready.experiment.choice.algorithm).train
    assert isinstance(federation, Federation)
    colluders = Colluders.of(ready.training, share=share, seed=seed)
    attacked = federation
    if attack_name != NO_ATTACK:
        attacked = poisoned(federation, attack(attack_name), colluders)
    try:
        found = replay(ready, attacked, colluders).measures
    except ConfigError as error:
        print(f"{attack_name}: {error}", file=sys.stderr)
        return dict.fromkeys(MEASURES)
    values = (found.hr, found.ndcg, found.exposure, found.target_rank)
    return {name: round(value, 4) for name, value in zip(MEASURES, values, strict=True)}


if __name__ == "__main__":
    main()
