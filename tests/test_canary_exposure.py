"""The benchmark behind docs/policy.md on a small node: what a hostile server learns of a user."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("cryptography")

WORKING = "the canary alone", "evaluation of models made for the canary"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
        import canary_exposure  # type: ignore[import-not-found]
    return canary_exposure


@pytest.fixture(scope="module")
def found(script, few_people) -> dict[tuple[str, str], dict]:
    scene = script.scene_of(few_people, 14)
    records = [
        *script.measure(scene, 100, ["no limits"], WORKING),
        *script.measure(scene, 50, ["invited", "strict"]),
    ]
    return {(one["node"], one["questions"]): one for one in records}


def test_a_policy_without_limits_lets_the_history_out(found):
    """So the attacks work, and the figures of other policies mean something."""
    alone = found["no limits", "the canary alone"]
    assert (alone["auc"], alone["right"]) == (1.0, alone["history"])
    made = found["no limits", "evaluation of models made for the canary"]
    assert made["held_out_found"]
    assert made["auc"] > 0.8
    assert made["right"] == made["claimed"] > 0


def test_an_invited_node_answers_no_question_about_one_user(found):
    """Under the default policy. Sums over groups are left, of which no two differ by one user."""
    for (node, kind), one in found.items():
        if node == "invited" and kind != "evaluation item by item":
            assert (one["auc"], one["claimed"], one["held_out_found"]) == (0.5, 0, False), kind
    assert found["invited", "evaluation groups that differ by the canary"]["answered"] > 0


def test_a_strict_policy_gives_nothing_away(found):
    for (node, _), one in found.items():
        if node == "strict":
            assert (one["answered"], one["auc"], one["claimed"]) == (0, 0.5, 0)


def test_the_area_under_the_curve(script):
    """Three of the four pairs are in the right order, and one ties."""
    scores = np.array([3.0, 1.0, 1.0, 0.0])
    relevant = np.array([True, True, False, False])
    assert script.auc(scores, relevant) == 3.5 / 4
