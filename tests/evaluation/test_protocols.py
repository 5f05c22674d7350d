"""Protocols are those of the papers; an invalid setting is refused by name."""

from __future__ import annotations

import pytest

from coterie.errors import ConfigError, UnknownName
from coterie.evaluation.protocols import PROTOCOLS, Protocol, protocol


@pytest.mark.parametrize(
    ("name", "split", "candidates", "cutoffs", "shown"),
    [
        ("loo-50", "leave-one-out", 50, (10,), ("HR@10", "NDCG@10")),
        ("loo-99", "leave-one-out", 99, (10,), ("HR@10", "NDCG@10")),
        ("loo-100", "leave-one-out", 100, (20,), ("HR@20", "NDCG@20")),
        ("holdout", "temporal", 0, (10,), ("P@10", "R@10", "IC@10", "Gini@10")),
        ("holdout-10", "temporal", 10, (10,), ("AUC", "P@10", "NDCG@10")),
        ("full", "leave-one-out", 0, (10,), ("HR@10", "NDCG@10")),
        ("kfold-5", "k-fold", 0, (10,), ("R@10", "NDCG@10")),
        ("kfold-10", "k-fold", 0, (10,), ("R@10", "NDCG@10")),
    ],
)
def test_the_named_protocols(name, split, candidates, cutoffs, shown):
    found = protocol(name, {})
    assert (found.split, found.candidates, found.cutoffs, found.shown) == (
        split,
        candidates,
        cutoffs,
        shown,
    )


def test_every_protocol_is_pinned_above():
    of_papers = {"loo-50", "loo-99", "loo-100", "holdout", "holdout-10", "full"}
    assert set(PROTOCOLS) == of_papers | {"kfold-5", "kfold-10"}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"split": "k-fold"}, "split=k-fold needs at least two folds; folds is 0"),
        ({"folds": 5}, "folds is 5 and fold is 0, but split is leave-one-out"),
        ({"split": "k-fold", "folds": 3, "fold": 3}, "fold is 3, but there are 3 folds"),
        ({"repeat": 2}, "repeat is 2, but split=leave-one-out holds out the same"),
    ],
)
def test_folds_and_repeats_need_their_split(changes, complaint):
    with pytest.raises(ConfigError, match=complaint):
        protocol("full", changes)


def test_an_unknown_protocol_gets_a_suggestion():
    with pytest.raises(UnknownName, match=r"unknown protocol 'loo50'\. Did you mean 'loo-50'\?"):
        protocol("loo50", {})


@pytest.mark.parametrize(
    ("given", "cutoffs"),
    [(5, (5,)), ("20,5", (5, 20)), ([10, 5, 10], (5, 10)), ("7", (7,)), ((3, 1), (1, 3))],
)
def test_cutoffs_may_be_written_in_several_ways(given, cutoffs):
    assert protocol("full", {"cutoffs": given}).cutoffs == cutoffs


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cutoffs", 0),
        ("cutoffs", [5, -1]),
        ("cutoffs", []),
        ("cutoffs", "ten"),
        ("cutoffs", 2.5),
        ("cutoffs", True),
        ("fraction", 0),
        ("fraction", 1),
        ("fraction", float("nan")),
        ("candidates", -1),
        ("candidates", "many"),
        ("split", "newest"),
        ("headline", ["HRR"]),
        ("headline", []),
    ],
)
def test_an_invalid_value_is_refused_with_key_and_remedy(key, value):
    with pytest.raises(ConfigError) as error:
        Protocol.of({key: value})
    assert f"setting {key!r} is " in str(error.value)
    assert f"--set {key}=" in str(error.value)
