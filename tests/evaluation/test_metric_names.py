"""Names of metrics that other libraries use mean Coterie's; wrong ones get a suggestion."""

from __future__ import annotations

import pytest

from coterie.errors import ConfigError
from coterie.evaluation.metric_names import ALIASES, BUILT_IN, MetricValues, canonical, parse
from coterie.evaluation.protocols import protocol


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("Recall@10", "R@10"),
        ("Precision@10", "P@10"),
        ("MAP@10", "MAP@10"),
        ("MRR@10", "MRR@10"),
        ("Hit@10", "HR@10"),
        ("HitRate@10", "HR@10"),
        ("hit_rate@5", "HR@5"),
        ("hit-ratio@5", "HR@5"),
        ("nDCG@10", "NDCG@10"),
        ("ndcg", "NDCG"),
        ("ItemCoverage@10", "IC@10"),
        ("NOVELTY@7", "Nov@7"),
        ("calib", "Calib"),
        ("rmse", "RMSE"),
        ("full:recall@10", "full:R@10"),
    ],
)
def test_names_of_other_libraries(text: str, ours: str) -> None:
    assert canonical(text) == ours


def test_every_own_name_means_itself() -> None:
    assert [parse(name).name for name in BUILT_IN] == list(BUILT_IN)
    assert set(ALIASES.values()) <= set(BUILT_IN)


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [("Recal@10", "Recall"), ("NDGC", "NDCG"), ("Noveltyy", "Novelty"), ("HRR", "HR")],
)
def test_a_wrong_name_gets_a_suggestion(text: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=f"is not a metric. Did you mean '{suggestion}'"):
        protocol("full", {"headline": text})


@pytest.mark.parametrize("text", ["R@", "R@0", "R@-1", "R@ten", "R@1.5"])
def test_a_wrong_cutoff_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="the cut-off of"):
        protocol("full", {"metrics": text})


def test_a_named_cutoff_replaces_that_of_the_protocol() -> None:
    found = protocol("loo-100", {"headline": "Recall@5,nDCG@5"})
    assert found.shown == ("R@5", "NDCG@5")
    assert protocol("loo-100", {"headline": "Recall"}).shown == ("R@20",)


def test_a_named_cutoff_adds_to_those_that_are_set() -> None:
    found = protocol("full", {"cutoffs": "5,10", "metrics": ["Precision@20"]})
    assert found.cutoffs == (5, 10, 20)
    assert "P@20" in found.shown


def test_values_are_found_by_names_of_other_libraries() -> None:
    values = MetricValues({"R@10": 0.5, "NDCG@10": 0.25})
    assert values["Recall@10"] == values["R@10"] == 0.5
    assert values["ndcg@10"] == 0.25
    with pytest.raises(KeyError, match=r"unknown metric 'Recall@20'\. Did you mean 'R@10'"):
        values["Recall@20"]
