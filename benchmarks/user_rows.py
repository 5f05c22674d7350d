"""FedRecon and FedMF by the protocols of their authors' code.

    python benchmarks/user_rows.py fedrecon --datasets ml-1m --seeds 3
    python benchmarks/user_rows.py fedmf --datasets ml-latest-small/ratings.csv --seeds 1
    python benchmarks/user_rows.py virtual --datasets ml-100k --seeds 1

`fedrecon`: 80 % of the users train, 10 % are tested; none of the tested ones was in training. At
most 300 ratings of a user count. Half the ratings of a tested user reconstruct its row, and the
others are predicted: RMSE, and the share of predictions that are off by 0.5 at most.
`fedmf`: the authors' data, which is in their repository: 40 items, and those of the first 10 users
with 5 ratings of them. The last three ratings of a user are tested.
`virtual`: FedMF's defaults with virtual ratings, the newest 20 % of every history held out: RMSE,
bytes of an update, and the share of the items it names that the user rated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from tables import print_parts, spread

import coterie
from coterie.algorithms import fedmf, fedrecon
from coterie.algorithms.algorithm import Algorithm
from coterie.core import streams
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.data.training_set import TrainingSet
from coterie.engines.local import LocalEngine
from coterie.federated.federation import Federation
from coterie.federated.trainer import Context, federated_trainer, world_of
from coterie.models.factors import Factors
from coterie.types import Bools, Doubles, Rows

MOST_RATINGS = 300
CLIENTS_PER_ROUND = 100
AUTHORS: dict[str, Any] = {
    # The authors' learning rates are half of these: their loss is not halved.
    "learning_rate": 1.0,
    "reconstruction_rate": 0.2,
    "rounds": 500,
    "embedding_size": 50,
    "biases": False,
    "support_split": "fixed",
    "reconstruction_epochs": 5,
    "reconstruction_steps": 50,
    "update_steps": 50,
    "user_start": "random",
    # Keras draws embeddings uniformly from -0.05 to 0.05.
    "start_scale": 0.05 / 3**0.5,
    "reg": 0.0,
    "average": "all",
    "weights": "samples",
}
READINGS: Mapping[str, Mapping[str, Any]] = {
    "authors": AUTHORS,
    "authors, average=touched": AUTHORS | {"average": "touched", "learning_rate": 0.1},
    "authors, support_split=anew": AUTHORS | {"support_split": "anew"},
    "authors, support_split=none": AUTHORS | {"support_split": "none"},
    "authors, biases": AUTHORS | {"biases": True},
    "defaults": {"rounds": 500},
}
RATINGS: Mapping[str, Any] = {
    "feedback": "explicit",
    "protocol": "holdout",
    "headline": "RMSE",
    "evaluate_every": 1_000_000,
}
VIRTUAL: Mapping[str, Mapping[str, Any]] = {
    "none": {"virtual": 0},
    "1, average": {"virtual": 1},
    "3, average": {"virtual": 3},
    "3, hybrid": {"virtual": 3, "virtual_ratings": "hybrid"},
    "3, average, anew": {"virtual": 3, "virtual_items": "anew"},
}


# FedRecon


def fedrecon_on_new_users(dataset: str, seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"part": "fedrecon", "dataset": dataset, "seeds": seeds}
    for label, settings in READINGS.items():
        rows = [new_user_errors(dataset, seed, settings) for seed in range(seeds)]
        found[label] = {key: spread([row[key] for row in rows]) for key in rows[0]}
    return found


def new_user_errors(dataset: str, seed: int, settings: Mapping[str, Any]) -> dict[str, float]:
    data = coterie.load(dataset, feedback="explicit")
    data = at_most(data, MOST_RATINGS, seed)
    group = streams.uniform(streams.keys(seed, "groups", last=np.arange(data.n_users)))
    training = of_users(data, group < 0.8)
    share = CLIENTS_PER_ROUND / int((training.positives.counts > 0).sum())
    chosen = fedrecon.FedRecon.of({"participation": share, **settings})
    state, known = trained(fedrecon.ALGORITHM, training, chosen, seed)
    tested = of_users(data, group >= 0.9)
    keys = streams.keys(seed, "halves", last=np.arange(data.n_users))
    support, query = fedrecon.halves(tested, keys)
    rows = fedrecon.reconstruct(support, state.global_rows, known, keys)
    return errors(fedrecon_predictions(rows, state.global_rows, query, known), query)


def fedrecon_predictions(
    rows: np.ndarray, item_rows: np.ndarray, query: TrainingSet, settings: fedrecon.FedRecon
) -> Doubles:
    d = settings.embedding_size
    p = rows[query.users].astype(np.float64)
    q = item_rows[query.positives.items].astype(np.float64)
    predicted: Doubles = (p[:, :d] * q[:, :d]).sum(axis=1)
    return predicted + (p[:, d] + q[:, d] if settings.biases else 0)


def errors(predicted: Doubles, query: TrainingSet) -> dict[str, float]:
    assert query.ratings is not None
    off = predicted - query.ratings
    return {"RMSE": float(np.sqrt((off**2).mean())), "accuracy": float((abs(off) <= 0.5).mean())}


def at_most(data: Interactions, most: int, seed: int) -> Interactions:
    """That many ratings of every user, at random."""
    drawn = streams.uniform(streams.keys(seed, "ratings", last=np.arange(len(data))))
    order = np.lexsort((drawn, data.users))
    counts = np.bincount(data.users)
    place = np.arange(len(data)) - np.repeat(np.cumsum(counts) - counts, counts)
    kept = np.zeros(len(data), bool)
    kept[order[place < most]] = True
    return data.select(kept)


def of_users(data: Interactions, chosen: Bools) -> TrainingSet:
    """The ratings of some users. The others have none."""
    mine = data.select(chosen[data.users])
    assert mine.ratings is not None
    rows = Rows.build(mine.users, mine.items, data.n_users)
    order = np.lexsort((mine.items, mine.users))
    return TrainingSet(data.n_users, data.n_items, rows, rows, mine.ratings[order])


def trained(
    algorithm: Algorithm, training: TrainingSet, settings: Any, seed: int
) -> tuple[Any, Any]:
    """The last state, and the settings for this data."""
    assert isinstance(algorithm.train, Federation)
    world = world_of(training, settings, seed, algorithm.train)
    engine = LocalEngine.over(world, training, 1)
    work = federated_trainer(algorithm.train, world, engine, Context(seed, SILENT))
    state, _ = work.start()
    for n in range(1, world.settings.n_steps + 1):
        state, _ = work.step(state, n)
    return state, world.settings


# FedMF


def fedmf_on_the_authors_data(path: str, seeds: int) -> dict[str, Any]:
    training, test = authors_data(coterie.load(path, feedback="explicit"))
    found: dict[str, Any] = {
        "part": "fedmf",
        "users": int((training.positives.counts > 0).sum()),
        "training ratings": len(training),
        "tested ratings": len(test),
    }
    authors: dict[str, Any] = {
        "embedding_size": 100,
        "rounds": 175,
        "start": "constant",
        "start_scale": 0.01,
    }
    authors |= {"learning_rate": 0.001, "reg_user": 1e-4, "reg_item": 1e-4}
    readings: dict[str, dict[str, Any]] = {
        "authors": authors,
        "literal": authors | {"reading": "literal"},
        "authors, 1 coordinate": authors | {"embedding_size": 1, "start_scale": 0.1},
        "authors, random start": authors | {"start": "random"},
    }
    for label, settings in readings.items():
        rows = []
        for seed in range(seeds):
            chosen = fedmf.FedMF.of(settings | {"updates": "full"})
            state, _ = trained(fedmf.ALGORITHM, training, chosen, seed)
            model = Factors(
                state.user_rows, state.item_rows, np.zeros(training.n_items, np.float32)
            )
            inside = fedmf_errors(model, training)
            rows.append(
                {"training MSE": inside["RMSE"] ** 2, "RMSE": fedmf_errors(model, test)["RMSE"]}
            )
        found[label] = {key: spread([row[key] for row in rows]) for key in rows[0]}
    return found


def fedmf_errors(model: Factors, part: TrainingSet) -> dict[str, float]:
    predicted = model.score(part.users, part.positives.items[:, None])[:, 0]
    return errors(predicted.astype(np.float64), part)


def authors_data(data: Interactions) -> tuple[TrainingSet, TrainingSet]:
    """The 40 items with most ratings, ties by first appearance, and the first 10 users."""
    counts = np.bincount(data.items, minlength=data.n_items)
    appeared = np.empty(data.n_items, np.int64)
    appeared[data.item_order] = np.arange(data.n_items)
    kept_items = np.lexsort((appeared, -counts))[:40]
    number = np.full(data.n_items, -1, np.int32)
    number[kept_items] = np.arange(40)
    few = data.select((data.users < 10) & (number[data.items] >= 0))
    assert few.times is not None
    # As in the authors' file: by time, and at the same time by the number of the item.
    few = few.select(np.lexsort((few.items, few.times, few.users)))
    n = np.bincount(few.users, minlength=10)
    from_end = np.cumsum(n)[few.users] - np.arange(len(few))
    enough = n[few.users] >= 5
    small = replace_items(few, number)
    return small_set(small, enough & (from_end > 3)), small_set(small, enough & (from_end <= 3))


def replace_items(data: Interactions, number: np.ndarray) -> Interactions:
    return replace(data, items=number[data.items])


def small_set(data: Interactions, chosen: Bools) -> TrainingSet:
    users = data.users[chosen]
    items = data.items[chosen]
    assert data.ratings is not None
    order = np.lexsort((items, users))
    rows = Rows.build(users, items, 10)
    return TrainingSet(10, 40, rows, rows, data.ratings[chosen][order])


# Virtual ratings


def virtual_ratings(dataset: str, seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"part": "virtual", "dataset": dataset, "seeds": seeds}
    for label, settings in VIRTUAL.items():
        rows = [with_virtual(dataset, seed, settings) for seed in range(seeds)]
        found[label] = {key: spread([row[key] for row in rows]) for key in rows[0]}
    return found


def with_virtual(dataset: str, seed: int, settings: Mapping[str, Any]) -> dict[str, float]:
    run = coterie.run("fedmf", dataset, seed=seed, **RATINGS, **settings)
    update = run.result["bytes_up"] / run.result["updates"]
    rated = 1 / (1 + settings["virtual"])
    return {"RMSE": run.metrics["RMSE"], "kB an update": update / 1000, "rated, at least": rated}


if __name__ == "__main__":
    print_parts(
        __doc__,
        {
            "fedrecon": fedrecon_on_new_users,
            "fedmf": fedmf_on_the_authors_data,
            "virtual": virtual_ratings,
        },
    )
