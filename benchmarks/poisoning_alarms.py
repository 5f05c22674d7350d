"""Which attacks a server's watch sees, and when. Prints JSON lines.

    python benchmarks/poisoning_alarms.py --seeds 3
    python benchmarks/poisoning_alarms.py --robust bounded --share 0.05 --attacks none takeover

One line for each run: dataset, algorithm, attack ("none" without attackers), seed, the first round
with an alarm about the target, alarms about other items, the first round in which ER@10 of the
target is 0.05 or more, ER@10 at the end, and the time of the watch. The watch is that of `coterie
serve`; clients are simulated, and 1 % of the users attack without a defence. ER@10 is without the
popularity prior; it is computed after each of the first 30 rounds, and after every fifth of the
others.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field

from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning import Colluders, attack, poisoned
from coterie.attacks.poisoning.measures import K, target_ranks
from coterie.core.progress import SILENT, Progress
from coterie.deployment.watch.alarms import Alarms
from coterie.deployment.watch.watch import Watch
from coterie.engines.local import LocalEngine
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Context, n_rounds
from coterie.types import JsonObject

NO_ATTACK = "none"
SEEN = 0.05
"""ER@10 from which a promotion counts."""
CLOSELY = 30


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithms", nargs="*", default=("fedfast", "fedavg", "fcf", "pfpl+"))
    parser.add_argument("--attacks", nargs="*", default=("none", "pieck", "boost", "pipattack"))
    parser.add_argument("--robust", default="none")
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10**6, help="At most so many rounds.")
    given = parser.parse_args()
    for seed in range(given.seeds):
        for name in given.algorithms:
            values = {
                "algorithm": name,
                "dataset": given.dataset,
                "seed": seed,
                "robust": given.robust,
            }
            ready = prepare(Experiment.of(values), None, SILENT)
            for attack_name in given.attacks:
                line = watched(ready, attack_name, given.share, given.rounds)
                print(json.dumps(line), flush=True)


@dataclass
class AlarmLog(Progress):
    """Alarms with the round in which they came."""

    round: int = 0
    lines: list[tuple[int, str]] = field(default_factory=list)

    def warn(self, text: str) -> None:
        self.lines.append((self.round, text))

    def of(self, subject: str) -> list[int]:
        return [n for n, text in self.lines if text.startswith(f"alarm: {subject}:")]


def watched(ready: Prepared, attack_name: str, share: float, most_rounds: int) -> JsonObject:
    """One run with a watch, of which this share of the users attack."""
    choice = ready.experiment.choice
    honest = algorithm(choice.algorithm).train
    assert isinstance(honest, Federation)
    colluders = Colluders.of(ready.training, share=share, seed=choice.seed)
    federation = honest
    if attack_name != NO_ATTACK:
        federation = poisoned(honest, attack(attack_name), colluders)
    settings = federation_settings(ready.experiment.settings)
    world = trainer.world_of(ready.training, settings, choice.seed, federation)
    engine = LocalEngine.over(world, ready.training, 1)
    context = Context(choice.seed, SILENT)
    work = trainer.federated_trainer(federation, world, engine, context, by_round=True)
    log = AlarmLog()
    items = [str(item) for item in ready.parts.train.item_ids]
    watch = Watch(items, Alarms(), log)
    state, _ = work.start()
    first_seen = None
    seconds = {"round": 0.0, "watch": 0.0}
    for n in range(1, min(n_rounds(federation, world), most_rounds) + 1):
        began = time.perf_counter()
        state, _ = work.step(state, n)
        trained = time.perf_counter()
        log.round = n
        watch.look_at_items(n, honest, world, state)
        seconds["round"] += trained - began
        seconds["watch"] += time.perf_counter() - trained
        if first_seen is None and (n < CLOSELY or n % 5 == 0):
            ranks = target_ranks(work.model(state), ready.parts, colluders.users, colluders.target)
            first_seen = n if (ranks <= K).mean() >= SEEN else None
    ranks = target_ranks(work.model(state), ready.parts, colluders.users, colluders.target)
    target = log.of(f"item {items[colluders.target]}")
    return {
        "dataset": choice.dataset,
        "algorithm": choice.algorithm,
        "robust": settings.robust,
        "attack": attack_name,
        "share": share,
        "seed": choice.seed,
        "rounds": n,
        "first alarm": target[0] if target else None,
        "text": next((text for _, text in log.lines if items[colluders.target] in text), ""),
        "other alarms": len(log.lines) - len(target),
        "first round with ER@10 >= 0.05": first_seen,
        "ER@10": round(float((ranks <= K).mean()), 4),
        "milliseconds of the watch a round": round(1000 * seconds["watch"] / n, 2),
        "milliseconds a simulated round": round(1000 * seconds["round"] / n, 2),
    }


if __name__ == "__main__":
    main()
