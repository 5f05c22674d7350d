"""FPL's experiments (Sections 5 and 6 of the paper) on our side of the comparison. Prints one JSON object per part.

    python benchmarks/fpl.py tables --seeds 3
    python benchmarks/fpl.py sweep --seeds 3
    python benchmarks/fpl.py grid attackers speed
    python benchmarks/fpl.py movielens --datasets ml-100k ml-1m --seeds 3

    tables      the eleven rows of Tables 2 and 3 (and of Table 6) with the paper's search, and with every method tuned for itself;
                paired tests, and what each sentence of Sections 6.1 to 6.4 says beside what was found
    sweep       the four modes at pi = 0, 0.1 ... 1: accuracy, coverage, Gini, bias, epochs to the best, costs (Table 4) and which modes
                nobody beats in both
    grid        rounds to a target over clients a round and triples a client (Section 4.3)
    movielens   pFPL+ at the pi that validation chose, against BPR-MF
    attackers   what a curious server learns at pi = 0, 0.1, 0.5, 1 after 10 and 100 rounds
    speed       an epoch of pFPL+ with 50 factors

On Foursquare-Italy unless datasets are named. Everything is chosen on validation, by precision at ten. Cells that were run before are not run again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean
from typing import Any

from tables import OPTIONS, carried_out, of, print_parts, spread, tests

from coterie import rounds
from coterie.algorithm import Context
from coterie.algorithms import fpl
from coterie.config import Experiment
from coterie.disclosure.replay import Replay
from coterie.experiment import prepare
from coterie.plan import Method, Outcome, Plan
from coterie.progress import SILENT
from coterie.registry import algorithm
from coterie.runtime.local import LocalEngine
from coterie.tuning import Search, tune

P, R, F1, IC, GINI = "P@10", "R@10", "F1@10", "IC@10", "Gini@10"
MODES = ("sfpl", "sfpl+", "pfpl", "pfpl+")
PIS = tuple(n / 10 for n in range(11))
PAPER = {  # Tables 2 and 3, Italy: P@10, R@10, IC@10, Gini@10
    "random": (0.00030, 0.00029, 10478, 0.28914), "popular": (0.04634, 0.05506, 19, 0.00035),
    "userknn": (0.06881, 0.07833, 577, 0.00282), "itemknn": (0.04663, 0.05356, 3241, 0.03293),
    "multivae": (0.10421, 0.21324, 165, 0.02336), "bpr": (0.04560, 0.05458, 19, 0.00036),
    "fcf": (0.03126, 0.03708, 403, 0.00158), "sfpl": (0.04701, 0.05600, 18, 0.00036),
    "sfpl+": (0.05595, 0.06229, 932, 0.00789), "pfpl": (0.04642, 0.05465, 96, 0.00056),
    "pfpl+": (0.05565, 0.06291, 936, 0.00725),
}  # fmt: skip
BEST_PI = {"sfpl": 0.4, "sfpl+": 0.2, "pfpl": 1.0, "pfpl+": 0.1}
RATES, SIZES, EPOCHS = (0.005, 0.05, 0.5), (10, 20, 50), (10, 20, 30, 40, 50)
TOPOLOGIES = ((200, 100), (300, 100), (600, 200))
TRIALS = {"foursquare-italy": 20, "ml-100k": 20, "ml-1m": 40}
"""Of every trained method when each is tuned for itself."""
FINALISTS = {"ml-1m": 4}
"""So many of the best trials are trained again with two other seeds where trials are close to one another; the best mean wins."""


# What the paper's search chooses


def papers_choice(dataset: str) -> dict[str, Method]:
    """Section 5.3: rate and size by BPR-MF, and handed on to FPL and FCF; epochs, pi, k and topology for each."""
    bpr = papers_choice_of_bpr(dataset)
    rate, size = bpr.settings["learning_rate"], bpr.settings["embedding_size"]
    chosen = {"random": Method("random", "random"), "popular": Method("popular", "popular")}
    for name in ("userknn", "itemknn"):
        chosen[name] = best_of(
            dataset, name, [Method(f"{name} {k}", name, {"neighbours": k, "shrink": 0.0}) for k in range(10, 101, 10)]
        )
    chosen["multivae"] = best_of(dataset, "multivae", [autoencoder(*layers) for layers in TOPOLOGIES], (50, 100, 200))
    chosen["bpr"] = bpr
    chosen["fcf"] = best_of(
        dataset, "fcf", [Method("fcf", "fcf", FCF | {"learning_rate": rate, "embedding_size": size})], EPOCHS
    )
    for mode in MODES:
        chosen[mode] = best_of(dataset, mode, [disclosing(mode, rate, size, pi) for pi in PIS], EPOCHS)
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
        {"learning_rate": rate, "embedding_size": size, "start_scale": 0.1, "epochs": 50} | reg | more,
    )


def disclosing(mode: str, rate: float, size: int, pi: float) -> Method:
    return Method(f"{mode} {pi}", mode, pairwise(mode, rate, size).settings | {"disclosure": pi})


def autoencoder(hidden: int, latent: int) -> Method:
    return Method(f"multivae {hidden}-{latent}", "multivae", {"hidden": hidden, "latent": latent, "epochs": 200})


def best_of(dataset: str, label: str, methods: Sequence[Method], at: Sequence[int] = ()) -> Method:
    """The method, and the number of epochs among some, with the best precision on validation."""
    every = {"evaluate_every": at[0]} if at else {}
    plan = Plan(
        (dataset,), tuple(methods), {"validation": True, "headline": ["P"]} | every, (0,), "holdout", part="validation"
    )
    found = [
        (line[P], outcome.cell.method, line["round"])
        for outcome in carried_out(plan)
        if not outcome.diverged
        for line in outcome.curve
        if not at or line["round"] in at
    ]
    _, method, steps = max(found, key=lambda each: each[0])
    key = next((key for key in ("epochs", "rounds") if key in algorithm(method.algorithm).settings.model_fields), None)
    return Method(label, method.algorithm, dict(method.settings) | ({key: steps} if key and at else {}))


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
    search = Search(name, dataset, "holdout", TRIALS[dataset], finalists=FINALISTS.get(dataset, 0), seeds=2)
    held = {"headline": ["P"]} | limits.get(search.steps, {}) | held
    return dict(tune(replace(search, held=held), OPTIONS.cells).best.settings)


# Tables 2, 3 and 6, and the claims about them


def tables(dataset: str, seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "part": "tables",
        "dataset": dataset,
        "seeds": seeds,
        "paper": PAPER,
        "paper's best pi": BEST_PI,
    }
    for label, chosen in (("paper's search", papers_choice(dataset)), ("own search", own_choice(dataset))):
        methods = tuple(chosen.values())
        outcomes = tested(dataset, methods, seeds)
        found[label] = {
            "settings": {m.label: dict(m.settings) for m in methods},
            "rows": {m.label: row(of(outcomes, m.label)) for m in methods},
            "tests": {
                mode: tests(outcomes, mode, [m.label for m in methods if m.label not in (mode, "random")], (P, R))
                for mode in MODES
            },
        }
    return found


def tested(dataset: str, methods: Sequence[Method], seeds: int) -> list[Outcome]:
    return carried_out(Plan((dataset,), tuple(methods), {"evaluate_every": 1000}, tuple(range(seeds)), "holdout"))


def row(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    results = [outcome.result for outcome in outcomes]
    shown: dict[str, Any] = {
        name: fine([r["full"][name] for r in results])
        for name in (P, R, F1, IC, GINI, "UC")
        if name in results[0]["full"]
    }
    shown |= {
        name: fine([r["full"][name] for r in results]) for name in results[0]["full"] if name.startswith("served:")
    }
    if results[0].get("bias"):
        shown["bias"] = disparity(results)
    if "vectors" in results[0]:
        shown["vectors"] = results[0]["vectors"]
    return shown | {
        "seconds": spread([r["seconds"] for r in results]),
        "bytes_up": mean(r["bytes_up"] for r in results),
        "bytes_down": mean(r["bytes_down"] for r in results),
    }


def fine(values: Sequence[float]) -> dict[str, float]:
    """Precision on a large catalogue needs five digits."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": round(mean(values), 5), "sd": round(deviation, 5)}


def disparity(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Bias disparity of every category, averaged over seeds."""
    told = [r["bias"]["categories"] for r in results]
    return {name: round(mean(t[name]["disparity"] for t in told), 3) for name in told[0]}


# pi from 0 to 1


def sweep(dataset: str, seeds: int) -> dict[str, Any]:
    """Rate and size as BPR-MF chose them; epochs by validation for each mode and pi."""
    bpr = papers_choice_of_bpr(dataset)
    rate, size = bpr.settings["learning_rate"], bpr.settings["embedding_size"]
    chosen = {
        (mode, pi): best_of(dataset, f"{mode} {pi}", [disclosing(mode, rate, size, pi)], range(5, 51, 5))
        for mode in MODES
        for pi in PIS
    }
    outcomes = tested(dataset, list(chosen.values()), seeds)
    rows = {
        key: row(of(outcomes, method.label)) | {"epochs": method.settings["epochs"]} for key, method in chosen.items()
    }
    costs = {key: vectors(dataset, method) for key, method in chosen.items()}
    found = {mode: {str(pi): rows[mode, pi] | costs[mode, pi] for pi in PIS} for mode in MODES}
    best = {mode: max(PIS, key=lambda pi: rows[mode, pi][P]["mean"]) for mode in MODES}
    return {
        "part": "sweep",
        "dataset": dataset,
        "seeds": seeds,
        "rate": rate,
        "size": size,
        "modes": found,
        "best pi": best,
        "nobody beats": pareto(
            {mode: (rows[mode, best[mode]][P]["mean"], costs[mode, best[mode]]["TCC"]) for mode in MODES}
        ),
        "against pi = 1": {
            mode: tests(outcomes, f"{mode} {best[mode]}", [f"{mode} 1.0"], (P,)) for mode in MODES if best[mode] != 1
        },
    }


def vectors(dataset: str, method: Method) -> dict[str, float]:
    """CCE, and TCC up to the best epoch, as defined and as Table 4 counts."""
    ready = prepare(
        Experiment.of(
            {"algorithm": method.algorithm, "dataset": dataset, "protocol": "holdout"} | dict(method.settings)
        ),
        None,
        SILENT,
    )
    world = rounds.world_of(ready.training, ready.experiment.settings, 0)
    node, epochs = LocalEngine.over(world, ready.training, 1).nodes[0], method.settings["epochs"]
    CCE, printed = fpl.vectors_an_epoch(world, node), fpl.vectors_an_epoch_as_printed(world, node)
    return {"CCE": CCE, "TCC": CCE * epochs, "TCC as printed": printed * epochs}


def pareto(points: dict[str, tuple[float, float]]) -> list[str]:
    """Those that nobody is at least as precise as for less."""
    return [
        name
        for name, (gain, cost) in points.items()
        if not any(g >= gain and c <= cost and (g, c) != (gain, cost) for g, c in points.values())
    ]


# Section 4.3


def grid(dataset: str, seeds: int) -> dict[str, Any]:
    """Rounds until 95 % of the best precision that any of them reaches within 50 epochs, with pi = 1."""
    bpr = papers_choice_of_bpr(dataset)
    rate, size = bpr.settings["learning_rate"], bpr.settings["embedding_size"]
    ways = [(clients, triples) for clients in (10, 100, 400, 0) for triples in (1, 5, 20, 39, 100)]
    methods = [
        Method(
            f"{clients or 'all'} clients, {triples} triples",
            "pfpl+",
            pairwise("pfpl+", rate, size).settings | {"users_a_round": clients, "triples": triples},
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
    target = 0.95 * max(mean(max(line[P] for line in o.curve) for o in of(outcomes, m.label)) for m in methods)
    return {
        "part": "grid",
        "dataset": dataset,
        "seeds": seeds,
        "target": target,
        "rounds": {m.label: reached(of(outcomes, m.label), target, dataset) for m in methods},
    }


def reached(outcomes: Sequence[Outcome], target: float, dataset: str) -> dict[str, Any]:
    each = rounds_in_an_epoch(outcomes[0].cell.experiment)
    when = [next((line["round"] * each for line in o.curve if line[P] >= target), None) for o in outcomes]
    return {
        "rounds": when,
        "rounds an epoch": each,
        "best": spread([max(line[P] for line in o.curve) for o in outcomes]),
    }


def rounds_in_an_epoch(experiment: Experiment) -> int:
    ready = prepare(experiment, None, SILENT)
    return fpl.rounds_an_epoch(rounds.world_of(ready.parts.for_tuning().training(), experiment.settings, 0))


# MovieLens


def movielens(dataset: str, seeds: int) -> dict[str, Any]:
    """Both tuned on validation with as many trials."""
    methods = [
        Method("bpr", "bpr", searched(dataset, "bpr")),
        Method("pfpl+", "pfpl+", searched(dataset, "pfpl+", **LONG)),
    ]
    outcomes = tested(dataset, methods, seeds)
    shares = {
        metric: [
            o.result["full"][metric] / b.result["full"][metric]
            for o, b in zip(of(outcomes, "pfpl+"), of(outcomes, "bpr"), strict=True)
        ]
        for metric in (P, R)
    }
    return {
        "part": "movielens",
        "dataset": dataset,
        "seeds": seeds,
        "settings": {m.label: dict(m.settings) for m in methods},
        "rows": {m.label: row(of(outcomes, m.label)) for m in methods},
        "share of BPR-MF": {
            metric: spread(values) | {"bar": 0.98, "holds": mean(values) >= 0.98} for metric, values in shares.items()
        },
        "tests": tests(outcomes, "pfpl+", ["bpr"], (P, R)),
    }


LONG = {"epochs": 400, "evaluate_every": 20, "patience": 5}
"""One round an epoch moves every item once: pFPL+ needs more of them on dense data."""


# What it costs and what it gives away


def attackers(dataset: str, seeds: int) -> dict[str, Any]:
    """[precision, recall] of every attacker, and of as many claims about what is popular, for pFPL+ and FCF."""
    found: dict[str, Any] = {
        f"pi = {pi}": overheard("pfpl+", dataset, (10, 100), disclosure=pi) for pi in (0, 0.1, 0.5, 1)
    }
    return {"part": "attackers", "dataset": dataset, "pfpl+": found, "fcf": overheard("fcf", dataset, (1,))}


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
    ready = prepare(Experiment.of({"algorithm": "pfpl+", "dataset": dataset, "protocol": "holdout"}), None, SILENT)
    found = {}
    for mode in MODES:
        chosen = algorithm(mode)
        work = rounds.trainer(
            chosen.train, ready.training, chosen.settings.of({"embedding_size": 50}), Context(0, SILENT)
        )  # type: ignore[arg-type]
        state, _ = work.start()
        times = []
        for n in range(1, 24 if mode == "pfpl+" else 6):
            began = time.perf_counter()
            state, _ = work.step(state, n)
            times.append(time.perf_counter() - began)
        found[mode] = round(statistics.median(times[3:]), 4)
    return {"part": "speed", "dataset": dataset, "seconds an epoch": found, "bar": {"pfpl+": 0.04}}


PARTS = {"tables": tables, "sweep": sweep, "grid": grid, "movielens": movielens, "attackers": attackers, "speed": speed}


if __name__ == "__main__":
    print_parts(__doc__, PARTS, "foursquare-italy")
