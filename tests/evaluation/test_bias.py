"""Bias by category: hand-computed figures, items of several categories, and random models."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_table import Choosy, Table

from coterie import api
from coterie.data.interactions import Interactions, objects
from coterie.data.splits import split
from coterie.data.synthetic import Synthetic, generate
from coterie.evaluation.bias import Bias, by_category
from coterie.evaluation.evaluation import evaluate
from coterie.evaluation.protocols import Protocol
from coterie.report.markdown import markdown
from coterie.report.page import page


def items(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def test_by_hand():
    """Half of the four items are bars, a quarter is a park; four of five records are in bars."""
    categories = objects([("bar",), ("bar",), ("park",), ()])
    found = by_category(items(0, 0, 1, 1, 2), items(0, 2, 2, 3), categories)
    assert found["bar"] == Bias(
        pytest.approx(1.6), pytest.approx(0.5), pytest.approx((0.5 - 1.6) / 1.6)
    )
    assert found["park"] == Bias(pytest.approx(0.8), pytest.approx(2.0), pytest.approx(1.5))
    assert list(found) == ["bar", "park"]


def test_an_item_counts_in_each_of_its_categories():
    """Two of three films are funny, two are sad. A category that is listed twice counts once."""
    categories = objects([("funny", "funny"), ("funny", "sad"), ("sad",)])
    found = by_category(items(1, 1, 0, 2), items(2, 2), categories)
    assert found["funny"] == Bias(pytest.approx((3 / 4) / (2 / 3)), 0.0, -1.0)
    assert found["sad"] == Bias(
        pytest.approx((3 / 4) / (2 / 3)), pytest.approx(1.5), pytest.approx(1 / 3)
    )


def test_a_category_without_training_records_has_no_disparity():
    found = by_category(items(0), items(1), objects([("old",), ("new",)]))
    assert found["new"] == Bias(0.0, 2.0, None)
    assert found["old"] == Bias(2.0, 0.0, -1.0)


def test_no_lists_and_no_categories():
    assert by_category(items(0, 1), items(), objects([("a",), ("b",)]))["a"] == Bias(1.0, 0.0, -1.0)
    assert by_category(items(0, 1), items(0), objects([(), ()])) == {}


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 40))
def test_equals_plain_loops(seed, n_items, n_records):
    rng = np.random.default_rng(seed)
    categories = objects(
        [tuple(f"c{c}" for c in np.flatnonzero(rng.random(4) < 0.4)) for _ in range(n_items)]
    )
    trained, listed = rng.integers(0, n_items, (2, n_records)).astype(np.int32)
    found = by_category(trained, listed, categories)
    assert set(found) == {name for own in categories for name in own}
    for name, bias in found.items():
        held = sum(name in own for own in categories) / n_items
        for records, value in ((trained, bias.source), (listed, bias.recommended)):
            assert value == pytest.approx(
                sum(name in categories[item] for item in records) / n_records / held
            )


def test_lists_that_are_the_training_part_have_no_disparity():
    found = by_category(items(0, 0, 1, 2), items(0, 0, 1, 2), objects([("a",), ("b",), ("b",)]))
    assert [bias.disparity for bias in found.values()] == [0.0, 0.0]


# In an evaluation.


@pytest.fixture(scope="module")
def biased() -> Interactions:
    """Users who prefer some of eight item groups; lists of ten are a small part of all items."""
    return generate(Synthetic(n_users=800, n_items=1_500, n_groups=8, mean_interactions=20))


def test_random_lists_are_unbiased(biased):
    """B_R is 1 whatever users prefer, and BD is 1 / B_T - 1."""
    result = api.run("random", biased, protocol="holdout").result["bias"]
    categories = result["categories"]
    assert (result["k"], len(categories)) == (10, 8)
    assert max(abs(bias["source"] - 1) for bias in categories.values()) > 0.1
    for bias in categories.values():
        # 1,000 of 8,000 list positions: four standard errors are 0.12.
        assert bias["recommended"] == pytest.approx(1, abs=0.15)
        expected = 1 / bias["source"] - 1
        assert bias["disparity"] == pytest.approx(expected, abs=0.15 / bias["source"])


def test_chance_on_foursquare_italy(real_data):
    real_data("foursquare-italy", "Bologna.tsv")
    categories = api.run("random", "foursquare-italy").result["bias"]["categories"]
    assert len(categories) == 9
    for bias in categories.values():
        expected = 1 / bias["source"] - 1
        assert bias["disparity"] == pytest.approx(expected, abs=0.2 / bias["source"])


def test_most_popular_amplifies_bias(biased):
    bias = api.run("popular", biased, protocol="holdout").result["bias"]["categories"]
    best = max(bias, key=lambda name: bias[name]["recommended"])
    assert bias[best]["disparity"] > 0.2


@pytest.fixture(scope="module")
def six() -> Interactions:
    """Two users with items 0 1 2 and 0 1 3, newest last; even items are plain, odd ones fancy."""
    data = Interactions.from_columns(
        [0, 0, 0, 1, 1, 1, 2], [0, 1, 2, 0, 1, 3, 5], None, [1, 2, 3, 1, 2, 3, 9]
    )
    data = dataclasses.replace(data, item_ids=np.arange(6), item_order=np.arange(6, dtype=np.int32))
    data = dataclasses.replace(data, items=np.array([0, 1, 2, 0, 1, 3, 5], np.int32))
    return dataclasses.replace(data, item_categories=objects([("plain",), ("fancy",)] * 3))


def test_an_evaluation_by_hand(six):
    """Two of five training records are plain, as is half of the catalogue; both lists are 4 2."""
    parts = split(six, "leave-one-out", 0.2, seed=0)
    assert sorted(parts.train.items.tolist()) == [0, 0, 1, 1, 5]
    model = Table(np.tile(np.array([0, 0, 5, 1, 9, 2], np.float32), (3, 1)))
    found = evaluate(model, parts, Protocol(cutoffs=(2, 3), category_bias=True), None).bias
    assert found["plain"] == Bias(pytest.approx(0.8), 2.0, pytest.approx(1.5))
    assert found["fancy"] == Bias(pytest.approx(1.2), 0.0, -1.0)
    one = Choosy(np.array([[0, 0, 1, 5, 0, 4]] * 3, np.float32), np.array([True, False, True]))
    skipped = evaluate(one, parts, Protocol(cutoffs=(2,), category_bias=True), None).bias
    # Items 3 and 5 for the first user, and no list for the second.
    assert skipped["fancy"].recommended == 2.0


def test_reported_if_enabled_and_the_data_has_categories(six):
    parts = split(six, "leave-one-out", 0.2, seed=0)
    model = Table(np.zeros((3, 6), np.float32))
    assert evaluate(model, parts, Protocol(), None).bias is None
    plain = dataclasses.replace(parts, train=dataclasses.replace(parts.train, item_categories=None))
    assert evaluate(model, plain, Protocol(category_bias=True), None).bias is None
    enabled, disabled = (
        api.run("popular", dataset="synthetic", n_users=60, n_items=80, category_bias=enabled)
        for enabled in (True, False)
    )
    assert enabled.result["bias"]["k"] == 10
    assert disabled.result["bias"] is None
    assert enabled.metrics == disabled.metrics


def test_reports_show_it(biased):
    run = api.run("popular", biased, protocol="holdout")
    name, bias = next(iter(run.result["bias"]["categories"].items()))
    cells = f"<td>{name}</td><td>{bias['source']:.3f}</td><td>{bias['recommended']:.3f}</td>"
    assert cells in re.sub(r' data-label="[^"]*"', "", page([run]))
    without = dataclasses.replace(run, result={k: v for k, v in run.result.items() if k != "bias"})
    assert "Bias by category" in page([run, without])
    assert "Bias by category" not in page([without])


def test_reports_show_user_coverage(biased):
    run = api.run("popular", biased)
    skipping = dataclasses.replace(
        run, result=run.result | {"full": run.result["full"] | {"UC": 0.9375}}
    )
    assert "93.8% of the tested users are served; the others score 0." in markdown([skipping])
    assert "served" not in markdown([run])
