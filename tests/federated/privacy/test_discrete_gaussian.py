"""Discrete Gaussian noise: its distribution, a slow twin, and the streams it is drawn from."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie import kernels
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


# The slow twin


class Twin:
    """Algorithms 1 to 3 in fractions, from the same bits of the same words."""

    def __init__(self, words: list[int], k: int) -> None:
        self.words = iter(words)
        self.k = k
        self.sigma = 2**k

    def word(self, bits: int = 64) -> int:
        return next(self.words) % 2**bits

    def series(self, r: int, success: Callable[[int], bool]) -> bool:
        """Alg. 1: whether the number of successes of Bernoulli(x / 1), Bernoulli(x / 2) is even."""
        while r >= 2040:
            r = self.word(11)
        for n in count():
            if not (self.one_over(n + 1, r) and success(n)):
                return n % 2 == 0
        raise AssertionError

    def one_over(self, n: int, r: int) -> bool:
        if n <= 5:
            return r * math.factorial(n) < 2040
        word = self.word(32)
        while word >= 2**32 // n * n:
            word = self.word(32)
        return word % n == 0

    def exp_one(self, r: int) -> bool:
        return self.series(r, lambda n: True)

    def exp_fraction(self, x: Fraction, word: int) -> bool:
        def success(n: int) -> bool:
            digit = word >> (11 + 9 * n) & 255 if n < 3 else self.word(8)
            if digit != int(x * 256):
                return Fraction(digit, 256) < x
            return Fraction(digit * 2**55 + self.word(55), 2**63) < x

        return self.series(word % 2**11, success)

    def exp_ones(self, limit: int, fields: list[int]) -> int:
        for n in range(limit):
            if not fields:
                word = self.word()
                fields = [word >> 11 * i & 2047 for i in range(5)]
            if not self.exp_one(fields.pop(0)):
                return n
        return limit

    def sample(self) -> int:
        while True:
            word = self.word()
            u = (word >> 38) % self.sigma
            negative = word >> (38 + self.k) & 1
            if not self.exp_fraction(Fraction(u, self.sigma), word):
                continue
            word = self.word()
            v = self.exp_ones(128, [word >> 38 & 2047, word >> 49 & 2047])
            y = u + self.sigma * v
            if y == 0 and negative:
                continue
            gamma = Fraction((y - self.sigma) ** 2, 2 * self.sigma**2)
            whole = int(gamma)
            if self.exp_ones(whole, []) == whole and self.exp_fraction(gamma - whole, word):
                return -y if negative else y


@pytest.mark.parametrize("k", [0, 1, 2, 7, 8, 13, 23, 24])
def test_the_kernel_equals_the_slow_twin(k):
    words = np.random.default_rng(k).integers(0, 2**64 - 1, 40_000, np.uint64, endpoint=True)
    # Rare cases become frequent: fields that are redrawn, long series, and equal digits.
    words[::7] |= np.uint64(0x7FF)
    words[::11] &= ~np.uint64(0x7FF)
    words[::13] &= ~np.uint64(0x7FF << 38)
    words[::17] = (words[::17] >> np.uint64(38) << np.uint64(38)) | np.uint64(0x3)
    out = np.empty(5000, np.int64)
    counts = np.empty(2, np.int64)
    kernels.load("discrete_gaussian").draw(words, k, out, counts)
    assert counts[0] == len(out)
    twin = Twin([int(word) for word in words], k)
    assert [twin.sample() for _ in out] == out.tolist()
    assert sum(1 for _ in twin.words) == len(words) - counts[1]


# Streams


@pytest.mark.parametrize("max_words", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("k", [0, 12, 24])
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
    assert np.abs(long).max(initial=0) < 128 << k


def constant(word: int) -> WordSource:
    return lambda n: np.full(n, word, np.uint64)


def test_draws_from_the_key_are_frozen():
    """Two sides that share a key draw the same noise, also with different releases."""
    frozen = [-187, 516, 144, -1407, -145, -1707, -126, 1587]
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


@pytest.mark.parametrize("k", [-1, 25, 64])
def test_a_scale_out_of_range_is_refused(k):
    with pytest.raises(ValueError, match=rf"log2_sigma is {k}; it must be .* from 0 to 24"):
        discrete_gaussian(1, k, constant(0))


def test_a_negative_size_is_refused():
    with pytest.raises(ValueError, match="size is -1; it must not be negative"):
        discrete_gaussian(-1, 0, constant(0))


@pytest.mark.parametrize("length", [0, 16, 33])
def test_a_key_of_another_length_is_refused(length):
    with pytest.raises(ValueError, match=f"the key has {length} bytes; it must have 32"):
        words_from_key(bytes(length))
