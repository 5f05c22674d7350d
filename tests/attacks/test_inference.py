"""Inference attackers: they succeed where nothing is protected, and fail under a small budget."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")

from coterie.algorithms.registry import algorithm
from coterie.attacks.inference import InferenceResult, infer, scored
from coterie.cli.main import app
from coterie.core.progress import SILENT
from coterie.data.splits import split

ATTACKERS = {"loss", "rank shift", "gradient"}
SMALL = ["--set", "n_users=60", "--set", "n_items=40"]


def found(people: Any, name: str, **given: Any) -> dict[tuple[str, str], InferenceResult]:
    training = split(people, "temporal", 0.2, seed=0).training()
    chosen = algorithm(name)
    results = infer(chosen, chosen.settings.of(given), training, 0, SILENT)
    return {(each.attacker, each.noise): each for each in results}


def test_fedease(people):
    results = found(people, "fedease", epsilon=0.5)
    assert {attacker for attacker, _ in results} == ATTACKERS
    assert results["loss", "none"].auc > 0.9
    assert results["rank shift", "none"].auc > 0.8
    for attacker in ATTACKERS:
        private = results[attacker, "as in the run"].auc
        assert private < 0.65
        assert private < results[attacker, "none"].auc


def test_popular_has_no_gradient(people):
    results = found(people, "popular", epsilon=0.5)
    assert {attacker for attacker, _ in results} == ATTACKERS - {"gradient"}


def test_scores_by_hand():
    # Members at 3, 2 and -1; non-members at -3, -2 and 1. Of nine pairs, eight are in order.
    result = scored("x", "none", np.array([3.0, 2.0, -1.0]))
    assert result.auc == pytest.approx(8 / 9)
    assert result.tpr == pytest.approx(2 / 3)
    assert scored("x", "none", np.zeros(10)).auc == 0.5
    assert scored("x", "none", np.zeros(10)).tpr == 0


def test_true_positives_at_a_low_false_positive_rate():
    rng = np.random.default_rng(0)
    result = scored("x", "none", rng.normal(0.5, 1, 100_000))
    assert result.auc == pytest.approx(0.76, abs=0.01)  # Phi(1 / sqrt 2)
    assert result.tpr == pytest.approx(0.0183, abs=0.005)  # Phi(1 - 3.09)
    rates = [rate for _, rate in result.roc]
    assert rates == sorted(rates)


def test_the_command(tmp_path):
    run = str(tmp_path / "run")
    runner = CliRunner()
    made = runner.invoke(app, ["run", "fedease", "--epsilon", "2", *SMALL, "--out", run])
    assert made.exit_code == 0, made.output
    audited = runner.invoke(app, ["audit", run, "--json"])
    assert audited.exit_code == 0, audited.output
    shown = json.loads(audited.stdout)
    assert not shown["refuted"]
    assert {each["attacker"] for each in shown["inferences"]} == ATTACKERS
    assert "| canary |" in (tmp_path / "run" / "audit.md").read_text()
    claim = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert claim["epsilon"] == 2
    assert "single user more" in claim["text"]


def test_a_run_without_a_budget_is_refused(tmp_path):
    run = str(tmp_path / "run")
    runner = CliRunner()
    assert runner.invoke(app, ["run", "popular", *SMALL, "--out", run]).exit_code == 0
    refused = runner.invoke(app, ["audit", run])
    assert refused.exit_code != 0
    assert "without a privacy budget" in str(refused.exception) + refused.output
