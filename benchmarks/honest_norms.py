"""How long the rows of honest clients are, beside each other. Prints JSON lines.

    python benchmarks/honest_norms.py
    python benchmarks/honest_norms.py --algorithms fedfast --rounds 100

The bounds of `robust=bounded` are multiples of medians over the clients of a round. One line for
each algorithm: quantiles, over all clients of all rounds of a run without attackers, of the norm of
an item row as a multiple of the median client's root mean square, and of a client's whole update,
own row, dense part and samples as multiples of the median client's. A bound above the quantile of
0.999 changes almost nothing in an honest run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.attacks.poisoning import Colluders
from coterie.attacks.poisoning.replay import replay
from coterie.core.progress import SILENT
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.federated.client_rows import squared_norms
from coterie.federated.federation import (
    AnyFederation,
    AnyWorld,
    Exchange,
    FastPaths,
    Federation,
    Sums,
)
from coterie.federated.robust.bounds import Norms
from coterie.types import Doubles, Ints, JsonObject, Longs, Message, Updates

ALGORITHMS = ("fedfast", "fedavg", "fcf", "pfpl+", "fedbso", "fedals")
QUANTILES = (0.5, 0.9, 0.99, 0.999, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="ml-100k")
    parser.add_argument("--algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for name in given.algorithms:
        values = {"algorithm": name, "dataset": given.dataset, "seed": given.seed}
        if given.rounds is not None:
            values["rounds"] = given.rounds
        print(json.dumps(norms_of(values)), flush=True)


def norms_of(values: JsonObject) -> JsonObject:
    ready = prepare(Experiment.of(values), None, SILENT)
    federation = algorithm(ready.experiment.choice.algorithm).train
    assert isinstance(federation, Federation)
    found: dict[str, list[Doubles]] = {}
    colluders = Colluders.of(ready.training, share=0.01, seed=0)
    replay(ready, recording(federation, found), colluders)
    quantiles = {
        name: [round(float(q), 2) for q in np.quantile(np.concatenate(parts), QUANTILES)]
        for name, parts in found.items()
    }
    return {**values, "quantiles": QUANTILES, **quantiles}


def recording(federation: AnyFederation, found: dict[str, list[Doubles]]) -> AnyFederation:
    """The federation, with the norms of all updates of its rounds put into `found`."""
    exchanges = tuple(
        replace(one, aggregate=recorded(one.aggregate, found), fast=FastPaths())
        if isinstance(one, Exchange)
        else one
        for one in federation.exchanges
    )
    return replace(federation, exchanges=exchanges)


def recorded(
    aggregate: Callable[[AnyWorld, Message, Updates], Sums], found: dict[str, list[Doubles]]
) -> Callable[[AnyWorld, Message, Updates], Sums]:
    def with_record(world: AnyWorld, message: Message, updates: Updates) -> Sums:
        for name, multiples in multiples_of(updates).items():
            found.setdefault(name, []).append(multiples)
        return aggregate(world, message, updates)

    return with_record


def multiples_of(updates: Updates) -> dict[str, Doubles]:
    each = np.arange(len(updates) + 1)
    parts = {"samples": updates.samples.astype(np.float64)}
    found = {}
    if updates.item_rows.size:
        norms = norms_by_client(updates.item_rows, updates.offsets)
        found["rows"] = np.sqrt(norms.squared.by_row) / np.median(norms.root_mean_squares)
        parts["updates"] = norms.of_senders
    for name, vectors in (("own row", updates.user_rows), ("dense", updates.dense)):
        if vectors.size:
            parts[name] = norms_by_client(vectors, each).of_senders
    return found | {name: part / np.median(part) for name, part in parts.items()}


def norms_by_client(rows: Ints, offsets: Longs) -> Norms:
    return Norms(rows, offsets, squared_norms(rows, offsets))


if __name__ == "__main__":
    main()
