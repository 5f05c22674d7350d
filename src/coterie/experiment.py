"""The story on one screen: load, split, check, train, evaluate, report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie import splits
from coterie.availability import with_presence
from coterie.config import NAMING_FILES, Experiment
from coterie.data.datasets import load
from coterie.data.filters import rated
from coterie.data.interactions import Interactions
from coterie.data.options import Reading
from coterie.data.reading import read
from coterie.errors import ConfigError, Interrupted, LeakError, MissingExtra, RunError, UnknownName
from coterie.evaluate import candidates as sampling
from coterie.evaluate import leaks
from coterie.evaluate.candidates import Candidates
from coterie.evaluate.evaluation import evaluate
from coterie.finished import Run
from coterie.journey import Point
from coterie.learners.settings import Simulated
from coterie.models.recommender import Recommender
from coterie.progress import SILENT, Watch
from coterie.protect.rates import Disclosing
from coterie.protect.wishes import with_wishes
from coterie.registry import algorithm
from coterie.report.page import page
from coterie.report.table import markdown
from coterie.results import breakdowns, choices, summary, verdict
from coterie.runtime import checkpoint
from coterie.runtime import folder as disk
from coterie.splits import Split
from coterie.training import Ruler, sampled, train
from coterie.types import Training
from coterie.warm import reuse

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


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is known before training begins."""

    experiment: Experiment
    data: Interactions
    parts: Split
    candidates: Candidates | None
    training: Training
    ruler: Ruler

    @property
    def fingerprint(self) -> str:
        """Of the data and of what people want to keep for themselves."""
        wishes = self.training.wishes
        return self.data.fingerprint() + ("" if wishes is None else f"+{wishes.fingerprint()}")

    @property
    def catalogue(self) -> disk.Catalogue:
        train = self.parts.train
        return disk.Catalogue(train.user_ids, train.item_ids, train.item_texts, self.parts.seen())


def run(
    experiment: Experiment,
    data: Interactions | None = None,
    make_folder: Callable[[], Path] | None = None,
    watch: Watch = SILENT,
) -> Run:
    """Run an experiment. The folder is made once the data cannot be at fault any more; without one nothing is written."""
    ready = prepare(experiment, data, watch)
    out = make_folder() if make_folder else None
    with disk.held(out):
        if out is not None:
            disk.write_config(out, _from_anywhere(experiment.flat()))
            _write_beginning(out, ready)
        try:
            return _carry_out(ready, out, None, watch)
        except (ConfigError, UnknownName, MissingExtra, LeakError):  # nothing was trained: nothing is left behind
            if out is not None and not (out / checkpoint.NAME).exists():
                shutil.rmtree(out, ignore_errors=True)
            raise


def resume(folder: Path, watch: Watch = SILENT) -> Run:
    """Go on with a run that was interrupted, from its last checkpoint: the outcome is the one without the interruption."""
    if (folder / "result.json").exists():
        watch.say(f"{folder} is finished; nothing is left to do")
        return Run.load(folder)
    if (folder / "terms.json").exists():
        raise RunError(
            f"{folder} is a federation's; expected a run of one machine. Go on with: coterie serve --config FILE --out {folder}"
        )
    experiment = Experiment.of(disk.read_config(folder))
    ready = prepare(experiment, None, watch)
    with disk.held(folder):
        kind, data = algorithm(experiment.choice.algorithm).state, ready.fingerprint
        since = checkpoint.read(folder, kind, data, _from_anywhere(experiment.flat()))
        watch.say(f"going on after round {since.journey.round if since else 0}")
        _write_beginning(folder, ready)
        return _carry_out(ready, folder, since, watch)


def prepare(experiment: Experiment, data: Interactions | None, watch: Watch) -> Prepared:
    """Load, split, check."""
    data = load_data(experiment, watch) if data is None else data
    parts, candidates = hold_out(experiment, data, watch)
    training = to_learn_from(experiment, parts, watch)
    return Prepared(experiment, data, parts, candidates, training, Ruler.of(experiment, parts, candidates))


def to_learn_from(experiment: Experiment, parts: Split, watch: Watch) -> Training:
    """All that training may see, checked, with what people want to keep for themselves."""
    training = parts.training(experiment.course.as_published)
    leaks.check(parts, training, experiment.course.as_published)
    if isinstance(experiment.settings, Disclosing):
        training = with_wishes(training, experiment.settings, parts.train, watch)
    if isinstance(experiment.settings, Simulated):
        training = with_presence(training, experiment.settings, parts.train, watch)
    return training


def _carry_out(ready: Prepared, out: Path | None, since: Point | None, watch: Watch) -> Run:
    """Train, evaluate, report."""
    experiment, data = ready.experiment, ready.fingerprint

    def keep(point: Point, model: Recommender) -> None:
        assert out is not None
        disk.write_model(out, model)
        disk.write_metrics(out, point.journey.curve)
        checkpoint.write(out, point, data, _from_anywhere(experiment.flat()))

    try:
        earlier = experiment.course.start_from
        put = reuse(Path(earlier), ready.catalogue, ready.parts.test) if earlier and since is None else None
        fitted = train(experiment, ready.training, ready.ruler, watch, keep if out else None, since, put)
        judged = evaluate(fitted.model, ready.parts, experiment.protocol, ready.candidates, watch)
    except KeyboardInterrupt:
        if out is None:
            raise
        raise Interrupted(f"{out} holds what was done so far. Go on with: coterie resume {out}") from None
    chosen = choices(ready, fitted)
    result = (
        summary(ready, fitted)
        | verdict(experiment, ready.parts, judged)
        | breakdowns(chosen, judged, experiment.protocol)
        | {"run": None if out is None else str(out)}
    )
    finished = Run(
        {key: result[key] for key in FIRST} | result, fitted.model, ready.catalogue, judged, list(fitted.journey.curve)
    )
    if out is not None:
        asked = {"selections": fitted.journey.selections} if "selections" in result else {}
        save(out, finished, asked | chosen)
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
    return parts, sampled(protocol, parts, seed)


def _write_beginning(out: Path, ready: Prepared) -> None:
    """What a checkpoint needs beside it, so that it can be used while training goes on."""
    disk.write_catalogue(out, ready.catalogue)
    if ready.candidates is not None:
        disk.write_candidates(out, ready.candidates)


def save(out: Path, finished: Run, beside: Mapping[str, np.ndarray]) -> None:
    """What a finished run leaves behind; the result comes last and says that the rest is there."""
    disk.write_model(out, finished.model)
    assert finished.evaluation is not None
    disk.write_users(out, finished.catalogue.user_ids, finished.evaluation, beside)
    disk.write_text(out, "report.md", markdown([finished]))
    disk.write_text(out, "report.html", page([finished]))
    disk.write_result(out, finished.result)


def _from_anywhere(flat: dict[str, Any]) -> dict[str, Any]:
    """Paths made whole, so that the config works from another folder."""
    paths = ("dataset", *NAMING_FILES)
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
