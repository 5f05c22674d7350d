"""The audit of a run folder: its claim is read from the run's settings and tested anew."""

from __future__ import annotations

import json
from pathlib import Path

from coterie.algorithms.registry import algorithm
from coterie.attacks.privacy_audit import (
    CONFIDENCE,
    AuditedSum,
    Finding,
    audit,
    sums_of_federation,
    sums_of_popular,
)
from coterie.baselines.popular import Popular
from coterie.core.progress import Progress
from coterie.errors import ConfigError
from coterie.experiments.config import Experiment
from coterie.experiments.preparation import Prepared, prepare
from coterie.experiments.run_folder import read_settings, write_text
from coterie.federated import trainer
from coterie.federated.federation import Federation
from coterie.federated.privacy.settings import is_private
from coterie.federated.settings import federation_settings
from coterie.types import JsonObject

HEADER = ["canary", "noise", "length", "epsilon, at least", "claim", "verdict"]


def audit_run(folder: Path, progress: Progress) -> list[Finding]:
    """Test the claim of a run."""
    experiment = Experiment.of(read_settings(folder))
    if not is_private(experiment.settings):
        raise ConfigError(
            f"{folder} was trained without a privacy budget; expected a run with epsilon. "
            "Train one with coterie run ALGORITHM --epsilon VALUE."
        )
    ready = prepare(experiment, None, progress)
    return audit(_sums(ready), ready.training.n_items, progress)


def _sums(ready: Prepared) -> list[AuditedSum]:
    experiment = ready.experiment
    train = algorithm(experiment.choice.algorithm).train
    if isinstance(experiment.settings, Popular):
        return sums_of_popular(experiment.settings, ready.training)
    assert isinstance(train, Federation)
    settings = federation_settings(experiment.settings)
    world = trainer.world_of(ready.training, settings, experiment.choice.seed, train)
    return sums_of_federation(train, world, ready.training)


def rows(findings: list[Finding]) -> list[list[str]]:
    return [
        [
            found.canary,
            found.noise,
            f"{found.length:.3f}",
            f"{found.epsilon:.2f}",
            "" if found.claimed is None else f"{found.claimed:g}",
            verdict(found),
        ]
        for found in findings
    ]


def verdict(found: Finding) -> str:
    if found.claimed is None:
        return "control"
    return "REFUTED" if found.refutes else "not refuted"


def summary(findings: list[Finding]) -> list[str]:
    """What the table shows, in words."""
    refuted = [found for found in findings if found.refutes]
    first = "No attack refutes the claim. That is no proof of it: an audit finds mistakes only."
    if refuted:
        first = f"The claim is refuted by {len(refuted)} of the attacks: the noise is too little."
    return [
        first,
        f"{findings[0].draws:,} releases each, half of them with the canary; bounds hold with a "
        f"confidence of {CONFIDENCE:.0%}. Length is what the canary adds to a sum, over the "
        "sensitivity that noise is made for. Controls are releases without noise.",
    ]


def save(findings: list[Finding], folder: Path) -> None:
    """Write audit.json and audit.md into the run folder."""
    write_text(folder, "audit.json", json.dumps(as_json(findings), indent=2) + "\n")
    table = [HEADER, ["---"] * len(HEADER), *rows(findings)]
    lines = [f"| {' | '.join(cells)} |" for cells in table]
    text = "\n\n".join(["# Audit", *summary(findings), "\n".join(lines)])
    write_text(folder, "audit.md", text + "\n")


def as_json(findings: list[Finding]) -> JsonObject:
    return {
        "refuted": any(found.refutes for found in findings),
        "confidence": CONFIDENCE,
        "findings": [found.as_json() for found in findings],
    }
