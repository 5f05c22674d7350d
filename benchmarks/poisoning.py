"""What every poisoning attack does to an undefended run on MovieLens-100K.

    python benchmarks/poisoning.py [ALGORITHM ...]

Prints the table of docs/poisoning.md: 1 % of the users attack, seed 0, defaults of all attacks.
"""

from __future__ import annotations

import sys

from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning import ATTACKS, Colluders, attack, poisoned
from coterie.attacks.poisoning.measures import Measures
from coterie.attacks.poisoning.replay import replay
from coterie.core.progress import SILENT
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.federated.federation import Federation

ALGORITHMS = ("fedfast", "fedavg", "fcf", "pfpl+")
SHARE = 0.01


def main() -> None:
    for name in sys.argv[1:] or ALGORITHMS:
        ready = prepare(Experiment.of({"algorithm": name, "dataset": "ml-100k"}), None, SILENT)
        federation = algorithm(name).train
        assert isinstance(federation, Federation)
        colluders = Colluders.of(ready.training, share=SHARE, seed=0)
        show(name, "none", replay(ready, federation, colluders).measures)
        for attack_name in ATTACKS:
            show_attack(ready, federation, colluders, attack_name)


def show_attack(
    ready: Prepared, federation: Federation, colluders: Colluders, attack_name: str
) -> None:
    name = ready.experiment.choice.algorithm
    try:
        attacked = replay(ready, poisoned(federation, attack(attack_name), colluders), colluders)
    except ConfigError:
        print(f"| {name} | {attack_name} | not applicable |", flush=True)
        return
    show(name, attack_name, attacked.measures, attacked.selected)


def show(name: str, attack_name: str, measures: Measures, selected: int = 0) -> None:
    groups = " / ".join(f"{value:.3f}" for value in measures.hr_by_group.values())
    cells = [
        name,
        attack_name,
        f"{measures.hr:.3f}",
        f"{measures.ndcg:.3f}",
        f"{measures.exposure:.3f}",
        f"{measures.target_rank:,.0f}",
        groups,
        str(selected),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
