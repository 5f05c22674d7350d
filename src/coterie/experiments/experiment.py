"""Run or resume an experiment: load, split, check, train, evaluate, report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.data.splits import Split
from coterie.errors import ConfigError, Interrupted, LeakError, MissingExtra, RunError, UnknownName
from coterie.evaluation.evaluation import Evaluation, evaluate
from coterie.experiments import checkpoint, run_folder, saving
from coterie.experiments.config import NAMING_FILES, Experiment
from coterie.experiments.curve_sample import scaled_to_all_users
from coterie.experiments.finished_run import Run
from coterie.experiments.history import Point
from coterie.experiments.preparation import Prepared, prepare
from coterie.experiments.results import (
    accuracy_by_chosen_values,
    chosen_values,
    epsilon_spent,
    evaluation_summary,
    training_summary,
    without_popularity,
)
from coterie.experiments.round_log import RoundLog
from coterie.experiments.run_report import run_report
from coterie.experiments.training import Fitted, train
from coterie.experiments.warm_start import reuse
from coterie.models.popularity_prior import PopularityPrior
from coterie.models.recommender import Recommender
from coterie.report.markdown import markdown
from coterie.report.steps import step_name
from coterie.types import JsonObject

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
"""The first keys of a result; others follow."""


def run(
    experiment: Experiment,
    data: Interactions | Split | None = None,
    make_folder: Callable[[], Path] | None = None,
    progress: Progress = SILENT,
    saved_in: Path | None = None,
) -> Run:
    """Run an experiment, on data that is loaded or given, in one piece or as a split.

    The folder is made after the data was loaded and checked. Without `make_folder` nothing is
    written, but for what `save` names, if `saved_in` says where.
    """
    save = experiment.course.save
    if save and make_folder is None and saved_in is None:
        raise ConfigError(
            f"setting 'save' is {','.join(save)!r}, but the run has no folder; "
            "expected one to save into. Pass out=FOLDER, or remove save."
        )
    ready = prepare(experiment, data, progress)
    out = make_folder() if make_folder else None
    with run_folder.locked(out):
        if out is not None:
            run_folder.write_config(out, with_absolute_paths(ready.experiment.flat()))
            _write_catalogue(out, ready)
        try:
            return _train_and_evaluate(ready, out, None, progress, saved_in)
        except (ConfigError, UnknownName, MissingExtra, LeakError):
            # Nothing was trained, so the folder is removed.
            if out is not None and not (out / checkpoint.NAME).exists():
                shutil.rmtree(out, ignore_errors=True)
            raise


def resume(folder: Path, progress: Progress = SILENT) -> Run:
    """Resume a run from its last checkpoint. The result equals that of an uninterrupted run."""
    if (folder / "result.json").exists():
        progress.log(f"{folder} is finished; nothing is left to do")
        return Run.load(folder)
    if (folder / "terms.json").exists():
        raise RunError(
            f"{folder} belongs to a federation; expected a run of one machine. "
            f"Resume it with: coterie serve --config FILE --out {folder}"
        )
    experiment = Experiment.of(run_folder.read_settings(folder))
    ready = prepare(experiment, None, progress)
    with run_folder.locked(folder):
        kind = algorithm(experiment.choice.algorithm).state
        config = with_absolute_paths(ready.experiment.flat())
        since = checkpoint.read(folder, kind, ready.fingerprint, config)
        progress.log(f"resuming after round {since.history.round if since else 0}")
        _write_catalogue(folder, ready)
        return _train_and_evaluate(ready, folder, since, progress)


def _train_and_evaluate(
    ready: Prepared,
    out: Path | None,
    since: Point | None,
    progress: Progress,
    saved_in: Path | None = None,
) -> Run:
    """Train, from a checkpoint if there is one; evaluate; write the result and the report."""
    experiment = ready.experiment
    data = ready.fingerprint

    def save_checkpoint(point: Point, model: Recommender, prior: PopularityPrior | None) -> None:
        assert out is not None
        run_folder.write_model(out, model, prior)
        run_folder.write_metrics(out, point.history.curve)
        checkpoint.write(out, point, data, with_absolute_paths(experiment.flat()))

    try:
        earlier = experiment.course.start_from
        warm_start = None
        if earlier and since is None:
            warm_start = reuse(Path(earlier), ready.catalogue, ready.parts.test)
        fitted = train(
            experiment,
            ready.training,
            ready.evaluator,
            progress,
            save=save_checkpoint if out else None,
            since=since,
            reuse=warm_start,
            log=None if out is None else round_log(out, ready),
        )
        began = time.perf_counter()
        evaluation = evaluate(
            fitted.recommender, ready.parts, experiment.protocol, ready.candidates, progress
        )
        seconds = time.perf_counter() - began
    except KeyboardInterrupt:
        if out is None:
            raise
        raise Interrupted(
            f"{out} holds the progress so far. Resume with: coterie resume {out}"
        ) from None
    fitted = _with_curve_of_all_users(fitted, ready, evaluation)
    chosen = chosen_values(ready, fitted)
    result = (
        training_summary(ready, fitted)
        | evaluation_summary(experiment, ready.parts, evaluation)
        | accuracy_by_chosen_values(chosen, evaluation, experiment.protocol)
        | without_popularity(ready, fitted)
        | {"evaluation_seconds": round(seconds, 6), "run": None if out is None else str(out)}
    )
    finished = Run(
        {key: result[key] for key in FIRST} | result,
        fitted.model,
        ready.catalogue,
        evaluation,
        list(fitted.history.curve),
        fitted.prior,
    )
    place = saved_in if out is None else out
    if place is not None:
        protocol = experiment.protocol
        wanted = experiment.course.save or ()
        saving.write(place, wanted, finished, ready.parts, protocol.cutoffs, progress)
    if out is not None:
        federated = "selections" in result
        selections = {"selections": fitted.history.selections} if federated else {}
        save(out, finished, selections | chosen)
    return finished


def round_log(folder: Path, ready: Prepared) -> RoundLog:
    """The log of a run's rounds, with what a reader needs who does not know the run."""
    choice = ready.experiment.choice
    about = {
        "algorithm": choice.algorithm,
        "dataset": ready.experiment.data_label,
        "protocol": ready.experiment.protocol_label,
        "seed": choice.seed,
        "metric": ready.evaluator.headline,
        "steps": step_name({"settings": ready.experiment.settings.model_dump()}),
        "part": ready.evaluator.part,
    }
    return RoundLog(folder, about, epsilon_spent(ready))


def _with_curve_of_all_users(fitted: Fitted, ready: Prepared, evaluation: Evaluation) -> Fitted:
    """The same training, its curve scaled if it was measured on a sample of the tested users."""
    history = fitted.history
    if not ready.evaluator.is_sample or not history.curve:
        return fitted
    curve = scaled_to_all_users(history.curve, evaluation.metrics)
    return replace(fitted, history=replace(history, curve=curve))


def _write_catalogue(out: Path, ready: Prepared) -> None:
    """Write what the model needs besides a checkpoint, so that it can serve during training."""
    run_folder.write_catalogue(out, ready.catalogue)
    if ready.candidates is not None:
        run_folder.write_candidates(out, ready.candidates)


def save(out: Path, finished: Run, user_columns: Mapping[str, np.ndarray]) -> None:
    """Write a finished run. The result is written last and marks the folder as complete."""
    run_folder.write_model(out, finished.model, finished.prior)
    # A curve of sampled users is scaled to all of them at the end.
    run_folder.write_metrics(out, finished.curve)
    assert finished.evaluation is not None
    run_folder.write_users(out, finished.catalogue.user_ids, finished.evaluation, user_columns)
    run_folder.write_text(out, "report.md", markdown([finished]))
    run_folder.write_text(out, "report.html", run_report(finished, out))
    run_folder.write_result(out, finished.result)


def with_absolute_paths(flat: JsonObject) -> JsonObject:
    """The settings with absolute paths, so that the config works from any folder.

    The data keeps the name it was given.
    """
    absolute = {
        key: str(Path(flat[key]).resolve())
        for key in ("dataset", *NAMING_FILES)
        if flat.get(key) and Path(flat[key]).exists()
    }
    dataset = flat["dataset"]
    if absolute.get("dataset", dataset) != dataset:
        absolute["dataset_name"] = flat.get("dataset_name") or dataset
    return flat | absolute
