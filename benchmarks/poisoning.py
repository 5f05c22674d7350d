"""What poisoning attacks do to runs, with and without defences. Prints JSON lines.

    python benchmarks/poisoning.py --robust none bounded
    python benchmarks/poisoning.py --algorithms fedfast --attacks pieck --share 0.005 0.01 0.05

One line for each run: dataset, algorithm, defence, attack ("none" without attackers), share of the
users who attack, seed, and of honest users HR@10, NDCG@10, ER@10 and the median rank of the target.
Settings of attacks and algorithms are the defaults. Attacks that do not apply are left out.
"""

from __future__ import annotations

import argparse
import json

from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning import ATTACKS, Colluders, attack, poisoned
from coterie.attacks.poisoning.replay import replay
from coterie.core.progress import SILENT
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.federated.federation import Federation
from coterie.types import JsonObject

ALGORITHMS = ("fedfast", "fedavg", "fcf", "pfpl+")
NO_ATTACK = "none"


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
    given = parser.parse_args()
    for seed in range(given.seeds):
        for name in given.algorithms:
            for defence in given.robust:
                ready = prepared(given.dataset, name, defence, seed)
                for share in given.share:
                    for attack_name in given.attacks:
                        line = measured(ready, attack_name, share, seed)
                        if line is not None:
                            print(json.dumps(line), flush=True)


def prepared(dataset: str, name: str, defence: str, seed: int) -> Prepared:
    values = {"algorithm": name, "dataset": dataset, "robust": defence, "seed": seed}
    return prepare(Experiment.of(values), None, SILENT)


def measured(ready: Prepared, attack_name: str, share: float, seed: int) -> JsonObject | None:
    """One run with attackers; None if the attack does not apply to the algorithm."""
    choice = ready.experiment.choice
    federation = algorithm(choice.algorithm).train
    assert isinstance(federation, Federation)
    colluders = Colluders.of(ready.training, share=share, seed=seed)
    attacked = federation
    if attack_name != NO_ATTACK:
        attacked = poisoned(federation, attack(attack_name), colluders)
    try:
        found = replay(ready, attacked, colluders).measures
    except ConfigError:
        return None
    return {
        "dataset": choice.dataset,
        "algorithm": choice.algorithm,
        "robust": ready.experiment.flat()["robust"],
        "attack": attack_name,
        "share": share,
        "seed": seed,
        "HR@10": round(found.hr, 4),
        "NDCG@10": round(found.ndcg, 4),
        "ER@10": round(found.exposure, 4),
        "target rank": round(found.target_rank),
    }


if __name__ == "__main__":
    main()
