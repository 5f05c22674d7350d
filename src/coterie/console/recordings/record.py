"""Replay a finished run and record it. The replay is bit-identical; nothing of the run changes."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from coterie.algorithms.registry import algorithm
from coterie.attacks.replay import Replay, rates, refuse_other_data
from coterie.console.recordings.inferred import InferenceRecorder, times_of
from coterie.console.recordings.received import UpdateRecorder
from coterie.console.recordings.recording import Recording
from coterie.console.recordings.replay_progress import replay_progress
from coterie.console.recordings.user_map import MapRecorder, has_embeddings
from coterie.core.progress import SILENT, Progress
from coterie.core.records import Record
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError
from coterie.experiments import run_folder
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import prepare
from coterie.federated.settings import federation_settings
from coterie.federated.trainer import Trainer
from coterie.types import JsonObject


def record_run(
    folder: Path,
    rounds: int | None = None,
    data: Interactions | None = None,
    progress: Progress = SILENT,
) -> Recording:
    """Replay a run's first `rounds` rounds, by default all of them, and record them.

    `data`: the interactions passed to `coterie.run`, for runs on data without a name.
    """
    result = run_folder.read_result(folder)
    experiment = Experiment.of(run_folder.read_settings(folder))
    _refuse_centralised(experiment)
    ready = prepare(experiment, data, progress)
    refuse_other_data(folder, ready)
    replay = Replay.of(ready)
    last = _rounds_of(replay, result, rounds)
    is_open = federation_settings(experiment.settings).secure_aggregation == "none"
    updates = UpdateRecorder()
    if is_open:
        replay = replace(replay, listeners=(updates.add,))
    inference = InferenceRecorder(replay.collectors, ready.training.positives, replay.world.n_items)
    times = times_of(last) if replay.collectors else []
    # With patience the run saved the model of an earlier round than its last one.
    saved_step = result["best_round"] if "best_round" in result else result["rounds"]
    saved_at = _rounds_in(replay, int(saved_step))
    difference = math.nan
    drawn: MapRecorder | None = None
    began = time.perf_counter()
    work = replay.trainer(progress)
    with replay_progress(folder, last) as shown:
        for played in replay.rounds(work, last, progress):
            if played.n == 0 and has_embeddings(played.state):
                drawn = MapRecorder.of(replay.world, played.state, last)
            if drawn is not None:
                drawn.add(played.n, played.state, played.selected)
            if played.n in times:
                inference.add(played.n)
            if played.n == saved_at:
                difference = _difference(folder, work, played.state)
            shown.played(played.n)
    pi = rates(replay.world, replay.engine, last)
    return Recording(
        last,
        time.perf_counter() - began,
        difference,
        None if drawn is None else drawn.finish(),
        updates.finish(last) if is_open else None,
        inference.finish(pi) if times else None,
    )


def _rounds_of(replay: Replay, result: JsonObject, wanted: int | None) -> int:
    """Rounds to play: those that the run had, or fewer."""
    played = _rounds_in(replay, int(result["rounds"]))
    return min(played, wanted or played)


def _rounds_in(replay: Replay, steps: int) -> int:
    """A result counts steps, which are rounds or epochs of several rounds."""
    return steps * replay.federation.rounds_per_step(replay.world)


def _difference(folder: Path, work: Trainer[Record], state: Record) -> float:
    """The largest difference between a model of the replay and the one that the run saved."""
    saved = run_folder.read_model(folder)[0].arrays()
    again = work.model(state).arrays()
    differences = [
        np.abs(again[name].astype(np.float64) - saved[name].astype(np.float64)).max(initial=0.0)
        for name in saved
    ]
    return float(max(differences, default=0.0))


def _refuse_centralised(experiment: Experiment) -> None:
    name = experiment.choice.algorithm
    if not algorithm(name).federated:
        raise ConfigError(
            f"the run's algorithm is {name}, which is centralised, so that no user sends anything; "
            "expected a federated one, such as fedfast. Name the folder of such a run."
        )
