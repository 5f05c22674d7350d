"""Judging a run's model again. The data and the split are rebuilt from its config and must be what they were."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.core.progress import Progress
from coterie.errors import ConfigError, RunError
from coterie.evaluation import leaks
from coterie.evaluation.evaluation import evaluate
from coterie.evaluation.protocols import Protocol
from coterie.experiments.config import Experiment, changed, read_file
from coterie.experiments.folder import read_candidates
from coterie.experiments.preparation import hold_out, load_data
from coterie.experiments.results import verdict
from coterie.experiments.run import Run


def reevaluate(folder: Path, changes: dict[str, Any], progress: Progress) -> Run:
    """The run with metrics by a changed protocol; nothing is written."""
    finished = Run.load(folder)
    before = Experiment.of(read_file(str(folder / "config.yaml")))
    after = _with(before, changes)
    data = load_data(before, progress)
    if data.fingerprint() != finished.result["data"]:
        raise RunError(
            f"{folder}: the data {before.choice.dataset!r} is not what the model was trained on any more. Train again."
        )
    trained_on, _ = hold_out(before, data)
    parts, candidates = hold_out(after, data)
    leaks.check_untouched(
        parts.test, trained_on, f"split={before.protocol.split} and seed={before.choice.seed}"
    )
    if candidates is not None and (after.protocol, after.choice.seed) == (
        before.protocol,
        before.choice.seed,
    ):
        candidates = read_candidates(folder)
    judged = evaluate(finished.model, parts, after.protocol, candidates, progress)
    result = (
        finished.result | verdict(after, parts, judged) | {"judged_with_seed": after.choice.seed}
    )
    return replace(finished, result=result, evaluation=judged)


def _with(before: Experiment, changes: dict[str, Any]) -> Experiment:
    """The run's experiment, judged otherwise; how long it trained is over and done with."""
    for key in changes:
        if key not in ("protocol", "seed") and key not in Protocol.model_fields:
            raise ConfigError(
                f"setting {key!r} would change the model, not how it is judged; expected one of {', '.join(Protocol.model_fields)}. "
                "Train again with coterie run."
            )
    return Experiment.of(changed(before.flat(), changes) | {"patience": 0})
