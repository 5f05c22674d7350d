"""Discrete Gaussian noise: its distribution, a slow twin, and the streams it is drawn from."""

from __future__ import annotations

import math
import sys
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from coterie.errors import MissingExtra
from coterie.federated.privacy import discrete_gaussian as module
from coterie.federated.privacy.discrete_gaussian import (
    MAX_LOG2_SIGMA,
    WordSource,
    discrete_gaussian,
    seeded_words,
    system_words,
    words_from_key,
)
from coterie.federated.privacy.staircase import exact_sample, exp_bounds, staircase
from coterie.types import Longs

DRAWS = 1_000_000
SCALES = [0, 1, 6, 12]
KEY = bytes(range(32))


@pytest.fixture(scope="module", params=SCALES)
def drawn(request) -> tuple[int, Longs]:
    k = request.param
    return k, discrete_gaussian(DRAWS, k, seeded_words(np.random.default_rng(25 + k)))


def weights(k: int) -> tuple[Longs, np.ndarray]:
    """Integers within 12 sigma, and their probabilities."""
    y = np.arange(-12 * 2**k, 12 * 2**k + 1)
    p = np.exp(-0.5 * (y / 2.0**k) ** 2)
    return y, p / p.sum()


# Distribution


def test_mean_and_variance(drawn):
    k, sample = drawn
    y, p = weights(k)
    variance = float((p * y.astype(float) ** 2).sum())
    fourth = float((p * y.astype(float) ** 4).sum())
    assert abs(sample.mean()) < 4 * math.sqrt(variance / DRAWS)
    error = math.sqrt((fourth - variance**2) / DRAWS)
    assert abs(float((sample.astype(float) ** 2).mean()) - variance) < 4 * error


def test_frequencies(drawn):
    k, sample = drawn
    y, p = weights(k)
    # Bins of equal width, and one for each tail beyond 3.5 sigma.
    width = max(1, 2**k // 16)
    inner = int(3.5 * 2**k) // width * width
    edges = np.concatenate([[y[0] - 1], np.arange(-inner, inner + 1, width), [y[-1] + 1]])
    expected = np.add.reduceat(p, np.searchsorted(y, edges[:-1])) * DRAWS
    observed = np.histogram(sample, edges)[0]
    assert observed.sum() == DRAWS
    assert expected.min() > 20
    assert stats.chisquare(observed, expected * DRAWS / expected.sum()).pvalue > 1e-4


def test_low_bits_are_uniform():
    """Where sigma is large, the last byte has no preference."""
    sample = discrete_gaussian(200_000, 20, seeded_words(np.random.default_rng(3)))
    assert stats.chisquare(np.bincount(sample & 255, minlength=256)).pvalue > 1e-4


def test_signs_are_even(drawn):
    _, sample = drawn
    positive = int((sample > 0).sum())
    assert stats.binomtest(positive, int((sample != 0).sum())).pvalue > 1e-4


def test_zero_is_not_counted_twice(drawn):
    """Were -0 a sample, zero would be twice as frequent: at sigma = 1, 0.57 in place of 0.40."""
    k, sample = drawn
    y, p = weights(k)
    expected = float(p[y == 0][0])
    deviation = math.sqrt(expected * (1 - expected) / DRAWS)
    assert abs(float((sample == 0).mean()) - expected) < 4 * deviation


def test_neighbours_are_independent(drawn):
    _, sample = drawn
    assert abs(np.corrcoef(sample[1:], sample[:-1])[0, 1]) < 4 / math.sqrt(DRAWS)


# The staircase


def curve(y: int, k: int) -> Decimal:
    """exp(-y^2 / (2 sigma^2)) with 60 digits, of a library of its own."""
    with localcontext() as context:
        context.prec = 60
        return (-(Decimal(y) ** 2) / Decimal(2 << 2 * k)).exp()


@pytest.mark.parametrize("per_sigma", [1, 2, 4, 8, 16, 32])
def test_the_staircase_covers_the_curve(per_sigma):
    stairs = staircase(per_sigma)
    assert stairs.n_sure < stairs.n_columns < stairs.n_bricks <= 1 << 14
    k = per_sigma.bit_length() - 1
    piles = np.bincount(stairs.column[: stairs.n_columns])
    sure = np.bincount(stairs.column[: stairs.n_sure], minlength=len(piles))
    assert len(piles) == 6 * per_sigma == len(stairs.left)
    for j, (pile, below, left) in enumerate(
        zip(piles.tolist(), sure.tolist(), stairs.left.tolist(), strict=True)
    ):
        assert pile - 1 < stairs.height * curve(j, k) <= pile
        assert below <= stairs.height * curve(j + 1, k) < below + 1
        assert 0 <= curve(j, k) - Decimal(left) / 2**62 < Decimal(2) ** -61
    # Each level of a column once; those below the curve come first.
    bricks = np.stack([stairs.column, stairs.level])[:, : stairs.n_columns]
    assert len(np.unique(bricks, axis=1).T) == stairs.n_columns
    assert (stairs.level[: stairs.n_columns] < piles[stairs.column[: stairs.n_columns]]).all()
    assert (stairs.level[: stairs.n_sure] < sure[stairs.column[: stairs.n_sure]]).all()
    # The tail covers the curve from 6 sigma on, where its height is largest beside it.
    bricks_of_tail = stairs.n_bricks - stairs.n_columns
    for v in range(20):
        height_of_tail = Fraction(bricks_of_tail, 2 * per_sigma * stairs.height * 2**v)
        assert curve(6 + v, 0) <= Decimal(height_of_tail.numerator) / height_of_tail.denominator


@given(st.integers(0, 2000), st.integers(1, 100), st.integers(1, 300))
def test_bounds_of_the_exponential_hold(numerator, denominator, bits):
    low, high = exp_bounds(numerator, denominator, bits)
    with localcontext() as context:
        context.prec = 1200
        exact = (-Decimal(numerator) / denominator).exp() * 2**bits
        assert low <= exact <= high
    assert high - low <= 2


# The slow twin


class Twin:
    """One point of the staircase after the other, in fractions and decimals, from the same bits."""

    def __init__(self, words: list[int], k: int) -> None:
        self.halves = iter([half for word in words for half in (word % 2**32, word >> 32)])
        self.k = k
        self.stairs = staircase(2 ** min(k, 5))

    def sample(self) -> int:
        while True:
            y = self.candidate()
            if y is not None:
                return y

    def candidate(self) -> int | None:
        half = next(self.halves)
        brick, negative, place = half % 2**14, half >> 14 & 1, half >> 15
        stairs, sigma = self.stairs, 2**self.k
        if brick >= stairs.n_bricks:
            return None
        if brick < stairs.n_columns:
            width = sigma // stairs.per_sigma
            y = int(stairs.column[brick]) * width + place % width
            unit = Fraction(1, stairs.height)
            bottom = int(stairs.level[brick]) * unit
            accepted = brick < stairs.n_sure or self.is_below(y, bottom, unit)
        else:
            ones = 0
            while (word := next(self.halves)) == 2**32 - 1:
                ones += 32
            while word & 1 << ones % 32:
                ones += 1
            y = (6 + ones) * sigma + next(self.halves) % sigma
            bricks = stairs.n_bricks - stairs.n_columns
            unit = Fraction(bricks, 2 * stairs.per_sigma * stairs.height * 2**ones)
            accepted = self.is_below(y, Fraction(0), unit)
        if not accepted or (y == 0 and negative):
            return None
        return -y if negative else y

    def is_below(self, y: int, bottom: Fraction, height: Fraction) -> bool:
        """Whether bottom + height * (uniform number) < f(y), by as many bits as it takes."""
        fraction, n = 0, 1
        with localcontext() as context:
            context.prec = 400
            f = (-(Decimal(y) ** 2) / Decimal(2 << 2 * self.k)).exp()
            f = Fraction(f)
            while True:
                fraction = fraction * 2**32 + next(self.halves)
                n *= 2**32
                if bottom + height * Fraction(fraction + 1, n) <= f:
                    return True
                if bottom + height * Fraction(fraction, n) >= f:
                    return False


def words_of(halves: list[int]) -> NDArray[np.uint64]:
    """Words with these halves, the low one of each first."""
    padded = np.array(halves + [0] * (len(halves) % 2), np.uint64).reshape(-1, 2)
    return padded[:, 0] | padded[:, 1] << np.uint64(32)


def given_words(words: NDArray[np.uint64]) -> WordSource:
    """A stream of these words."""
    left = [words]

    def source(n: int) -> NDArray[np.uint64]:
        taken, left[0] = left[0][:n], left[0][n:]
        assert len(taken) == n
        return taken

    return source


@pytest.mark.parametrize("k", [0, 1, 2, 5, 7, 13, 20, 22])
def test_samples_equal_those_of_the_slow_twin(k):
    rng = np.random.default_rng(k)
    stairs = staircase(2 ** min(k, 5))
    halves = rng.integers(0, 2**32, 40_000)
    # Rare cases become frequent: the tail with several ones, empty places, and cut bricks.
    halves[::41] = halves[::41] >> 14 << 14 | stairs.n_columns
    halves[1::41] |= 0xF
    halves[::43] |= 2**14 - 1
    halves[::7] = halves[::7] >> 14 << 14 | rng.integers(stairs.n_sure, stairs.n_columns)
    words = words_of(halves.tolist())
    twin = Twin([int(word) for word in words], k)
    samples = discrete_gaussian(5000, k, given_words(words))
    assert [twin.sample() for _ in range(5000)] == samples.tolist()


@pytest.mark.parametrize("k", [0, 3, 5, 12, 22])
@pytest.mark.parametrize("beside", [-3, -2, -1, 0, 1, 2, 3])
def test_heights_beside_the_curve_are_decided_exactly(k, beside):
    """Where the kernel stops, since 32 bits do not decide, further bits do."""
    rng = np.random.default_rng(k)
    stairs = staircase(2 ** min(k, 5))
    width = 2**k // stairs.per_sigma
    halves = []
    for brick in range(stairs.n_sure, stairs.n_columns, 5):
        place = int(rng.integers(width))
        y = int(stairs.column[brick]) * width + place
        above_brick = stairs.height * curve(y, k) - int(stairs.level[brick])
        height = int(above_brick * 2**32) + beside
        if 0 <= height < 2**32:
            halves += [place << 15 | brick, height]
    words = words_of(halves + rng.integers(0, 2**32, 3000).tolist())
    n = len(halves) // 4
    twin = Twin([int(word) for word in words], k)
    assert [twin.sample() for _ in range(n)] == discrete_gaussian(n, k, given_words(words)).tolist()


def test_bits_of_a_tie_are_read_until_they_decide():
    """With the curve's own bits as height, 200 of them, and then with those below and above."""
    k, brick = 12, staircase(32).n_sure
    stairs = staircase(32)
    y = int(stairs.column[brick]) * 128 + 5
    with localcontext() as context:
        context.prec = 100
        f = (-(Decimal(y) ** 2) / Decimal(2 << 2 * k)).exp()
        digits = int((stairs.height * f - int(stairs.level[brick])) * 2**192)
    same = [digits >> 32 * n & 0xFFFFFFFF for n in reversed(range(6))]
    for last, accepted in ((0, True), (2**32 - 1, False)):
        rest = iter([5 << 15 | brick, *same, last])
        assert exact_sample(stairs, k, lambda rest=rest: next(rest)) == (y if accepted else None)
        assert next(rest, None) is None


# Streams


@pytest.mark.parametrize("max_words", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("k", [0, 12, 22])
def test_the_size_of_blocks_does_not_matter(k, max_words, monkeypatch):
    expected = discrete_gaussian(500, k, words_from_key(KEY))
    monkeypatch.setattr(module, "MAX_WORDS", max_words)
    np.testing.assert_array_equal(discrete_gaussian(500, k, words_from_key(KEY)), expected)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, MAX_LOG2_SIGMA), st.integers(0, 300), st.integers(0, 300))
def test_a_shorter_vector_is_a_prefix(k, shorter, more):
    """Of any size and scale, within the bound, and a function of the stream alone."""
    short = discrete_gaussian(shorter, k, words_from_key(KEY))
    long = discrete_gaussian(shorter + more, k, words_from_key(KEY))
    assert short.dtype == np.int64
    assert len(short) == shorter
    np.testing.assert_array_equal(short, long[:shorter])
    assert np.abs(long).max(initial=0) < 64 << k


def constant(word: int) -> WordSource:
    return lambda n: np.full(n, word, np.uint64)


def test_draws_from_the_key_are_frozen():
    """Two sides that share a key draw the same noise, also with different releases."""
    frozen = [353, -190, -1429, 1198, -652, 1855, -1623, -45]
    assert discrete_gaussian(8, 10, words_from_key(KEY)).tolist() == frozen


def test_a_key_stream_is_aes_in_counter_mode():
    """AES-256 of a block of zeros with a key of zeros, a published value."""
    first = words_from_key(bytes(32))(2)
    assert first.tobytes().hex() == "dc95c078a2408989ad48a21492842087"
    stream = words_from_key(bytes(32))
    joined = np.concatenate([stream(3), stream(0), stream(10)])
    np.testing.assert_array_equal(joined, words_from_key(bytes(32))(13))


def test_system_words_never_repeat():
    words = system_words()
    first = words(1000)
    assert first.dtype == np.uint64
    assert len(np.intersect1d(first, words(1000))) == 0
    assert len(np.intersect1d(first, system_words()(1000))) == 0
    bits = np.unpackbits(words(10_000).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 4 * 0.5 / math.sqrt(len(bits))


def test_secret_streams_name_the_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for source in (system_words, lambda: words_from_key(KEY)):
        with pytest.raises(MissingExtra, match=r"coterie\[privacy\]"):
            source()


# Wrong arguments


@pytest.mark.parametrize("k", [-1, 23, 64])
def test_a_scale_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match=rf"log2_sigma is {k}; it must be .* from 0 to 22"):
        discrete_gaussian(1, k, constant(0))


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="size is -1; it must not be negative"):
        discrete_gaussian(-1, 0, constant(0))


@pytest.mark.parametrize("length", [0, 16, 33])
def test_a_key_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match=f"the key has {length} bytes; it must have 32"):
        words_from_key(bytes(length))
