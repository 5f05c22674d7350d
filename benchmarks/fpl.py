"""FPL beside its tables: how settings were found, rounds to a target, what a curious server learns. Prints one JSON object per part.

    python benchmarks/fpl.py search --datasets foursquare-italy ml-100k ml-1m
    python benchmarks/fpl.py grid attackers speed

    search      the settings of the paper's tables: by the paper's search, and with every method tuned for itself
    grid        rounds to a target over clients a round and triples a client (Section 4.3)
    attackers   what a curious server learns at pi = 0, 0.1, 0.5, 1 after 10 and 100 rounds
    speed       an epoch of pFPL+ with 50 factors

The paper's tables and figures are `coterie reproduce fpl`. On Foursquare-Italy unless datasets are named; everything is chosen on validation,
by precision at ten. Cells that were run before are not run again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from tables import OPTIONS, carried_out, of, print_parts, spread

from coterie.algorithms import fpl
from coterie.algorithms.registry import algorithm
from coterie.attacks.replay import Replay
from coterie.core.progress import SILENT
from coterie.engines import select
from coterie.experiments.config import Experiment
from coterie.experiments.plan import Method, Outcome, Plan
from coterie.experiments.preparation import prepare
from coterie.experiments.tuning import Search, tune
from coterie.federated import trainer
from coterie.federated.trainer import Context
from coterie.reproduce.papers.fpl import MODES, PIS

P = "P@10"
RATES = (0.005, 0.05, 0.5)
SIZES = (10, 20, 50)
EPOCHS = (10, 20, 30, 40, 50)
TOPOLOGIES = ((200, 100), (300, 100), (600, 200))
TRIALS = {"foursquare-italy": 20, "ml-100k": 20, "ml-1m": 40}
"""Of every trained method when each is tuned for itself."""
FINALISTS = {"ml-1m": 4}
"""So many of the best trials are trained again with two other seeds where trials are close to one another; the best mean wins."""


# What the paper's search chooses


def papers_choice(dataset: str) -> dict[str, Method]:
    """Section 5.3: rate and size by BPR-MF, and handed on to FPL and FCF; epochs, pi, k and topology for each."""
    bpr = papers_choice_of_bpr(dataset)
    rate = bpr.settings["learning_rate"]
    size = bpr.settings["embedding_size"]
    chosen = {"random": Method("random", "random"), "popular": Method("popular", "popular")}
    for name in ("userknn", "itemknn"):
        chosen[name] = best_of(
            dataset,
            name,
            [
                Method(f"{name} {k}", name, {"neighbours": k, "shrink": 0.0})
                for k in range(10, 101, 10)
            ],
        )
    chosen["multivae"] = best_of(
        dataset, "multivae", [autoencoder(*layers) for layers in TOPOLOGIES], (50, 100, 200)
    )
    chosen["bpr"] = bpr
    chosen["fcf"] = best_of(
        dataset,
        "fcf",
        [Method("fcf", "fcf", FCF | {"learning_rate": rate, "embedding_size": size})],
        EPOCHS,
    )
    for mode in MODES:
        chosen[mode] = best_of(
            dataset, mode, [disclosing(mode, rate, size, pi) for pi in PIS], EPOCHS
        )
    return chosen


def papers_choice_of_bpr(dataset: str) -> Method:
    grid = [pairwise("bpr", rate, size) for rate in RATES for size in SIZES]
    return best_of(dataset, "bpr", grid, EPOCHS)


FCF = {"rounds": 50, "alpha": 1.0, "reg": 1.0, "start_scale": 0.1}


def pairwise(name: str, rate: float, size: int) -> Method:
    """mymedialite's shares of the rate, as the paper has them."""
    reg = {"reg_user": rate / 20, "reg_positive": rate / 20, "reg_negative": rate / 200}
    more = {"reg_bias": 0.0} if name == "bpr" else {}
    return Method(
        f"{name} {rate} {size}",
        name,
        {"learning_rate": rate, "embedding_size": size, "start_scale": 0.1, "epochs": 50}
        | reg
        | more,
    )


def disclosing(mode: str, rate: float, size: int, pi: float) -> Method:
    return Method(f"{mode} {pi}", mode, pairwise(mode, rate, size).settings | {"disclosure": pi})


def autoencoder(hidden: int, latent: int) -> Method:
    return Method(
        f"multivae {hidden}-{latent}",
        "multivae",
        {"hidden": hidden, "latent": latent, "epochs": 200},
    )


def best_of(dataset: str, label: str, methods: Sequence[Method], at: Sequence[int] = ()) -> Method:
    """The method, and the number of epochs among some, with the best precision on validation."""
    every = {"evaluate_every": at[0]} if at else {}
    plan = Plan(
        (dataset,),
        tuple(methods),
        {"validation": True, "headline": ["P"]} | every,
        (0,),
        "holdout",
        part="validation",
    )
    found = [
        (line[P], outcome.cell.method, line["round"])
        for outcome in carried_out(plan)
        if not outcome.diverged
        for line in outcome.curve
        if not at or line["round"] in at
    ]
    _, method, steps = max(found, key=lambda each: each[0])
    key = next(
        (
            key
            for key in ("epochs", "rounds")
            if key in algorithm(method.algorithm).settings.model_fields
        ),
        None,
    )
    return Method(
        label, method.algorithm, dict(method.settings) | ({key: steps} if key and at else {})
    )


# Every method tuned for itself


def own_choice(dataset: str) -> dict[str, Method]:
    """As many trials for everybody; as long as validation still gains, up to 200 epochs."""
    chosen = {"random": Method("random", "random"), "popular": Method("popular", "popular")}
    for name in ("userknn", "itemknn", "multivae", "bpr", "fcf", *MODES):
        chosen[name] = Method(name, name, searched(dataset, name))
    return chosen


def searched(dataset: str, name: str, **held: Any) -> dict[str, Any]:
    limits: dict[str, dict[str, Any]] = {
        "epochs": {"epochs": 200, "evaluate_every": 5, "patience": 4},
        "rounds": {"rounds": 100, "evaluate_every": 5, "patience": 4},
    }
    search = Search(
        name, dataset, "holdout", TRIALS[dataset], finalists=FINALISTS.get(dataset, 0), seeds=2
    )
    held = {"headline": ["P"]} | limits.get(search.steps, {}) | held
    return dict(tune(replace(search, held=held), OPTIONS.cells).best.settings)


# What `coterie reproduce fpl` runs


def search(dataset: str, seeds: int) -> dict[str, Any]:
    """Of Italy both searches and epochs by pi; of MovieLens BPR-MF and pFPL+, tuned with as many trials."""
    if dataset != "foursquare-italy":
        methods = {"bpr": searched(dataset, "bpr"), "pfpl+": searched(dataset, "pfpl+", **LONG)}
        return {"part": "search", "dataset": dataset, "settings": methods}
    bpr = papers_choice_of_bpr(dataset)
    rate = bpr.settings["learning_rate"]
    size = bpr.settings["embedding_size"]
    epochs = {
        mode: {
            pi: best_of(
                dataset, mode, [disclosing(mode, rate, size, pi)], range(5, 51, 5)
            ).settings["epochs"]
            for pi in PIS
        }
        for mode in MODES
    }
    found = {"paper": papers_choice(dataset), "own": own_choice(dataset)}
    settings = {
        way: {name: dict(m.settings) for name, m in chosen.items()} for way, chosen in found.items()
    }
    return {"part": "search", "dataset": dataset, "settings": settings | {"epochs by pi": epochs}}


LONG = {"epochs": 400, "evaluate_every": 20, "patience": 5}
"""One round an epoch moves every item once: pFPL+ needs more of them on dense data."""


# Section 4.3


def grid(dataset: str, seeds: int) -> dict[str, Any]:
    """Rounds until 95 % of the best precision that any of them reaches within 50 epochs, with pi = 1."""
    bpr = papers_choice_of_bpr(dataset)
    rate = bpr.settings["learning_rate"]
    size = bpr.settings["embedding_size"]
    ways = [(clients, triples) for clients in (10, 100, 400, 0) for triples in (1, 5, 20, 39, 100)]
    methods = [
        Method(
            f"{clients or 'all'} clients, {triples} triples",
            "pfpl+",
            pairwise("pfpl+", rate, size).settings
            | {"users_per_round": clients, "triples": triples},
        )
        for clients, triples in ways
    ]
    plan = Plan(
        (dataset,),
        tuple(methods),
        {"validation": True, "headline": ["P"], "evaluate_every": 1},
        tuple(range(seeds)),
        "holdout",
        part="validation",
    )
    outcomes = [outcome for outcome in carried_out(plan) if not outcome.diverged]
    target = 0.95 * max(
        mean(max(line[P] for line in o.curve) for o in of(outcomes, m.label)) for m in methods
    )
    return {
        "part": "grid",
        "dataset": dataset,
        "seeds": seeds,
        "target": target,
        "rounds": {m.label: reached(of(outcomes, m.label), target, dataset) for m in methods},
    }


def reached(outcomes: Sequence[Outcome], target: float, dataset: str) -> dict[str, Any]:
    each = rounds_in_an_epoch(outcomes[0].cell.experiment)
    when = [
        next((line["round"] * each for line in o.curve if line[P] >= target), None)
        for o in outcomes
    ]
    return {
        "rounds": when,
        "rounds an epoch": each,
        "best": spread([max(line[P] for line in o.curve) for o in outcomes]),
    }


def rounds_in_an_epoch(experiment: Experiment) -> int:
    ready = prepare(experiment, None, SILENT)
    return fpl.rounds_an_epoch(
        trainer.world_of(ready.parts.for_tuning().training(), experiment.settings, 0)
    )


# What it costs and what it gives away


def attackers(dataset: str, seeds: int) -> dict[str, Any]:
    """[precision, recall] of every attacker, and of as many claims about what is popular, for pFPL+ and FCF."""
    found: dict[str, Any] = {
        f"pi = {pi}": overheard("pfpl+", dataset, (10, 100), disclosure=pi)
        for pi in (0, 0.1, 0.5, 1)
    }
    return {
        "part": "attackers",
        "dataset": dataset,
        "pfpl+": found,
        "fcf": overheard("fcf", dataset, (1,)),
    }


def overheard(name: str, dataset: str, when: Sequence[int], **settings: Any) -> dict[str, Any]:
    values = {"algorithm": name, "dataset": dataset, "protocol": "holdout"} | settings
    replay = Replay.of(prepare(Experiment.of(values), None, SILENT))
    return {
        f"after {k}": {
            line.attacker: {
                "claims": [line.figures.precision, line.figures.recall],
                "popular": [line.figures.popular_precision, line.figures.popular_recall],
            }
            for line in replay.lines(k)
        }
        for k in replay.play(when, SILENT)
    }


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Seconds of an epoch, median of 20, and of the three others once each."""
    ready = prepare(
        Experiment.of({"algorithm": "pfpl+", "dataset": dataset, "protocol": "holdout"}),
        None,
        SILENT,
    )
    found = {}
    for mode in MODES:
        chosen = algorithm(mode)
        work = select.trainer(
            chosen.train,
            ready.training,
            chosen.settings.of({"embedding_size": 50}),
            Context(0, SILENT),
        )  # type: ignore[arg-type]
        state, _ = work.start()
        times = []
        for n in range(1, 24 if mode == "pfpl+" else 6):
            began = time.perf_counter()
            state, _ = work.step(state, n)
            times.append(time.perf_counter() - began)
        found[mode] = round(statistics.median(times[3:]), 4)
    return {"part": "speed", "dataset": dataset, "seconds an epoch": found, "bar": {"pfpl+": 0.04}}


PARTS = {"search": search, "grid": grid, "attackers": attackers, "speed": speed}


if __name__ == "__main__":
    print_parts(__doc__, PARTS, "foursquare-italy")
