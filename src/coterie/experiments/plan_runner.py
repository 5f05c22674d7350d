"""Running plans: every cell that is not finished yet; several processes may share a folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from coterie.core.paths import cache_folder
from coterie.core.progress import SILENT, Progress
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, Diverged, Interrupted
from coterie.experiments import cell_cache, experiment, preparation, run_folder
from coterie.experiments.cell_cache import CellResult
from coterie.experiments.plan import Cell, Plan, cells
from coterie.experiments.plan_progress import CellProgress, RunTimes
from coterie.experiments.training import Evaluator, train
from coterie.experiments.worker_processes import check_workers, helped_by
from coterie.types import JsonObject
from coterie.version import __version__

PAUSE = 0.2
"""Seconds between two looks at a cell that another process is running."""


Finished = Callable[[CellResult], None]
"""Called with every cell as soon as it is known to be finished."""


def run_plan(
    plan: Plan,
    folder: Path | None = None,
    progress: Progress = SILENT,
    workers: int = 1,
    given: Interactions | None = None,
    finished: Finished | None = None,
) -> list[CellResult]:
    """Run the missing cells and return all, in the plan's order.

    Several processes may run the same plan in the same folder. `given` is data that is already
    loaded, for all cells.
    """
    return run_plans([plan], folder, progress, workers, given, finished)[0]


def run_plans(
    plans: Sequence[Plan],
    folder: Path | None = None,
    progress: Progress = SILENT,
    workers: int = 1,
    given: Interactions | None = None,
    finished: Finished | None = None,
) -> list[list[CellResult]]:
    """Run several plans as one: a cell that several of them share is run once.

    `workers` is the number of processes that share the work.
    """
    check_workers(workers)
    folder = folder or cache_folder() / "cells"
    data = _DataCache(progress, given)
    wanted = [
        [(cell, folder / cell_cache.folder_name(cell, data.of(cell)[1])) for cell in cells(plan)]
        for plan in plans
    ]
    places = {place: cell for of_plan in wanted for cell, place in of_plan}
    missing = {place: cell for place, cell in places.items() if not cell_cache.is_finished(place)}
    if len(missing) < len(places):
        progress.log(f"{_share(len(places) - len(missing), len(places))} already finished")
    times = RunTimes(workers)
    known = [times.add] if finished is None else [times.add, finished]
    for place, cell in places.items():
        if place not in missing:
            _tell(known, cell_cache.read(cell, place))
    if missing:
        with helped_by(min(workers, len(missing)), partial(run_plans, plans, folder, given=given)):
            _run_missing(missing, data, progress, times, known)
    return [[cell_cache.read(cell, place) for cell, place in of_plan] for of_plan in wanted]


def _share(done: int, total: int) -> str:
    """`1 of 18 runs is`, `2 of 18 runs are`."""
    return f"{done} of {total} {'run' if total == 1 else 'runs'} {'is' if done == 1 else 'are'}"


def _tell(listeners: Sequence[Finished], run: CellResult) -> None:
    for listener in listeners:
        listener(run)


def _run_missing(
    missing: dict[Path, Cell],
    data: _DataCache,
    progress: Progress,
    times: RunTimes,
    finished: Sequence[Finished],
) -> None:
    """Run every cell that no other process is running, and wait for the others."""
    waiting = dict(missing)
    total = len(missing)
    label = f"{total} {'run' if total == 1 else 'runs'}"
    with progress.estimated_task(label, total, lambda: times.left(waiting)) as advance:
        try:
            while waiting:
                for place, cell in list(waiting.items()):
                    times.begin(cell)
                    share = times.evaluation_share(cell)
                    own = CellProgress(cell.name, advance, progress, share)
                    if _try_to_run(cell, place, data, own):
                        del waiting[place]
                        _tell(finished, cell_cache.read(cell, place))
                if waiting:
                    advance(0, "waiting for another process that runs the same cells")
                    time.sleep(PAUSE)
        except KeyboardInterrupt:
            raise Interrupted(
                f"{_share(total - len(waiting), total)} finished and saved. "
                "Continue with the same command."
            ) from None


def _try_to_run(cell: Cell, place: Path, data: _DataCache, progress: CellProgress) -> bool:
    """Run a cell and return True; False if another process is running it."""
    with cell_cache.locked(place) as is_locked:
        # Another process may have finished the cell before it was locked here.
        if is_locked and not cell_cache.is_finished(place):
            interactions, fingerprint = data.of(cell)
            run_folder.write_text(place, "cell.json", cell_cache.description(cell, fingerprint))
            run = _run_on_validation if cell.part == "validation" else _run_on_test
            try:
                run(cell, interactions, place, progress)
            except Diverged as error:
                result = _about(cell, fingerprint) | {"diverged": str(error)}
                cell_cache.finish(place, [], result)
            except ConfigError as error:
                raise ConfigError(f"{cell.name}: {error}") from error
    if is_locked:
        progress.complete()
    return is_locked


def _run_on_test(cell: Cell, data: Interactions, place: Path, progress: Progress) -> None:
    """Train and evaluate as `coterie run` does, but without a run folder."""
    run = experiment.run(cell.experiment, data, None, progress, saved_in=place)
    assert run.evaluation is not None
    run_folder.write_users(place, run.catalogue.user_ids, run.evaluation)
    cell_cache.finish(place, run.curve, run.result)


def _run_on_validation(cell: Cell, data: Interactions, place: Path, progress: Progress) -> None:
    """Train and measure on the validation part; the test part is dropped first."""
    parts, candidates = preparation.split_data(cell.experiment, data, progress)
    evaluator = Evaluator.of(cell.experiment, parts, candidates)
    training = preparation.training_set(cell.experiment, parts.for_tuning(), progress)
    fitted = train(cell.experiment, training, evaluator, progress)
    history = fitted.history
    metric = evaluator.headline
    # With patience the best round counts, otherwise the last one.
    counted = next(line for line in history.curve if line["round"] == fitted.best_round)
    result = {
        "part": evaluator.part,
        "rounds": history.round,
        "seconds": round(history.seconds, 6),
        "metric": metric,
        "value": counted[metric],
        "best_round": fitted.best_round,
        "popularity_prior": 0.0 if fitted.prior is None else fitted.prior.strength,
    }
    cell_cache.finish(place, history.curve, _about(cell, data.fingerprint()) | result)


def _about(cell: Cell, data: str) -> JsonObject:
    choice = cell.experiment.choice
    return {
        "algorithm": choice.algorithm,
        "dataset": choice.dataset,
        "protocol": cell.experiment.protocol_label,
        "seed": choice.seed,
        "data": data,
        "version": __version__,
    }


class _DataCache:
    """The data of a plan with its fingerprint, loaded once per dataset and filters."""

    def __init__(self, progress: Progress, given: Interactions | None = None) -> None:
        self.progress = progress
        self.given = None if given is None else (given, given.fingerprint())
        self.loaded: dict[str, tuple[Interactions, str]] = {}

    def of(self, cell: Cell) -> tuple[Interactions, str]:
        if self.given is not None:
            return self.given
        wanted = cell.experiment
        options = preparation.read_options(wanted)
        key = repr((wanted.choice.dataset, options, wanted.filters, wanted.synthetic))
        if key not in self.loaded:
            data = preparation.load_data(wanted, self.progress)
            self.loaded[key] = data, data.fingerprint()
        return self.loaded[key]
