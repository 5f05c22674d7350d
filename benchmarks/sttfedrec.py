"""STTFedRec's experiments (Section 4 of the paper) on our side of the comparison. Prints one JSON object per part.

    python benchmarks/sttfedrec.py table2 --seeds 3
    python benchmarks/sttfedrec.py table2 rho cohort --datasets watson-articles --seeds 3
    python benchmarks/sttfedrec.py table3 precision speed formulas --datasets ml-1m watson-articles

    table2      AUC, P@10 and NDCG@10 of all systems, with the paper's settings and with every method tuned for itself, beside what is
                merely popular; paired tests of the split against the naive federation
    table3      what a device computes and sends in a round and to infer, naive and split, measured on real messages
    formulas    Section 4.3's time and space beside what is measured, and what the formulas leave out
    rho         AUC and NDCG by the share of negatives (Figure 4)
    cohort      AUC by round for K = 25, 50, 100, 200 (Figures 5 and 6)
    precision   what float16 and int8 vectors cost in accuracy
    speed       a round of 50 devices in simulation, and of 200 on the CPU and on a GPU where there is one

MovieLens-1M is its 20-core, as the paper's counts are. Settings are chosen on validation. Towers are trained on a GPU where there is one
(table3 and speed time the CPU). Cells that were run before are not run again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tables import OPTIONS, carried_out, of, print_parts, spread, tests

from coterie import rounds
from coterie.algorithm import Context
from coterie.config import Experiment
from coterie.errors import ConfigError
from coterie.evaluate.ranking import best_items
from coterie.experiment import Prepared, prepare
from coterie.federation import Exchange, Federation, Histories, World
from coterie.learners.batched import find_device
from coterie.models.directions import Directions
from coterie.plan import Method, Outcome, Plan
from coterie.progress import SILENT
from coterie.registry import algorithm
from coterie.runtime.local import LocalEngine
from coterie.runtime.transcript import DEVICES, Transcript
from coterie.runtime.wire import message_size, reply_sizes
from coterie.towers.learning import Readers
from coterie.tuning import Search, tune

METRICS = ("AUC", "P@10", "NDCG@10")
TOWERS = ("dssm", "clsm")
DATA = {"ml-1m": {"core": 20}, "watson-articles": {"inputs": 1900}, "ml-100k": {}}
K = {"ml-1m": 50, "ml-100k": 50, "watson-articles": 150}
ROUNDS = {"ml-1m": 1500, "ml-100k": 1500, "watson-articles": 1000}
LOOKS = {"ml-1m": 2, "ml-100k": 5, "watson-articles": 25}
"""Epochs from one look at validation to the next: a hundred steps or two, as with the federations."""
PAPER = {  # Table 2: AUC, P@10, nDCG@10; Adressa, which the articles stand in for
    "ml-1m": {
        "dssm": (0.7855, 0.3622, 0.3406), "clsm": (0.8011, 0.3820, 0.3527), "fcf": (0.7356, 0.3015, 0.2585),
        "fedmvmf": (0.7475, 0.3207, 0.2699), "fl-dssm": (0.6934, 0.2766, 0.2286), "fl-clsm": (0.7353, 0.3117, 0.2533),
        "sttfedrec-dssm": (0.6905, 0.2704, 0.2261), "sttfedrec-clsm": (0.7350, 0.3115, 0.2537),
    },
    "watson-articles": {
        "dssm": (0.6861, 0.3411, 0.3456), "clsm": (0.7039, 0.3514, 0.3586), "fcf": (0.5449, 0.2533, 0.2352),
        "fedmvmf": (0.6099, 0.2828, 0.2591), "fl-dssm": (0.6637, 0.3120, 0.2919), "fl-clsm": (0.6899, 0.3317, 0.3036),
        "sttfedrec-dssm": (0.6654, 0.3123, 0.2922), "sttfedrec-clsm": (0.6910, 0.3325, 0.3063),
    },
}  # fmt: skip
TABLE3 = {  # ms and MB: device training, inferring time, training and inferring communication
    "ml-1m": {
        "fl-dssm": (1170, 4090, 5.42, 0.14), "sttfedrec-dssm": (228, 55, 2.71, 0.05),
        "fl-clsm": (4800, 23860, 4.70, 0.14), "sttfedrec-clsm": (889, 55, 2.35, 0.05),
    },
    "watson-articles": {
        "fl-dssm": (2570, 19120, 8.68, 557.80), "sttfedrec-dssm": (447, 250, 4.34, 7.19),
        "fl-clsm": (10930, 79100, 17.04, 556.80), "sttfedrec-clsm": (1560, 250, 8.52, 7.19),
    },
}  # fmt: skip
TRIALS = 20


# Methods


def federated(name: str, dataset: str, **more: Any) -> Method:
    """With the paper's settings: rate 1e-4, T = 10, rho = 0.9, dropout 0.2, and its decay read gently."""
    settings = {"users_a_round": K[dataset], "rounds": ROUNDS[dataset], "device": device()}
    return Method(name, name, settings | of_inputs(dataset) | more)


def centralised(name: str, dataset: str, **more: Any) -> Method:
    """As many visits to people as the federations make."""
    settings = {"epochs": epochs(dataset), "batch_size": K[dataset], "device": device()}
    return Method(name, name, settings | of_inputs(dataset) | more)


def device() -> str:
    try:
        return find_device("cuda").type
    except ConfigError:
        return "cpu"


def epochs(dataset: str) -> int:
    users = {"ml-1m": 6022, "ml-100k": 943, "watson-articles": 602}[dataset]
    return -(-ROUNDS[dataset] * K[dataset] // users)


def of_inputs(dataset: str) -> dict[str, Any]:
    return {key: value for key, value in DATA[dataset].items() if key == "inputs"}


def of_data(dataset: str) -> dict[str, Any]:
    return {key: value for key, value in DATA[dataset].items() if key != "inputs"}


def as_published(dataset: str) -> list[Method]:
    towers = [federated(f"{kind}-{tower}", dataset) for kind in ("fl", "sttfedrec") for tower in TOWERS]
    return [
        Method("popular", "popular"), *(centralised(tower, dataset) for tower in TOWERS), Method("fcf", "fcf"),
        Method("fedmvmf", "fedmvmf"), *towers,
    ]  # fmt: skip


def searched(dataset: str) -> list[Method]:
    """As many trials for everybody; the naive federation takes what the split one found, being the same."""
    found = {name: best(name, dataset) for name in (*TOWERS, "fcf", "fedmvmf", "sttfedrec-dssm", "sttfedrec-clsm")}
    found |= {f"fl-{tower}": found[f"sttfedrec-{tower}"] for tower in TOWERS}
    return [Method("popular", "popular"), *(Method(name, name, settings) for name, settings in found.items())]


def best(name: str, dataset: str) -> dict[str, Any]:
    held = {"headline": ["AUC"]} | DATA[dataset] | limits(name, dataset)
    if "inputs" not in algorithm(name).settings.model_fields:
        held.pop("inputs", None)
    return dict(tune(Search(name, dataset, "holdout-10", TRIALS, held=held), OPTIONS.cells).best.settings)


def limits(name: str, dataset: str) -> dict[str, Any]:
    if name in TOWERS:
        return dict(centralised(name, dataset).settings) | {"evaluate_every": LOOKS[dataset], "patience": 5}
    if name in ("fcf", "fedmvmf"):
        return {"rounds": 100, "evaluate_every": 5, "patience": 4}
    return dict(federated(name, dataset).settings) | {"evaluate_every": 100, "patience": 5}


# Table 2


def table2(dataset: str, seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"part": "table2", "dataset": dataset, "seeds": seeds, "paper": PAPER.get(dataset, {})}
    for label, methods in (("paper's settings", as_published(dataset)), ("tuned", searched(dataset))):
        outcomes = judged(dataset, methods, seeds)
        found[label] = {
            "settings": {m.label: dict(m.settings) for m in methods},
            "rows": {m.label: row(of(outcomes, m.label)) for m in methods},
            "split against naive": {
                tower: tests(outcomes, f"sttfedrec-{tower}", [f"fl-{tower}"], METRICS) for tower in TOWERS
            },
        }
    return found


def judged(dataset: str, methods: Sequence[Method], seeds: int, every: int = 10_000) -> list[Outcome]:
    shared = {"evaluate_every": every} | of_data(dataset)
    return carried_out(Plan((dataset,), tuple(methods), shared, tuple(range(seeds)), "holdout-10"))


def row(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    results = [outcome.result for outcome in outcomes]
    shown: dict[str, Any] = {m: spread([r["metrics"][m] for r in results]) for m in METRICS}
    shown |= {f"{m} full": spread([r["full"][m] for r in results]) for m in METRICS}
    return shown | {"seconds": spread([r["seconds"] for r in results]), "rounds": results[0]["rounds"]}


# Figures 4 to 6


def rho(dataset: str, seeds: int) -> dict[str, Any]:
    shares = (0.5, 0.6, 0.7, 0.8, 0.9)
    methods = [
        replace_label(federated(f"sttfedrec-{tower}", dataset, negative_share=share), f"{tower} {share}")
        for tower in TOWERS
        for share in shares
    ]
    outcomes = judged(dataset, methods, seeds)
    return {
        "part": "rho", "dataset": dataset, "seeds": seeds,
        "rows": {m.label: row(of(outcomes, m.label)) for m in methods},
    }  # fmt: skip


def cohort(dataset: str, seeds: int) -> dict[str, Any]:
    methods = [
        replace_label(federated(f"sttfedrec-{tower}", dataset, users_a_round=size), f"{tower} {size}")
        for tower in TOWERS
        for size in (25, 50, 100, 200)
    ]
    outcomes = judged(dataset, methods, seeds, every=ROUNDS[dataset] // 20)
    curves = {
        m.label: [[line["round"], *(round(line[k], 4) for k in METRICS)] for line in of(outcomes, m.label)[0].curve]
        for m in methods
    }
    rows = {m.label: row(of(outcomes, m.label)) for m in methods}
    return {"part": "cohort", "dataset": dataset, "seeds": seeds, "rows": rows, "curves": curves}


def replace_label(method: Method, label: str) -> Method:
    return method._replace(label=label)


# Table 3: what a device does


def table3(dataset: str, seeds: int) -> dict[str, Any]:
    measured = {
        f"{kind}-{tower}": on_a_device(f"{kind}-{tower}", dataset) for tower in TOWERS for kind in ("fl", "sttfedrec")
    }
    return {
        "part": "table3", "dataset": dataset, "paper": TABLE3.get(dataset, {}), "measured": measured,
        "improvement": {tower: improved(measured[f"fl-{tower}"], measured[f"sttfedrec-{tower}"]) for tower in TOWERS},
    }  # fmt: skip


def improved(naive: dict[str, float], split: dict[str, float]) -> dict[str, float]:
    return {key: round(naive[key] / split[key], 2) for key in naive if split[key]}


def on_a_device(name: str, dataset: str, devices: int = 20) -> dict[str, float]:
    """One device at a time, on one thread: what the messages of a round make it compute, and what they weigh."""
    ready, federation, world, engine = prepared(name, dataset)
    state, node = federation.start(world), engine.nodes[0]
    cohort = federation.sample(world, state, 0)[:devices]
    times, up, down, alone = [], 0.0, 0.0, np.arange(1)
    for exchange in federation.exchanges:
        if not isinstance(exchange, Exchange):
            state = rounds.pass_on(world, exchange, state, 0, engine)
            continue
        message = rounds.asked(world, exchange, state, cohort, 0, engine)
        for k in range(len(cohort)):
            one = message.to(np.array([k]))
            began = time.perf_counter()
            made = exchange.answer(engine.world, one, node)
            times.append((k, time.perf_counter() - began))
            assert not isinstance(made, tuple)
            up += float(reply_sizes(made).sum()) / devices
            down += float(message_size(one)) / devices
        state, _ = rounds.play(world, exchange, state, cohort, 0, engine)
    each = [sum(seconds for k, seconds in times if k == device) for device in range(devices)]
    infer, fetched = inference(name, ready, federation, world, state, node)
    training, inferring = statistics.median(each) * 1e3, infer * 1e3
    return {
        "training ms": round(training, 3), "inferring ms": round(inferring, 3), "total ms": round(training + inferring, 3),
        "training MB": (up + down) / 1e6, "inferring MB": fetched / 1e6, "total MB": (up + down + fetched) / 1e6,
        "up MB": up / 1e6, "down MB": down / 1e6, "devices": float(len(alone) * devices),
    }  # fmt: skip


def inference(
    name: str, ready: Prepared, federation: Federation, world: World, state: Any, node: Histories
) -> tuple[float, float]:
    """Seconds from what a device has to its best ten, and the bytes that it had to get for that."""
    model = federation.model(world, state)
    assert isinstance(model, Directions)
    assert federation.serve is not None
    me = Directions(federation.serve(world, state, node)["user_rows"][:1], model.item_rows, model.units)
    raw = item_bytes(ready)
    towers, content = Readers(world.settings), world.content
    assert content is not None
    assert content.items is not None

    def naive() -> Any:
        rows = towers.directions(state.item_tower, content.items, content)  # type: ignore[arg-type]
        return best_items(Directions(me.user_rows, rows, me.units).score(np.zeros(1, np.int32))[0], NOTHING, 10)

    def split() -> Any:
        return best_items(me.score(np.zeros(1, np.int32))[0], NOTHING, 10)

    return median_seconds(naive if name.startswith("fl-") else split), raw if name.startswith("fl-") else model.download


NOTHING = np.empty(0, np.int32)


def item_bytes(ready: Prepared) -> float:
    """All that there is to read about items, as UTF-8."""
    train = ready.parts.train
    parts = [train.item_texts, train.item_bodies]
    told = [str(text) for part in parts if part is not None for text in part]
    told += [" ".join(kinds) for kinds in train.item_categories] if train.item_categories is not None else []
    return float(sum(len(text.encode()) for text in told))


def median_seconds(work: Callable[[], Any], times: int = 7) -> float:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def prepared(name: str, dataset: str, **more: Any) -> tuple[Prepared, Federation, World, LocalEngine]:
    """A federation that is ready to begin, on the CPU unless something else is said."""
    method = federated(name, dataset, **{"device": "cpu"} | more)
    values = (
        {"algorithm": name, "dataset": dataset, "protocol": "holdout-10"} | of_data(dataset) | dict(method.settings)
    )
    ready = prepare(Experiment.of(values), None, SILENT)
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    world = rounds.world_of(ready.training, ready.experiment.settings, 0, federation)
    return ready, federation, world, LocalEngine.over(world, ready.training, 1)


def formulas(dataset: str, seeds: int) -> dict[str, Any]:
    """Section 4.3, in multiplications and in megabytes of float32, beside the bytes of a round by who says what to whom."""
    inputs, T, layers = of_inputs(dataset).get("inputs", 1100), 10, (256, 128, 128)
    above = sum(a * b for a, b in pairwise(layers))
    naive, split = (inputs + inputs * T) * layers[0] + above * (1 + T), inputs * layers[0] + above
    space = 2 * ((inputs + inputs) * layers[0] + 2 * above), 2 * (inputs * layers[0] + above)
    return {
        "part": "formulas", "dataset": dataset,
        "time": {"fl-dssm": naive, "sttfedrec-dssm": split, "ratio": round(naive / split, 2)},
        "MB": {"fl-dssm": 4 * space[0] / 1e6, "sttfedrec-dssm": 4 * space[1] / 1e6, "ratio": round(space[0] / space[1], 2)},
        "left out": "biases, requests, items' vectors, slopes at the cut layer, headers",
        "measured bytes of a round and device": {name: said(name, dataset) for name in ("fl-dssm", "sttfedrec-dssm")},
    }  # fmt: skip


def said(name: str, dataset: str) -> dict[str, float]:
    _, federation, world, engine = prepared(name, dataset)
    heard = Transcript(engine)
    work = rounds.trainer_on(federation, world, heard, Context(0, SILENT))
    work.step(work.start()[0], 1)
    total: dict[str, float] = {}
    for line in heard.lines:
        for key, array in line.arrays.items():
            name = f"{line.sender} to {line.receiver}: {key}"
            shared = line.sender != DEVICES and key in ("tower", "item_tower")  # the same for everybody
            total[name] = total.get(name, 0) + array.nbytes / (1 if shared else K[dataset])
    return {name: round(size, 1) for name, size in total.items() if size}


# The rest


def precision(dataset: str, seeds: int) -> dict[str, Any]:
    kinds = ("float32", "float16", "int8")
    methods = [replace_label(federated("sttfedrec-dssm", dataset, precision=kind), kind) for kind in kinds]
    outcomes = judged(dataset, methods, seeds)
    rows = {
        m.label: row(of(outcomes, m.label)) | {"download": of(outcomes, m.label)[0].result["download"]} for m in methods
    }
    return {"part": "precision", "dataset": dataset, "seeds": seeds, "rows": rows}


def speed(dataset: str, seeds: int) -> dict[str, Any]:
    """Milliseconds of a round, median of 20: of 50 devices (150 on the articles), and of 200 on the CPU and on a GPU if there is one."""
    names = [f"{kind}-{tower}" for kind in ("fl", "sttfedrec") for tower in TOWERS]
    found: dict[str, Any] = {
        "part": "speed", "dataset": dataset, "ms a round": {name: round_ms(name, dataset) for name in names},
        "bar": {"sttfedrec-dssm": 50, "sttfedrec-clsm": 250},
        "ms a round of 200": {name: round_ms(name, dataset, users_a_round=200) for name in names},
    }  # fmt: skip
    if device() == "cpu":
        return found
    import torch

    on_gpu = {name: round_ms(name, dataset, users_a_round=200, device="cuda") for name in names}
    times = {name: round(found["ms a round of 200"][name] / ms, 1) for name, ms in on_gpu.items()}
    return found | {"gpu": torch.cuda.get_device_name(), "ms a round of 200 on the gpu": on_gpu, "times as fast": times}


def round_ms(name: str, dataset: str, **more: Any) -> float:
    _, federation, world, engine = prepared(name, dataset, **more)
    work = rounds.trainer_on(federation, world, engine, Context(0, SILENT))
    state, times = work.start()[0], []
    for n in range(1, 24):
        began = time.perf_counter()
        state, _ = work.step(state, n)
        times.append(time.perf_counter() - began)
    return round(statistics.median(times[3:]) * 1e3, 2)


PARTS = {
    "table2": table2, "table3": table3, "formulas": formulas, "rho": rho, "cohort": cohort, "precision": precision,
    "speed": speed,
}  # fmt: skip


if __name__ == "__main__":
    print_parts(__doc__, PARTS, "ml-1m")
