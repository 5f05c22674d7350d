"""FPL: the search for settings, rounds to a target, attacks by the server, speed. Prints JSON.

    python benchmarks/fpl.py search --datasets foursquare-italy ml-100k ml-1m
    python benchmarks/fpl.py grid attackers speed

    search      settings for the paper's tables: by the paper's search, as the authors' code runs
                it, and with every method tuned on its own
    grid        rounds to a target, by clients per round and triples per client (Section 4.3)
    attackers   what an honest-but-curious server learns at pi = 0, 0.1, 0.5, 1 after 10 and 100
                rounds
    speed       seconds of an epoch with 50 factors

The default dataset is Foursquare-Italy. Everything is chosen by P@10 on the validation part.
`coterie reproduce fpl` makes the paper's tables and figures. Finished cells are not run again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import Any, NamedTuple

from tables import OPTIONS, carried_out, of, print_parts, spread

from coterie.algorithms import fpl
from coterie.algorithms.registry import algorithm
from coterie.attacks.replay import Replay
from coterie.core.progress import SILENT
from coterie.engines import select
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.config import Experiment
from coterie.experiments.plan import Method, Plan
from coterie.experiments.preparation import prepare
from coterie.experiments.tuning import Search, tune
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context
from coterie.reproduce.papers.fpl import MODES, PIS, PLUS

P = "P@10"
LEARNING_RATES = (0.005, 0.05, 0.5)
SIZES = (10, 20, 50)
EPOCHS = (10, 20, 30, 40, 50)
TOPOLOGIES = ((200, 100), (300, 100), (600, 200))
TRIALS = {"foursquare-italy": 40, "ml-100k": 20, "ml-1m": 40}
"""Number of trials per method when every method is tuned on its own."""
FINALISTS = {"foursquare-italy": 4, "ml-1m": 4}
"""Number of best trials to retrain with two other seeds; the best mean wins.

Used where the trials are too close to one another for one seed to decide.
"""


class Limit(NamedTuple):
    """How long a trial may train."""

    epochs: int
    rounds: int
    evaluate_every: int
    patience: int

    def of(self, steps: str) -> dict[str, int]:
        """As settings of a method that counts `steps`: epochs, rounds, or nothing."""
        if not steps:
            return {}
        return {
            steps: self.epochs if steps == "epochs" else self.rounds,
            "evaluate_every": self.evaluate_every,
            "patience": self.patience,
        }


LIMITS = {
    # Curves of FPL's modes begin flat on sparse data, hence the long patience.
    "foursquare-italy": Limit(epochs=300, rounds=100, evaluate_every=10, patience=5),
    "ml-100k": Limit(epochs=200, rounds=100, evaluate_every=5, patience=4),
    "ml-1m": Limit(epochs=200, rounds=100, evaluate_every=5, patience=4),
}


# The paper's search


def papers_choice(dataset: str) -> dict[str, Method]:
    """Section 5.3: learning rate and size are tuned for BPR-MF and reused for FPL and FCF.

    Epochs, pi, the number of neighbours and the topology are tuned for each method.
    """
    bpr = papers_choice_of_bpr(dataset)
    rate = bpr.settings["learning_rate"]
    size = bpr.settings["embedding_size"]
    chosen = {"random": Method("random", "random"), "popular": Method("popular", "popular")}
    for name in ("userknn", "itemknn"):
        grid = [
            Method(f"{name} {k}", name, {"neighbours": k, "shrink": 0.0})
            for k in range(10, 101, 10)
        ]
        chosen[name] = best_of(dataset, name, grid)
    autoencoders = [autoencoder(*layers) for layers in TOPOLOGIES]
    chosen["multivae"] = best_of(dataset, "multivae", autoencoders, (50, 100, 200))
    chosen["bpr"] = bpr
    fcf = Method("fcf", "fcf", FCF | {"learning_rate": rate, "embedding_size": size})
    chosen["fcf"] = best_of(dataset, "fcf", [fcf], EPOCHS)
    for mode in MODES:
        grid = [disclosing(mode, rate, size, pi) for pi in PIS]
        chosen[mode] = best_of(dataset, mode, grid, EPOCHS)
    return chosen


def papers_choice_of_bpr(dataset: str) -> Method:
    grid = [pairwise("bpr", rate, size) for rate in LEARNING_RATES for size in SIZES]
    return best_of(dataset, "bpr", grid, EPOCHS)


FCF = {"rounds": 50, "alpha": 1.0, "reg": 1.0, "start_scale": 0.1}


# As the authors' code runs it


def authors_choice(dataset: str, rate: float, size: int) -> dict[str, Method]:
    """The plus modes with the authors' schedule: epochs at pi = 1, used for every pi.

    Table 4 has the same epochs for every pi, too. Learning rate and size are those of BPR-MF.
    """
    return {
        mode: best_of(
            dataset, mode, [with_authors_schedule(mode, rate, size, 1.0)], range(5, 51, 5)
        )
        for mode in PLUS
    }


def with_authors_schedule(mode: str, rate: float, size: int, pi: float) -> Method:
    method = disclosing(mode, rate, size, pi)
    settings = dict(method.settings) | {"schedule": "authors"}
    return method._replace(label=f"{method.label} authors", settings=settings)


def pairwise(name: str, rate: float, size: int) -> Method:
    """Regularisation is a fraction of the learning rate, as in MyMediaLite and the paper."""
    settings = {"learning_rate": rate, "embedding_size": size, "start_scale": 0.1, "epochs": 50}
    settings |= {"reg_user": rate / 20, "reg_positive": rate / 20, "reg_negative": rate / 200}
    settings["reg_bias"] = 0.0
    return Method(f"{name} {rate} {size}", name, settings)


def disclosing(mode: str, rate: float, size: int, pi: float) -> Method:
    return Method(f"{mode} {pi}", mode, pairwise(mode, rate, size).settings | {"disclosure": pi})


def autoencoder(hidden: int, latent: int) -> Method:
    """What the paper does not give is stated: the defaults of a dataset may be tuned ones."""
    settings = {"hidden": hidden, "latent": latent, "epochs": 200, "learning_rate": 0.001}
    settings |= {"beta": 0.2, "dropout": 0.5, "batch_size": 500}
    return Method(f"multivae {hidden}-{latent}", "multivae", settings)


def best_of(dataset: str, label: str, methods: Sequence[Method], at: Sequence[int] = ()) -> Method:
    """The method, and the number of epochs in `at`, with the best precision on validation."""
    settings: dict[str, Any] = {"validation": True, "headline": ["P"]}
    if at:
        settings["evaluate_every"] = at[0]
    plan = Plan(
        datasets=(dataset,),
        methods=tuple(methods),
        settings=settings,
        protocol="holdout",
        part="validation",
    )
    measured = [
        (line[P], outcome.cell.method, line["round"])
        for outcome in carried_out(plan)
        if not outcome.diverged
        for line in outcome.curve
        if not at or line["round"] in at
    ]
    _, method, steps = max(measured, key=lambda each: each[0])
    fields = algorithm(method.algorithm).settings.model_fields
    key = next((key for key in ("epochs", "rounds") if key in fields), None)
    best = dict(method.settings)
    if key and at:
        best[key] = steps
    return Method(label, method.algorithm, best)


# Every method tuned on its own


def own_choice(dataset: str) -> dict[str, Method]:
    """The same number of trials per method, with early stopping and at most 300 epochs."""
    chosen = {"random": Method("random", "random"), "popular": Method("popular", "popular")}
    for name in ("userknn", "itemknn", "multivae", "bpr", "als", "fcf", *MODES):
        chosen[name] = Method(name, name, searched(dataset, name))
    return chosen


def searched(dataset: str, name: str, **fixed: Any) -> dict[str, Any]:
    search = Search(
        name, dataset, "holdout", TRIALS[dataset], finalists=FINALISTS.get(dataset, 0), seeds=2
    )
    fixed = {"headline": ["P"]} | LIMITS[dataset].of(search.steps) | fixed
    found = tune(replace(search, held=fixed), OPTIONS.cells, workers=OPTIONS.workers)
    return dict(found.best.settings)


# The settings that `coterie reproduce fpl` uses


def search(dataset: str, seeds: int) -> dict[str, Any]:
    """Foursquare-Italy: all searches, and epochs by pi. MovieLens: BPR-MF and pFPL+, tuned."""
    if dataset != "foursquare-italy":
        methods = {
            "bpr": searched(dataset, "bpr"),
            "bpr, reg_bias = 0": searched(dataset, "bpr", reg_bias=0.0),
            "pfpl+": searched(dataset, "pfpl+", **LONG),
            "pfpl+, reg_bias = 0": searched(dataset, "pfpl+", reg_bias=0.0, **LONG),
        }
        return {"part": "search", "dataset": dataset, "settings": methods}
    bpr = papers_choice_of_bpr(dataset)
    rate = bpr.settings["learning_rate"]
    size = bpr.settings["embedding_size"]
    epochs: dict[str, dict[float, int]] = {mode: {} for mode in MODES}
    for mode in MODES:
        for pi in PIS:
            method = disclosing(mode, rate, size, pi)
            best = best_of(dataset, mode, [method], range(5, 51, 5))
            epochs[mode][pi] = best.settings["epochs"]
    searches = {
        "paper": papers_choice(dataset),
        "authors": authors_choice(dataset, rate, size),
        "own": own_choice(dataset),
    }
    settings = {
        search: {name: dict(method.settings) for name, method in chosen.items()}
        for search, chosen in searches.items()
    }
    return {"part": "search", "dataset": dataset, "settings": settings | {"epochs by pi": epochs}}


LONG = {"epochs": 400, "evaluate_every": 20, "patience": 5}
"""pFPL+ updates every item once per epoch, so dense data needs more epochs."""


# Section 4.3


def grid(dataset: str, seeds: int) -> dict[str, Any]:
    """Rounds to 95 % of the best precision that any setting reaches in 50 epochs, with pi = 1."""
    bpr = papers_choice_of_bpr(dataset)
    rate = bpr.settings["learning_rate"]
    size = bpr.settings["embedding_size"]
    common = pairwise("pfpl+", rate, size).settings
    methods = []
    for clients in (10, 100, 400, 0):
        for triples in (1, 5, 20, 39, 100):
            label = f"{clients or 'all'} clients, {triples} triples"
            settings = {**common, "users_per_round": clients, "triples": triples}
            methods.append(Method(label, "pfpl+", settings))
    plan = Plan(
        datasets=(dataset,),
        methods=tuple(methods),
        settings={"validation": True, "headline": ["P"], "evaluate_every": 1},
        seeds=tuple(range(seeds)),
        protocol="holdout",
        part="validation",
    )
    outcomes = [outcome for outcome in carried_out(plan) if not outcome.diverged]
    target = 0.95 * max(mean(best_precisions(of(outcomes, m.label))) for m in methods)
    return {
        "part": "grid",
        "dataset": dataset,
        "seeds": seeds,
        "target": target,
        "rounds": {m.label: rounds_to(target, of(outcomes, m.label)) for m in methods},
    }


def best_precisions(outcomes: Sequence[CellResult]) -> list[float]:
    """The best precision of every seed."""
    return [max(line[P] for line in outcome.curve) for outcome in outcomes]


def rounds_to(target: float, outcomes: Sequence[CellResult]) -> dict[str, Any]:
    per_epoch = rounds_per_epoch(outcomes[0].cell.experiment)
    reached = [
        next((line["round"] * per_epoch for line in outcome.curve if line[P] >= target), None)
        for outcome in outcomes
    ]
    return {
        "rounds": reached,
        "rounds per epoch": per_epoch,
        "best": spread(best_precisions(outcomes)),
    }


def rounds_per_epoch(experiment: Experiment) -> int:
    ready = prepare(experiment, None, SILENT)
    training = ready.parts.for_tuning().training()
    return fpl.rounds_an_epoch(trainer.world_of(training, experiment.settings, 0))


# Disclosure and speed


def attackers(dataset: str, seeds: int) -> dict[str, Any]:
    """[precision, recall] of every attacker, and of as many claims about popular items."""
    by_pi = {
        f"pi = {pi}": attack("pfpl+", dataset, (10, 100), disclosure=pi) for pi in (0, 0.1, 0.5, 1)
    }
    fcf = attack("fcf", dataset, (1,))
    return {"part": "attackers", "dataset": dataset, "pfpl+": by_pi, "fcf": fcf}


def attack(name: str, dataset: str, after: Sequence[int], **settings: Any) -> dict[str, Any]:
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
        for k in replay.play(after, SILENT)
    }


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Median seconds of an epoch: of 20 epochs for pFPL+, of two for the other modes."""
    values = {"algorithm": "pfpl+", "dataset": dataset, "protocol": "holdout"}
    ready = prepare(Experiment.of(values), None, SILENT)
    seconds = {}
    for mode in MODES:
        chosen = algorithm(mode)
        assert isinstance(chosen.train, Federation)
        settings = chosen.settings.of({"embedding_size": 50})
        trainer = select.trainer(chosen.train, ready.training, settings, Context(0, SILENT))
        state, _ = trainer.start()
        times = []
        for n in range(1, 24 if mode == "pfpl+" else 6):
            began = time.perf_counter()
            state, _ = trainer.step(state, n)
            times.append(time.perf_counter() - began)
        seconds[mode] = round(statistics.median(times[3:]), 4)
    return {
        "part": "speed",
        "dataset": dataset,
        "seconds per epoch": seconds,
        "bar": {"pfpl+": 0.04},
    }


PARTS = {"search": search, "grid": grid, "attackers": attackers, "speed": speed}


if __name__ == "__main__":
    print_parts(__doc__, PARTS, "foursquare-italy")
