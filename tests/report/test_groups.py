"""Unlike runs never share a table: groups, their headings and the flag above them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import coterie
from coterie.evaluation.direction import lower_is_better
from coterie.evaluation.protocols import ACCURACY, RATING_ERRORS
from coterie.experiments.finished_run import Run
from coterie.report.conditions import UNKNOWN, facts
from coterie.report.groups import grouped, warning
from coterie.report.markdown import markdown
from coterie.report.metric_words import HIGHER, LOWER, best_of, explained
from coterie.report.steps import step_name, steps_text
from coterie.report.table import all_notes, labels, settings_lines, table


@pytest.fixture(scope="module")
def popular() -> Run:
    return coterie.run("popular", n_users=60, n_items=90, mean_interactions=9)


def with_result(run: Run, **changes: Any) -> Run:
    return replace(run, result=run.result | changes)


def sections(text: str) -> dict[str, list[str]]:
    """The rows of the table under every heading."""
    parts = re.split("^## ", text, flags=re.MULTILINE)[1:]
    return {
        part.splitlines()[0]: re.findall(r"^\| (\w+) \| \d", part, re.MULTILINE) for part in parts
    }


UNLIKE = {
    "dataset": {"dataset": "ml-100k"},
    "fingerprint": {"data": "0123456789"},
    "filters": {"filters": {"core": 5}},
    "protocol": {"protocol": "loo-100"},
    "split": {"evaluation": {"split": "random", "fraction": 0.2}},
}


@pytest.mark.parametrize("changes", UNLIKE.values(), ids=UNLIKE)
def test_unlike_runs_have_their_own_heading(popular: Run, changes: dict[str, Any]) -> None:
    if "evaluation" in changes:
        changes = {"evaluation": popular.result["evaluation"] | changes["evaluation"]}
    same = with_result(popular, algorithm="random", seed=3, settings={"a": 1})
    other = with_result(popular, algorithm="ease", **changes)
    text = markdown([popular, other, same])
    assert list(sections(text).values()) == [["popular", "random"], ["ease"]]
    assert len(sections(text)) == 2, "headings differ"
    assert "not comparable with each other" in text
    assert "not comparable" not in markdown([popular, same])


def test_the_flag_and_the_headings_say_what_differs(popular: Run) -> None:
    core = with_result(popular, filters={"core": 5}, data="fedcba9876")
    groups = grouped([popular, core])
    assert [group.title for group in groups] == [
        "synthetic, loo-50, filters: none",
        "synthetic, loo-50, filters: core 5",
    ]
    assert "they differ in the data's fingerprint and filters." in warning(groups)
    refiltered = grouped([popular, with_result(popular, data="fedcba9876")])
    assert refiltered[1].title == "synthetic, loo-50, data fedcba98"


def test_a_run_of_an_earlier_version_is_compared_by_its_fingerprint(popular: Run) -> None:
    earlier = replace(
        popular,
        result={
            key: value
            for key, value in popular.result.items()
            if key not in ("filters", "evaluation", "quantiles", "synthetic")
        },
    )
    assert len(grouped([with_result(earlier, synthetic={"n_users": 60}), earlier])) == 2
    assert len(grouped([with_result(popular, synthetic=None), earlier])) == 1
    assert {fact.name: fact.lines for fact in facts(earlier.result)}["Filters"] == [UNKNOWN]


def test_conditions_are_on_the_report(popular: Run) -> None:
    text = markdown([with_result(popular, filters={"min_rating": 4.0, "core": 5})])
    assert f"- Data: synthetic, fingerprint {popular.result['data'][:8]}" in text
    assert "- Filters: min_rating 4.0, core 5" in text
    assert "- Split: leave-one-out" in text
    assert "- Protocol: loo-50: ranked among 50 sampled candidates per user; lists of 10" in text
    bpr = with_result(popular, algorithm="bpr", settings={"epochs": 2, "learning_rate": 0.05})
    assert "- Settings of bpr (bpr): epochs 2, learning_rate 0.05" in markdown([bpr])


def test_settings_of_runs_that_share_a_label_are_listed_once(popular: Run) -> None:
    runs = [with_result(popular, settings={"a": 1}), with_result(popular, settings={"a": 1})]
    assert settings_lines(runs, ["x", "x"]) == ["x (popular): a 1"]
    assert len(set(labels(runs))) == 2


def test_notes_that_all_share_have_no_names_and_targets_count_what_they_are(popular: Run) -> None:
    reached = {"metric": "HR@10", "target": 0.4, "rounds_to_target": 2, "updates_to_target": None}
    never = reached | {"rounds_to_target": None}
    shared, first, second = all_notes(
        [
            with_result(popular, settings={"epochs": 9}, convergence=reached),
            with_result(popular, settings={"rounds": 9}, convergence=never),
        ],
        names=["a", "b"],
    )
    assert "users tested; trained on" in shared
    assert first == "a: HR@10 first reached 0.4 after 2 epochs."
    assert second == "b: HR@10 never reached 0.4."


def test_steps_are_called_what_they_are(popular: Run) -> None:
    assert step_name(popular.result) == "step"
    assert step_name(popular.result | {"settings": {"epochs": 3}}) == "epochs"
    assert step_name(popular.result | {"settings": {"rounds": 3, "local_epochs": 1}}) == "rounds"
    assert step_name({"bytes_down": 1}) == "rounds"
    assert step_name({"bytes_down": 0}) == "epochs"
    assert [steps_text("1", "epochs"), steps_text("20", "rounds")] == ["1 epoch", "20 rounds"]


def test_the_best_value_is_bold_in_its_direction(popular: Run) -> None:
    assert best_of("HR@10", [0.1, 0.3, None, 0.3]) == {1, 3}
    assert best_of("RMSE", [0.9, 0.8]) == {1}
    assert best_of("IC@10", [5.0, 9.0]) == set(), "more items are not better in themselves"
    assert best_of("HR@10", [0.5]) == set(), "one run has nothing to compare with"
    better = with_result(popular, seed=1, metrics=popular.metrics | {"HR@10": 1.0})
    found = table([popular, better])
    assert (1, found.header.index("HR@10")) in found.bold
    assert (0, found.header.index("HR@10")) not in found.bold
    assert "| **1.0000** |" in markdown([popular, better])


def test_directions_are_those_of_the_evaluation() -> None:
    assert HIGHER == ACCURACY
    assert LOWER == RATING_ERRORS
    assert all(lower_is_better(name) for name in LOWER)


def test_every_metric_of_a_run_is_explained(popular: Run) -> None:
    assert all(explained(name) for name in {**popular.metrics, **popular.full})
    assert explained("HR@20") == "share of users with a held-out item among the first 20"
    assert explained("served:HR@10") == "HR@10, over the served users only"
