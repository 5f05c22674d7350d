"""The story on one screen: load, split, check, train, evaluate, report."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, Interrupted, LeakError, MissingExtra, RunError, UnknownName
from coterie.evaluation.evaluation import evaluate
from coterie.experiments import checkpoint
from coterie.experiments import folder as disk
from coterie.experiments.config import NAMING_FILES, Experiment
from coterie.experiments.history import Point
from coterie.experiments.preparation import Prepared, prepare
from coterie.experiments.results import breakdowns, choices, summary, verdict
from coterie.experiments.run import Run
from coterie.experiments.training import train
from coterie.experiments.warm_start import reuse
from coterie.models.recommender import Recommender
from coterie.report.page import page
from coterie.report.table import markdown

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
    progress: Progress = SILENT,
) -> Run:
    """Run an experiment. The folder is made once the data cannot be at fault any more; without one nothing is written."""
    ready = prepare(experiment, data, progress)
    out = make_folder() if make_folder else None
    with disk.held(out):
        if out is not None:
            disk.write_config(out, _from_anywhere(experiment.flat()))
            _write_beginning(out, ready)
        try:
            return _carry_out(ready, out, None, progress)
        except (
            ConfigError,
            UnknownName,
            MissingExtra,
            LeakError,
        ):  # nothing was trained: nothing is left behind
            if out is not None and not (out / checkpoint.NAME).exists():
                shutil.rmtree(out, ignore_errors=True)
            raise


def resume(folder: Path, progress: Progress = SILENT) -> Run:
    """Go on with a run that was interrupted, from its last checkpoint: the outcome is the one without the interruption."""
    if (folder / "result.json").exists():
        progress.log(f"{folder} is finished; nothing is left to do")
        return Run.load(folder)
    if (folder / "terms.json").exists():
        raise RunError(
            f"{folder} is a federation's; expected a run of one machine. Go on with: coterie serve --config FILE --out {folder}"
        )
    experiment = Experiment.of(disk.read_config(folder))
    ready = prepare(experiment, None, progress)
    with disk.held(folder):
        kind = algorithm(experiment.choice.algorithm).state
        data = ready.fingerprint
        since = checkpoint.read(folder, kind, data, _from_anywhere(experiment.flat()))
        progress.log(f"going on after round {since.history.round if since else 0}")
        _write_beginning(folder, ready)
        return _carry_out(ready, folder, since, progress)


def _carry_out(ready: Prepared, out: Path | None, since: Point | None, progress: Progress) -> Run:
    """Train, evaluate, report."""
    experiment = ready.experiment
    data = ready.fingerprint

    def keep(point: Point, model: Recommender) -> None:
        assert out is not None
        disk.write_model(out, model)
        disk.write_metrics(out, point.history.curve)
        checkpoint.write(out, point, data, _from_anywhere(experiment.flat()))

    try:
        earlier = experiment.course.start_from
        put = (
            reuse(Path(earlier), ready.catalogue, ready.parts.test)
            if earlier and since is None
            else None
        )
        fitted = train(
            experiment, ready.training, ready.evaluator, progress, keep if out else None, since, put
        )
        judged = evaluate(
            fitted.model, ready.parts, experiment.protocol, ready.candidates, progress
        )
    except KeyboardInterrupt:
        if out is None:
            raise
        raise Interrupted(
            f"{out} holds what was done so far. Go on with: coterie resume {out}"
        ) from None
    chosen = choices(ready, fitted)
    result = (
        summary(ready, fitted)
        | verdict(experiment, ready.parts, judged)
        | breakdowns(chosen, judged, experiment.protocol)
        | {"run": None if out is None else str(out)}
    )
    finished = Run(
        {key: result[key] for key in FIRST} | result,
        fitted.model,
        ready.catalogue,
        judged,
        list(fitted.history.curve),
    )
    if out is not None:
        asked = {"selections": fitted.history.selections} if "selections" in result else {}
        save(out, finished, asked | chosen)
    return finished


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
        key: str(Path(value).resolve())
        if key in paths and value and Path(value).exists()
        else value
        for key, value in flat.items()
    }
