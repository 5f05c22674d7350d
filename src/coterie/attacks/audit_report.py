"""The audit of a run folder: its claim is read from the run's settings and tested anew."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from coterie.algorithms.registry import algorithm
from coterie.attacks.inference import InferenceResult, infer
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

INFERENCE_HEADER = ["attacker", "noise", "targets", "AUC", "TPR at 0.1 % FPR"]
HEADER = ["canary", "noise", "length", "epsilon, at least", "claim", "verdict"]


@dataclass(frozen=True, slots=True)
class Audit:
    """What an audit found."""

    findings: list[Finding]
    inferences: list[InferenceResult]

    @property
    def refuted(self) -> bool:
        return any(found.refutes for found in self.findings)

    def as_json(self) -> JsonObject:
        return {
            "refuted": self.refuted,
            "confidence": CONFIDENCE,
            "findings": [found.as_json() for found in self.findings],
            "inferences": [found.as_json() for found in self.inferences],
        }


def audit_run(folder: Path, with_inference: bool, progress: Progress) -> Audit:
    """Test the claim of a run."""
    experiment = Experiment.of(read_settings(folder))
    if not is_private(experiment.settings):
        raise ConfigError(
            f"{folder} was trained without a privacy budget; expected a run with epsilon. "
            "Train one with coterie run ALGORITHM --epsilon VALUE."
        )
    ready = prepare(experiment, None, progress)
    findings = audit(_sums(ready), ready.training.n_items, progress)
    inferences = []
    if with_inference:
        chosen = algorithm(experiment.choice.algorithm)
        settings = ready.experiment.settings
        inferences = infer(chosen, settings, ready.training, experiment.choice.seed, progress)
    return Audit(findings, inferences)


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


def inference_rows(inferences: list[InferenceResult]) -> list[list[str]]:
    return [
        [found.attacker, found.noise, f"{found.targets:,}", f"{found.auc:.3f}", f"{found.tpr:.3f}"]
        for found in inferences
    ]


def verdict(found: Finding) -> str:
    if found.claimed is None:
        return "control"
    return "REFUTED" if found.refutes else "not refuted"


def summary(audited: Audit) -> list[str]:
    """What the tables show, in words."""
    refuted = [found for found in audited.findings if found.refutes]
    first = "No attack refutes the claim. That is no proof of it: an audit finds mistakes only."
    if refuted:
        first = f"The claim is refuted by {len(refuted)} of the attacks: the noise is too little."
    lines = [
        first,
        f"{audited.findings[0].draws:,} releases each, half of them with the canary; bounds hold "
        f"with a confidence of {CONFIDENCE:.0%}. Length is what the canary adds to a sum, over the "
        "sensitivity that noise is made for. Controls are releases without noise.",
    ]
    if audited.inferences:
        lines.append(
            "Inference: models of two halves of the data, with noise as in the run and without "
            "any. AUC 0.5 is a guess. loss and gradient tell users, rank shift single interactions."
        )
    return lines


def save(audited: Audit, folder: Path) -> None:
    """Write audit.json and audit.md into the run folder."""
    write_text(folder, "audit.json", json.dumps(audited.as_json(), indent=2) + "\n")
    parts = ["# Audit", *summary(audited), _table(HEADER, rows(audited.findings))]
    if audited.inferences:
        parts.append(_table(INFERENCE_HEADER, inference_rows(audited.inferences)))
    write_text(folder, "audit.md", "\n\n".join(parts) + "\n")


def _table(header: list[str], cells: list[list[str]]) -> str:
    table = [header, ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in table)
