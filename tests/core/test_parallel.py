"""Work over ranges: every row once for any threads and load; errors of a thread propagate."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.core import parallel


@pytest.fixture(autouse=True)
def _keep_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COTERIE_THREADS", "2")


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 5), st.lists(st.integers(0, 50), max_size=60), st.integers(1, 40), st.booleans()
)
def test_every_row_is_worked_on_once(threads, loads, smallest, weighted):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COTERIE_THREADS", str(threads))
        times = np.zeros(len(loads), np.int64)

        def work(first: int, last: int) -> None:
            times[first:last] += 1

        load = np.concatenate([[0], np.cumsum(loads)]).astype(np.int64) if weighted else len(loads)
        parallel.over(work, load, smallest)
    assert times.tolist() == [1] * len(loads)


def test_work_that_has_a_price_per_call_is_cut_once_a_thread():
    calls = []
    parallel.over(lambda first, last: calls.append(last - first), 100, smallest=32)
    assert sorted(calls) == [50, 50]


def test_no_other_thread_is_woken_for_little_work():
    threads = set()
    with parallel.on_this_thread():
        parallel.over(lambda first, last: threads.add((threading.get_ident(), last - first)), 100)
    assert threads == {(threading.get_ident(), 100)}
    calls = []
    parallel.over(lambda first, last: calls.append(last - first), 100)
    assert len(calls) > 1


@pytest.mark.parametrize("bad", range(8))
def test_a_failure_in_any_range_reaches_the_caller(bad):
    def work(first: int, last: int) -> None:
        if first <= bad * 10 < last:
            raise ArithmeticError(f"row {bad * 10}")

    with pytest.raises(ArithmeticError, match=f"row {bad * 10}"):
        parallel.over(work, 80)


def test_no_thread_works_on_after_a_failure_was_reported():
    from threading import Event

    slow_began = Event()
    done = []

    def work(first: int, last: int) -> None:
        if first == 0:
            slow_began.wait(5)
            raise ArithmeticError
        slow_began.set()
        done.append(first)

    with pytest.raises(ArithmeticError):
        parallel.over(work, 80)
    before = list(done)
    assert len(before) == 7
    assert done == before
