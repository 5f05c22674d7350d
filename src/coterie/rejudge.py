"""Judging a run's model again. The data and the split are rebuilt from its config; the leak check guards the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from coterie.config import Experiment, read_file
from coterie.errors import ConfigError, LeakError
from coterie.evaluate.evaluation import evaluate
from coterie.evaluate.protocols import PROTOCOLS, Protocol
from coterie.experiment import hold_out, load_data
from coterie.finished import Run
from coterie.progress import Watch


def rejudge(folder: Path, changes: dict[str, Any], watch: Watch) -> Run:
    """The run with metrics by a changed protocol; nothing is written."""
    finished = Run.load(folder)
    before = Experiment.of(read_file(str(folder / "config.yaml")))
    after = _changed(before, changes)
    data = load_data(before, watch)
    trained_on, _ = hold_out(before, data)
    parts, candidates = hold_out(after, data)
    if np.isin(parts.test.pairs(), trained_on.train.pairs()).any():
        raise LeakError(
            f"the model of {folder} was trained on what this protocol tests; expected the run's own split "
            f"(split={before.protocol.split}, seed={before.choice.seed}). Keep both, or train again."
        )
    judged = evaluate(finished.model, parts, after.protocol, candidates, watch)
    result = finished.result | {
        "protocol": after.choice.protocol,
        "judged_with_seed": after.choice.seed,
        "metrics": judged.metrics,
        "full": judged.full,
        "headline": list(after.protocol.shown),
    }
    return replace(finished, result=result, evaluation=judged)


def _changed(before: Experiment, changes: dict[str, Any]) -> Experiment:
    """A named protocol replaces the run's settings; single settings change on top of that."""
    for key in changes:
        if key not in ("protocol", "seed") and key not in Protocol.model_fields:
            raise ConfigError(
                f"setting {key!r} would change the model, not how it is judged; expected one of {', '.join(Protocol.model_fields)}. Train again with coterie run."
            )
    flat = before.flat()
    if changes.get("protocol") in PROTOCOLS:
        flat |= Protocol().model_dump() | PROTOCOLS[changes["protocol"]]
    return Experiment.of(flat | changes)
