"""Bit-identity: SHA-256 of the final state for several numbers of nodes and threads. Prints JSON.

    python benchmarks/same_bits.py [--dataset ml-100k] [--rounds 50]

Runs 1, 3 and 7 nodes with 1 and 2 threads. Then sends a thousand hostile updates (tests/hostile.py)
and compares the model with that of a run without them: wrong shapes and types, shapes that would
broadcast, unknown items and users, NaN, values out of range, bad sample counts, stale rounds,
duplicates.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.datasets import load
from coterie.data.splits import split
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated import rounds, trainer
from coterie.federated.federation import Federation, World
from coterie.federated.trainer import Context

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hostile import HostileEngine

NAMES = ("fedavg", "fedfast", "fedavg+actvsamp", "fedavg+actvagg")


def sha256(state: Any) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(state.arrays().items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def play(federation: Federation, world: World, engine: rounds.Engine) -> tuple[str, Counter[str]]:
    """Train; return the hash of the final state and the rejected updates by reason."""
    rejected: Counter[str] = Counter()
    work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
    state, _ = work.start()
    for n in range(1, world.settings.rounds + 1):
        state, costs = work.step(state, n)
        rejected.update(costs.refused)
    return sha256(state), rejected


def check(name: str, training: TrainingSet, n_rounds: int) -> dict[str, Any]:
    chosen = algorithm(name)
    federation = chosen.train
    assert isinstance(federation, Federation)
    settings = chosen.settings.of({"embedding_size": 10, "rounds": n_rounds})
    world = trainer.world_of(training, settings, 0)
    hashes = []
    for nodes in (1, 3, 7):
        for threads in (1, 2):
            os.environ["COTERIE_THREADS"] = str(threads)
            engine = LocalEngine.over(world, training, nodes, through_the_wire=True)
            hashes.append(play(federation, world, engine)[0])
    # Enough hostile clients per round for a thousand hostile updates.
    n_hostile = -(-1000 // n_rounds)

    def hostile(active: bool) -> HostileEngine:
        engine = LocalEngine.over(world, training, 1)
        return HostileEngine(engine, world.n_items, federation.exchanges[0], n_hostile, 0, active)

    attacked = hostile(True)
    attacked_hash, rejected = play(federation, world, attacked)
    spared_hash, spared_rejected = play(federation, world, hostile(False))
    rejected.update(spared_rejected)
    return {
        "sha256": sorted(set(hashes)),
        "ways": len(hashes),
        "hostile": {
            "sent": attacked.sent.total(),
            "rejected": rejected.total(),
            "same model without them": attacked_hash == spared_hash,
        },
        "reasons": dict(rejected),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    for name in NAMES:
        run = {"algorithm": name, "dataset": options.dataset, "rounds": options.rounds}
        print(json.dumps(run | check(name, training, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
