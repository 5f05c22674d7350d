"""Quantized vectors: the loss of precision, and the bytes that are sent."""

from __future__ import annotations

import time

import numpy as np
import pytest

from coterie.evaluation.ranking import best_items
from coterie.models.directions import Directions, quantize_rows
from coterie.types import Floats


def unit_rows(n: int, k: int = 128, seed: int = 0) -> Floats:
    rows = np.random.default_rng(seed).normal(size=(n, k))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    ("precision", "bytes_each", "error"),
    [("float32", 4, 0), ("float16", 2, 2e-4), ("int8", 1, 5e-3)],
)
def test_scores_are_cosines_up_to_the_precision(precision, bytes_each, error):
    people = unit_rows(7, seed=1)
    items = unit_rows(300)
    model = Directions(people, *quantize_rows(items, precision))
    scores = model.score(np.arange(7, dtype=np.int32))
    exact = people.astype(np.float64) @ items.T
    assert np.abs(scores - exact).max() <= error + 1e-6
    some = np.array([[3, 299, 0]] * 7, np.int32)
    np.testing.assert_allclose(
        model.score(np.arange(7, dtype=np.int32), some), scores[:, [3, 299, 0]], atol=1e-6
    )
    assert model.download == 300 * (128 * bytes_each + (4 if precision == "int8" else 0))


def test_a_row_of_zeros_stays_one():
    rows, units = quantize_rows(np.zeros((2, 4), np.float32), "int8")
    assert not rows.any()
    assert (units == 1).all()


def test_int8_by_hand():
    rows, units = quantize_rows(np.array([[0.5, -0.25, 0.1]], np.float32), "int8")
    assert rows.tolist() == [[127, -64, 25]]  # -63.5 goes to the even one
    assert units[0] == pytest.approx(0.5 / 127)


@pytest.mark.parametrize("k", [1, 10, 299, 300, 400])
def test_the_best_are_those_of_a_full_sort_ties_by_number(k):
    scores = np.random.default_rng(2).integers(0, 40, 400).astype(np.float32)
    seen = np.arange(0, 400, 4, dtype=np.int32)
    expected = sorted(set(range(400)) - set(seen.tolist()), key=lambda i: (-scores[i], i))[:k]
    assert best_items(scores, seen, k).tolist() == expected


def test_a_hundred_thousand_items_take_milliseconds():
    model = Directions(unit_rows(1), *quantize_rows(unit_rows(100_000), "float32"))
    nobody = np.zeros(1, np.int32)
    seen = np.arange(50, dtype=np.int32)
    times = []
    for _ in range(7):
        began = time.perf_counter()
        best_items(model.score(nobody)[0], seen, 10)
        times.append(time.perf_counter() - began)
    assert sorted(times)[3] < 0.1  # 3.6 ms on an idle core
