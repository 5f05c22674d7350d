"""Runs that their privacy budget ends: a result, one line and an exit code of its own."""

from __future__ import annotations

import json

import pytest
from calling import SMALL, call_apart

pytest.importorskip("dp_accounting")

STOPPED = ("run", "fcf", *SMALL, "--epsilon", "2", "--rounds", "50", "-q")


def test_a_run_stops_before_its_budget_is_passed(tmp_path):
    done = call_apart(*STOPPED, "--set", "noise_multiplier=6", "--out", "run", cwd=tmp_path)
    assert done.code == 4, done
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    rounds = result["rounds"]
    assert 1 < rounds < 50
    assert done.err.startswith(f"stopped: {rounds} of 50 rounds are done and have spent epsilon 1.")
    assert "of 2; with noise_multiplier=6, another would exceed it" in done.err
    assert "NDCG@10" in done.out
    claim = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert claim["epsilon_spent"] <= 2 == claim["epsilon"]
    assert claim["releases_made"] == claim["releases"] == rounds
    assert (tmp_path / "run" / "report.html").exists()
    again = call_apart("resume", "run", "-q", cwd=tmp_path)
    assert (again.code, again.err) == (4, done.err)


def test_a_budget_for_no_round_is_a_mistake(tmp_path):
    done = call_apart(*STOPPED, "--set", "noise_multiplier=1", "--out", "run", cwd=tmp_path)
    assert "'noise_multiplier' is 1, with which a single sum exceeds epsilon=2" in done.error
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_run_within_its_budget_ends_as_usual(tmp_path):
    done = call_apart(*STOPPED, "--out", "run", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    claim = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert (claim["stopped"], claim["releases_made"]) == ("", 50)
    assert claim["epsilon_spent"] == pytest.approx(2, rel=1e-3)
