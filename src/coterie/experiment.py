"""The story on one screen: load, split, check, train, evaluate, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from coterie import __version__, splits
from coterie.config import Experiment
from coterie.data.datasets import load
from coterie.data.filters import rated
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.reading import read
from coterie.errors import Interrupted
from coterie.evaluate import candidates as sampling
from coterie.evaluate import leaks
from coterie.evaluate.candidates import Candidates
from coterie.evaluate.evaluation import Evaluation, evaluate
from coterie.finished import Run
from coterie.progress import SILENT, Watch
from coterie.report.page import page
from coterie.report.table import markdown
from coterie.runtime import folder as disk
from coterie.splits import Split
from coterie.training import Fitted, Ruler, train
from coterie.types import Training

FIRST = (
    "algorithm",
    "dataset",
    "protocol",
    "seed",
    "rounds",
    "seconds",
    "bytes_up",
    "bytes_down",
    "metrics",
    "full",
    "run",
)
"""The keys that a result begins with; others follow."""


def run(
    experiment: Experiment,
    data: Interactions | None = None,
    make_folder: Callable[[], Path] | None = None,
    watch: Watch = SILENT,
) -> Run:
    """Run an experiment. The folder is made once the data cannot be at fault any more; without one nothing is written."""
    data = load_data(experiment, watch) if data is None else data
    parts, candidates = hold_out(experiment, data, watch)
    training = parts.training(experiment.course.as_published)
    leaks.check(parts, training, experiment.course.as_published)
    ruler = Ruler.of(experiment, parts, candidates)
    out = make_folder() if make_folder else None
    if out is not None:
        disk.write_config(out, _from_anywhere(experiment.flat()))
    try:
        fitted = train(experiment, training, ruler, out, watch)
        judged = evaluate(fitted.model, parts, experiment.protocol, candidates, watch)
    except KeyboardInterrupt:
        if out is None:
            raise
        raise Interrupted(
            f"{out} holds the measurements so far. Start again with: coterie run {out}/config.yaml"
        ) from None
    result = summarise(experiment, data, training, fitted) | verdict(experiment, parts, judged)
    result |= {"run": None if out is None else str(out)}
    people = disk.Catalogue(parts.train.user_ids, parts.train.item_ids, parts.train.item_texts, parts.seen())
    finished = Run({key: result[key] for key in FIRST} | result, fitted.model, people, judged, fitted.curve)
    if out is not None:
        save(out, finished, candidates)
    return finished


def load_data(experiment: Experiment, watch: Watch = SILENT) -> Interactions:
    choice = experiment.choice
    options = Reading(choice.columns, choice.skip_bad_rows, experiment.filters.duplicates)
    data = load(choice.dataset, experiment.filters, options, experiment.synthetic, watch)
    for note in data.notes:
        watch.say(note)
    return data


def hold_out(experiment: Experiment, data: Interactions, watch: Watch = SILENT) -> tuple[Split, Candidates | None]:
    """The split and what test items are ranked against, both a function of the seed."""
    protocol, seed = experiment.protocol, experiment.choice.seed
    published = sampling.read_published(Path(protocol.candidates_file), data) if protocol.candidates_file else None
    if published is not None:
        parts = splits.given(data, published.users, published.items[:, 0])
    elif protocol.split == "own":
        held = _own_files(experiment, watch)
        parts = splits.without_newcomers(splits.own(data, *held))
        if strangers := len(held[0]) - len(parts.test):
            watch.say(f"{strangers:,} test interactions are by people without training data and are left out")
    else:
        parts = splits.split(data, protocol.split, protocol.fraction, seed, protocol.validation)
    if protocol.validation and parts.validation is None:
        parts = splits.with_validation(parts, seed)
    if published is not None or not protocol.candidates:
        return parts, published
    return parts, sampling.sample(parts.test, parts.everything(), protocol.candidates, seed)


def verdict(experiment: Experiment, parts: Split, judged: Evaluation) -> dict[str, Any]:
    """What a result says about how the model was judged."""
    return {
        "protocol": experiment.judged_by,
        "metrics": judged.metrics,
        "full": judged.full,
        "headline": list(experiment.protocol.shown),
        "tested_users": len(judged.users),
        "future_share": splits.future_share(parts),
    }


def summarise(experiment: Experiment, data: Interactions, training: Training, fitted: Fitted) -> dict[str, Any]:
    """What a result says about how the model was made."""
    choice = experiment.choice
    return {
        "algorithm": choice.algorithm,
        "dataset": choice.dataset,
        "protocol": experiment.judged_by,
        "seed": choice.seed,
        "rounds": fitted.rounds,
        "best_round": fitted.best_round,
        "seconds": round(fitted.seconds, 6),
        "bytes_up": 0,  # centralised: nothing is exchanged while training
        "bytes_down": 0,
        "data": data.fingerprint(),
        "users": int(np.count_nonzero(training.positives.counts)),
        "items": training.n_items,
        "training_interactions": len(training),
        "parameters": fitted.model.n_parameters,
        "as_published": experiment.course.as_published,
        "version": __version__,
    }


def save(out: Path, finished: Run, candidates: Candidates | None) -> None:
    """Everything a run leaves behind; the result comes last and says that the rest is there."""
    disk.write_model(out, finished.model, finished.catalogue)
    if candidates is not None:
        disk.write_candidates(out, candidates)
    assert finished.evaluation is not None
    disk.write_users(out, finished.catalogue.user_ids, finished.evaluation)
    disk.write_text(out, "report.md", markdown([finished]))
    disk.write_text(out, "report.html", page([finished]))
    disk.write_result(out, finished.result)


def _from_anywhere(flat: dict[str, Any]) -> dict[str, Any]:
    """Paths made whole, so that the config works from another folder."""
    paths = ("dataset", "test_file", "validation_file", "candidates_file")
    return {
        key: str(Path(value).resolve()) if key in paths and value and Path(value).exists() else value
        for key, value in flat.items()
    }


def _own_files(experiment: Experiment, watch: Watch) -> tuple[Interactions, Interactions | None]:
    """The test part and, if named, the validation part of a split that somebody else made; rated as training is."""
    protocol, choice = experiment.protocol, experiment.choice
    options = Reading(choice.columns, choice.skip_bad_rows, experiment.filters.duplicates)

    def part(path: str) -> Interactions:
        held = rated(read(Path(path), options), experiment.filters)
        for note in held.notes:
            watch.say(f"{path}: {note}")
        return held

    assert protocol.test_file is not None  # the protocol sees to it
    return part(protocol.test_file), part(protocol.validation_file) if protocol.validation_file else None
