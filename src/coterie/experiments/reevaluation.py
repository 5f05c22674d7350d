"""Re-evaluation of a finished run.

The data and the split are rebuilt from the run's config and must be those of the training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from coterie.core.progress import Progress
from coterie.errors import ConfigError, RunError
from coterie.evaluation import leaks
from coterie.evaluation.evaluation import evaluate
from coterie.evaluation.protocols import Protocol
from coterie.experiments.config import Experiment, changed
from coterie.experiments.finished_run import Run
from coterie.experiments.preparation import load_data, split_data
from coterie.experiments.results import evaluation_summary
from coterie.experiments.run_folder import read_candidates, read_settings


def reevaluate(folder: Path, changes: Mapping[str, object], progress: Progress) -> Run:
    """The run with metrics under a changed protocol. Nothing is written."""
    finished = Run.load(folder)
    before = Experiment.of(read_settings(folder))
    after = _with_changes(before, changes)
    data = load_data(before, progress)
    if data.fingerprint() != finished.result["data"]:
        raise RunError(
            f"{folder}: the data {before.choice.dataset!r} has changed since training; "
            "expected it unchanged. Train again."
        )
    trained_on, _ = split_data(before, data)
    parts, candidates = split_data(after, data)
    original = f"split={before.protocol.split} and seed={before.choice.seed}"
    leaks.check_untouched(parts.test, trained_on, original)
    same_protocol = after.protocol == before.protocol and after.choice.seed == before.choice.seed
    if candidates is not None and same_protocol:
        candidates = read_candidates(folder)
    evaluation = evaluate(finished.recommender, parts, after.protocol, candidates, progress)
    result = (
        finished.result
        | evaluation_summary(after, parts, evaluation)
        | {"judged_with_seed": after.choice.seed}
    )
    return replace(finished, result=result, evaluation=evaluation)


def _with_changes(before: Experiment, changes: Mapping[str, object]) -> Experiment:
    """The run's experiment with another protocol; patience no longer matters after training."""
    for key in changes:
        if key not in ("protocol", "seed") and key not in Protocol.model_fields:
            raise ConfigError(
                f"setting {key!r} changes the model, not its evaluation; "
                f"expected one of {', '.join(Protocol.model_fields)}. "
                "Train again with coterie run."
            )
    return Experiment.of(changed(before.flat(), changes) | {"patience": 0})
