"""The story on one screen: load, split, check, train, evaluate, report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie import __version__, splits
from coterie.config import Experiment
from coterie.data.datasets import load
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.reading import read
from coterie.errors import ConfigError, Interrupted
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


def run(
    experiment: Experiment,
    data: Interactions | None = None,
    make_folder: Callable[[], Path] | None = None,
    watch: Watch = SILENT,
) -> Run:
    """Run an experiment. The folder is made once the data cannot be at fault any more; without one nothing is written."""
    data = load_data(experiment, watch) if data is None else data
    parts, candidates = hold_out(experiment, data)
    training = parts.training(experiment.course.as_published)
    leaks.check(parts, training, experiment.course.as_published)
    ruler = Ruler.of(experiment, parts, candidates)
    out = make_folder() if make_folder else None
    if out is not None:
        disk.write_config(out, experiment.flat())
    try:
        fitted = train(experiment, training, ruler, out, watch)
        finished = judge(experiment, parts, candidates, fitted, out, watch)
    except KeyboardInterrupt:
        if out is None:
            raise
        raise Interrupted(
            f"{out} holds the measurements so far. Start again with: coterie run {out}/config.yaml"
        ) from None
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


def hold_out(experiment: Experiment, data: Interactions) -> tuple[Split, Candidates | None]:
    """The split and what test items are ranked against, both a function of the seed."""
    protocol, seed = experiment.protocol, experiment.choice.seed
    if protocol.candidates_file:
        published = sampling.read_published(Path(protocol.candidates_file), data)
        return splits.given(data, published.users, published.items[:, 0], protocol.validation), published
    if protocol.split == "own":
        parts = splits.own(data, *_own_files(experiment))
        parts = splits.with_validation(parts) if protocol.validation and parts.validation is None else parts
    else:
        parts = splits.split(data, protocol.split, protocol.fraction, seed, protocol.validation)
    if not protocol.candidates:
        return parts, None
    return parts, sampling.sample(parts.test, parts.everything(), protocol.candidates, seed)


def judge(
    experiment: Experiment, parts: Split, candidates: Candidates | None, fitted: Fitted, out: Path | None, watch: Watch
) -> Run:
    """Evaluate on the test part."""
    judged = evaluate(fitted.model, parts, experiment.protocol, candidates, watch)
    people = disk.Catalogue(parts.train.user_ids, parts.train.item_ids, parts.train.item_texts, parts.seen())
    return Run(summarise(experiment, parts, fitted, judged, out), fitted.model, people, judged, fitted.curve)


def summarise(
    experiment: Experiment, parts: Split, fitted: Fitted, judged: Evaluation, out: Path | None
) -> dict[str, Any]:
    """The result as `--json` prints it."""
    choice = experiment.choice
    return {
        "algorithm": choice.algorithm,
        "dataset": choice.dataset,
        "protocol": choice.protocol,
        "seed": choice.seed,
        "rounds": fitted.rounds,
        "seconds": round(fitted.seconds, 6),
        "bytes_up": 0,  # centralised: nothing is exchanged while training
        "bytes_down": 0,
        "metrics": judged.metrics,
        "full": judged.full,
        "run": None if out is None else str(out),
        "headline": list(experiment.protocol.shown),
        "users": parts.train.n_users,
        "items": parts.train.n_items,
        "training_interactions": len(parts.train),
        "tested_users": len(judged.users),
        "parameters": fitted.model.n_parameters,
        "future_share": splits.future_share(parts),
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


def _own_files(experiment: Experiment) -> tuple[Interactions, Interactions | None]:
    """The test part and, if named, the validation part of a split that somebody else made."""
    protocol, choice = experiment.protocol, experiment.choice
    if protocol.test_file is None:
        raise ConfigError("split=own needs a test part; test_file is not set. Pass --set test_file=PATH.")
    options = Reading(choice.columns, choice.skip_bad_rows, experiment.filters.duplicates)
    validation = read(Path(protocol.validation_file), options) if protocol.validation_file else None
    return read(Path(protocol.test_file), options), validation
