"""One run, many ways: SHA-256 of the final state for 1, 3 and 7 nodes and 1 and 2 threads; and under a thousand hostile updates.

    python benchmarks/same_bits.py [--dataset ml-100k] [--rounds 50]

Hostile updates are those of tests/hostile.py: wrong shapes and types, shapes that would broadcast, unknown items and users, no
numbers, numbers out of range, bad sample counts, stale rounds, updates that come twice. Prints JSON.
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
from coterie.engines.local import LocalEngine
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hostile import HostileEngine

NAMES = ("fedavg", "fedfast", "fedavg+actvsamp", "fedavg+actvagg")


def sha256(state: Any) -> str:
    digest = hashlib.sha256()
    for name, array in sorted(state.arrays().items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    training = split(load(options.dataset), "leave-one-out", 0.2, 0).training()
    for name in NAMES:
        chosen = algorithm(name)
        assert isinstance(chosen.train, Federation)
        world = trainer.world_of(
            training, chosen.settings.of({"embedding_size": 10, "rounds": options.rounds}), 0
        )
        refused: Counter[str] = Counter()

        def play(
            engine: Any,
            federation: Federation = chosen.train,
            world: Any = world,
            into: Any = refused,
        ) -> str:
            work = trainer.federated_trainer(federation, world, engine, Context(0, SILENT))
            state, _ = work.start()
            for n in range(1, world.settings.rounds + 1):
                state, costs = work.step(state, n)
                into.update(costs.refused)
            return sha256(state)

        found = {}
        for nodes in (1, 3, 7):
            for threads in (1, 2):
                os.environ["COTERIE_THREADS"] = str(threads)
                engine = LocalEngine.over(world, training, nodes, through_the_wire=True)
                found[f"{nodes} nodes, {threads} threads"] = play(engine)
        liars = -(-1000 // options.rounds)
        attacked, spared = (
            HostileEngine(
                LocalEngine.over(world, training, 1),
                world.n_items,
                chosen.train.exchanges[0],
                liars,
                0,
                on,
            )
            for on in (True, False)
        )
        refused.clear()
        same = play(attacked) == play(spared)
        print(
            json.dumps(
                {
                    "algorithm": name,
                    "dataset": options.dataset,
                    "rounds": options.rounds,
                    "sha256": sorted(set(found.values())),
                    "ways": len(found),
                    "hostile": {
                        "sent": attacked.sent.total(),
                        "refused": refused.total(),
                        "model is that without them": same,
                    },
                    "reasons": dict(refused),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
