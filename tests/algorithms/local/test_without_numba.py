"""Without Numba, NumPy replaces the kernels; sums and draws are bit-identical."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from small_federation import histories, play_locally

from coterie import kernels
from coterie.core.progress import Progress
from coterie.kernels.fallback import clusters as slow_clusters
from coterie.kernels.fallback import sums as slow_sums
from coterie.types import NOT_FINITE, TOO_LARGE

some = settings(deadline=None, max_examples=80)
N_ITEMS = 9


class Listener(Progress):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(kernels, "_loaded", {})


# Loading.


def test_the_numpy_fallback_is_used_and_logged_once(no_numba):
    first = Listener()
    second = Listener()
    assert kernels.load("sums", first) is slow_sums
    assert kernels.load("sums", second) is slow_sums
    assert first.lines == [
        "Numba is not installed: the sums kernels use the slower NumPy fallback."
    ]
    assert second.lines == []


def test_a_kernel_without_a_fallback_names_the_remedy(no_numba):
    with pytest.raises(
        ModuleNotFoundError,
        match=r"als kernels need Numba, which is not installed.*pip install numba",
    ):
        kernels.load("als")


def test_a_broken_numba_is_an_error(monkeypatch):
    """A Numba that cannot be imported must not lead to slow training."""
    # Imported first, so that the whole of it is there again after the test.
    pytest.importorskip("numba")
    monkeypatch.delitem(sys.modules, "numba")
    for name in [name for name in sys.modules if name.startswith("llvmlite")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    monkeypatch.setattr(kernels, "_loaded", {})
    with pytest.raises(ImportError, match="llvmlite"):
        kernels.load("sums")


# Whole runs.


@pytest.mark.parametrize("name", ["fedfast", "fedavg"])
@pytest.mark.parametrize(
    "changes", [{}, {"batch_size": 4}, {"optimizer": "adam", "learning_rate": 0.01}], ids=str
)
def test_a_run_is_the_same_within_rounding(name, changes, monkeypatch):
    training = histories(1)
    expected = play_locally(name, training, **changes)[0]
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(kernels, "_loaded", {})
    found = play_locally(name, training, **changes)[0]
    assert sorted(kernels._loaded) == sorted(
        {"samples", "sums", "clusters", "gmf_batches" if changes else "gmf_users"}
    )
    for one, other in zip(found, expected, strict=True):
        for field, array in one.arrays().items():
            np.testing.assert_allclose(array, other.arrays()[field], atol=2e-5, err_msg=field)


def test_a_run_does_not_import_numba():
    """In a new process, where Numba was not imported before."""
    program = (
        "import sys; sys.modules['numba'] = None\n"
        "from small_federation import histories, play_locally\n"
        "print(len(play_locally('fedfast', histories(0), batch_size=8)[1]))"
    )
    search_path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": search_path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "4", done.stderr[-800:]


# Validation and sums.

entries = st.integers(-TOO_LARGE + 1, TOO_LARGE - 1) | st.integers(-2, 2)
known_items = st.integers(0, N_ITEMS - 1)
any_entries = entries | st.sampled_from([TOO_LARGE, -TOO_LARGE, NOT_FINITE, 2**31 - 1])


@st.composite
def cohorts(draw: st.DrawFn, item=known_items, entry=entries, ascending: bool = True):
    """Offsets, items, item rows (rows, 2), user rows (n, 2), dense (n, 3), samples."""
    lists = draw(st.lists(st.lists(item, max_size=5, unique=ascending), min_size=1, max_size=5))
    lists = [sorted(items) if ascending else items for items in lists]
    n = len(lists)
    n_rows = sum(map(len, lists))

    def block(*shape: int) -> np.ndarray:
        return draw(arrays.arrays(np.int32, shape, elements=entry))

    samples = np.array(draw(st.lists(st.integers(0, 1 << 23), min_size=n, max_size=n)), np.int64)
    offsets = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    items = np.array([item for items in lists for item in items], np.int32)
    return offsets, items, block(n_rows, 2), block(n, 2), block(n, 3), samples


@some
@given(cohorts(), st.integers(0, N_ITEMS), st.integers(0, N_ITEMS))
def test_sums_are_the_same(cohort, low, high):
    offsets, items, rows, _, _, samples = cohort
    compiled = kernels.load("sums")
    # Sums are added to previous values.
    start = np.arange(N_ITEMS * 2, dtype=np.int64).reshape(N_ITEMS, 2)
    found = []
    expected = []
    for family, results in ((slow_sums, found), (compiled, expected)):
        total = start.copy()
        touched = start[:, 0].copy()
        family.by_samples(offsets, items, rows, samples, low, high, total, touched)
        results += [total, touched]
        for n_by_change in (0, 1, 2):
            change = start.copy()
            weight = start.copy()
            family.by_change(offsets, items, rows, samples, n_by_change, low, high, change, weight)
            results += [change, weight]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@settings(deadline=None, max_examples=200)
@given(
    cohorts(
        st.integers(-1, N_ITEMS) | st.sampled_from([-(2**31), 2**31 - 1]),
        any_entries,
        ascending=False,
    )
)
def test_the_check_finds_the_same_faults(cohort):
    offsets, items, rows, users, dense, _ = cohort
    found = np.full(len(users), 9, np.int8)
    expected = np.full(len(users), 9, np.int8)
    for family, faults in ((slow_sums, found), (kernels.load("sums"), expected)):
        measured = np.empty(len(rows)), np.empty(len(users))
        family.check(offsets, items, rows, users, dense, N_ITEMS, 0, len(users), faults, *measured)
    np.testing.assert_array_equal(found, expected)


# Clusters.


@st.composite
def clusterings(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, int, int, int]:
    """Rows, labels (-1 for a user in no cluster), the number of clusters and a range of users."""
    n = draw(st.integers(1, 30))
    d = draw(st.integers(1, 9))
    n_clusters = draw(st.integers(1, 6))
    numbers = st.floats(-8, 8, width=32) | st.sampled_from([0.0, 1.0, -1.0])
    rows = draw(arrays.arrays(np.float32, (n, d), elements=numbers))
    labels = draw(arrays.arrays(np.int32, n, elements=st.integers(-1, n_clusters - 1)))
    first = draw(st.integers(0, n))
    return rows, labels, n_clusters, first, draw(st.integers(first, n))


@some
@given(clusterings(), st.integers(1, 7))
def test_totals_of_clusters_have_the_same_bits(clustering, size):
    rows, labels, n_clusters, _, _ = clustering
    n_blocks = -(-len(rows) // size)
    results = []
    for family in (slow_clusters, kernels.load("clusters")):
        sums = np.full((n_blocks, n_clusters, rows.shape[1]), np.nan)
        counts = np.full((n_blocks, n_clusters), -1)
        family.add_up(rows, labels, size, 0, n_blocks, sums, counts)
        results.append((sums, counts))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])


@some
@given(clusterings(), st.integers(0, 10**6))
def test_the_nearest_centre_is_the_same_one(clustering, seed):
    """Ties included: rows with few distinct numbers produce them."""
    rows, labels, n_clusters, first, last = clustering
    rng = np.random.default_rng(seed)
    centres = np.ascontiguousarray(rows[rng.integers(0, len(rows), n_clusters)].T)
    half = (centres.T * centres.T).sum(axis=1) / np.float32(2)
    found = labels.copy()
    expected = labels.copy()
    changed = slow_clusters.assign(rows, centres, half, first, last, found)
    assert changed == kernels.load("clusters").assign(rows, centres, half, first, last, expected)
    np.testing.assert_array_equal(found, expected)


@some
@given(clusterings(), st.integers(0, 2**64 - 1), st.floats(0, 1))
def test_moves_and_lots_are_the_same(clustering, key, share):
    rows, labels, n_clusters, first, last = clustering
    moves = np.linspace(-1, 1, n_clusters * rows.shape[1], dtype=np.float32).reshape(n_clusters, -1)
    still = np.arange(len(rows)) % 3 == 0
    thresholds = np.full(n_clusters, int(share * (2**63)), np.uint64) * np.uint64(2)
    results = []
    for family in (slow_clusters, kernels.load("clusters")):
        moved = rows.copy()
        drawn = np.zeros(len(rows), bool)
        family.move_along(moved, labels, still, moves, first, last)
        family.draw_lots(labels, np.uint64(key), thresholds, first, last, drawn)
        results.append((moved, drawn))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_array_equal(results[0][1], results[1][1])
