"""Exact samples of the discrete Gaussian, P(y) proportional to exp(-y^2 / (2 sigma^2)).

Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", 2020, Algorithms 1 to 3,
for sigma = 2^k. All arithmetic is in integers: noise in floating point has gaps that can reveal
what it should hide (Mironov 2012).

    repeat                                                             # Alg. 3
        repeat                                                         # Alg. 2
            U = a uniform integer below sigma
        until Bernoulli(exp(-U / sigma))
        V = number of successes of Bernoulli(exp(-1)) before it fails
        Y = U + sigma V, with a random sign; -0 is rejected
    until Bernoulli(exp(-(|Y| - sigma)^2 / (2 sigma^2)))

    Bernoulli(exp(-x)), 0 <= x <= 1:                                   # Alg. 1
        N = number of successes of Bernoulli(x / 1), Bernoulli(x / 2), ... before one fails
        return whether N is even

Bernoulli(x / n) is Bernoulli(x) and Bernoulli(1 / n). So N = min(G, M) with P(G >= n) = x^n and
P(M >= n) = 1 / n!. A uniform integer below 2040 = 17 * 5! tells M if it is below 5. A random word
has the bits of one test and of what it belongs to:

    bits       0-10   11-18   20-27   29-36   38-62       38-48         49-59
    test of U  M      G       G       G       U, sign
    of Y       M      G       G       G                   M for V > 0   M for V > 1

Tests look these bits up in tables and take no branch, because a processor mispredicts branches on
random bits. Undecided are 2.6 % of the tests of U, 1.6 % of those of Y and 15 % of the V: they take
a slower path, which may read further words.

Deviation: the paper proposes Y with scale t = floor(sigma) + 1 in place of sigma. The result is the
same for every t, because exp(-|y| / t) exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2)) is proportional
to exp(-y^2 / (2 sigma^2)). With t = 2^k a uniform integer is a few bits of a word.

Deviation: |Y| >= 128 sigma is rejected, so that squares fit in 64 bits. The distribution is that of
the paper under a condition that fails with a probability below exp(-8192), about 2^-11818.
"""

from __future__ import annotations

import math

import numpy as np
from numba import int64, types, uint64

from coterie.kernels.common import Integer, Words64, helper, kernel, readonly, subroutine
from coterie.types import Longs

TAIL = 128
"""|Y| stays below TAIL * sigma."""
BITS = 63
"""A fraction x is the integer x * 2^BITS."""
LATER_BITS = BITS - 8
"""Bits of x after the first eight."""
LATER = (1 << LATER_BITS) - 1
M_BITS = 11
M_MASK = (1 << M_BITS) - 1
M_END = 2040
"""The largest multiple of 5! below 2^11: from here on a field is redrawn."""
M_PER_WORD = 5
OTHER = 38
"""Position of the bits of a word that the test of a fraction does not use."""
# The three digits of a word lie nine bits apart: the ninth takes the borrow of a subtraction.
DIGITS = 0xFF << 11 | 0xFF << 20 | 0xFF << 29
ONES = 1 << 11 | 1 << 20 | 1 << 29
BORROWS = ONES << 8
FAILS = 1
UNDECIDED = 2


def _m(r: int) -> int:
    """M for a field of 11 bits, where 5 means 5 or more."""
    return sum(r < M_END // math.factorial(n) for n in range(1, 6))


def _exp_fraction(r: int, below: int) -> int:
    """The result of Bernoulli(exp(-x)) for a field and three results of Bernoulli(x), as bits."""
    m = _m(r)
    g = 3 if below == 7 else 2 if below & 3 == 3 else below & 1
    if m == 0 or (g == 3 and m > 3):
        return UNDECIDED
    return FAILS if min(g, m) % 2 else 0


def _exp_one(r: int) -> int:
    """The result of Bernoulli(exp(-1)) for a field."""
    m = _m(r)
    if m in (0, 5):
        return UNDECIDED
    return FAILS if m % 2 else 0


M_OF = np.array([_m(r) for r in range(1 << M_BITS)], np.int8)
EXP_ONE = np.array([_exp_one(r) for r in range(1 << M_BITS)], np.int8)
EXP_FRACTION = np.array(
    [sum(_exp_fraction(r, b) << 2 * b for b in range(8)) for r in range(1 << M_BITS)], np.int64
)
"""Two bits per combination of results."""


@helper
def read(words: Words64, at: Integer) -> np.int64:
    """A word; beyond the end zero, and the caller discards the sample."""
    return np.int64(words[at]) if at < len(words) else np.int64(0)


@subroutine
def redrawn(r: Integer, words: Words64, at: Integer) -> tuple[Integer, Integer]:
    """A uniform integer below M_END from a field, by rejection."""
    while r >= M_END:
        r = read(words, at) & M_MASK
        at += 1
    return r, at


@subroutine
def one_over(n: Integer, r: Integer, words: Words64, at: Integer) -> tuple[bool, Integer]:
    """Bernoulli(1 / n), where all n up to 5 share the uniform integer r below M_END."""
    if n <= 5:
        return M_OF[r] >= n, at
    # Whether a uniform integer below n, found by rejection, is zero.
    end = (1 << 32) - (1 << 32) % n
    word = read(words, at) & 0xFFFFFFFF
    at += 1
    while word >= end:
        word = read(words, at) & 0xFFFFFFFF
        at += 1
    return word % n == 0, at


@subroutine
def exp_one(r: Integer, words: Words64, at: Integer) -> tuple[Integer, Integer]:
    """Bernoulli(exp(-1)) from a field and from further words: 0 if it succeeds, or FAILS."""
    r, at = redrawn(r, words, at)
    n = np.int64(0)
    more = True
    while more and at <= len(words):
        more, at = one_over(n + 1, r, words, at)
        n += np.int64(more)
    return n & 1, at


@subroutine
def exp_fraction(x: Integer, word: Integer, words: Words64, at: Integer) -> tuple[Integer, Integer]:
    """Bernoulli(exp(-x)) from a word and from further words: 0 if it succeeds, or FAILS."""
    r, at = redrawn(word & M_MASK, words, at)
    first = x >> LATER_BITS
    n = np.int64(0)
    more = True
    while more and at <= len(words):
        more, at = one_over(n + 1, r, words, at)
        if more:
            # Bernoulli(x): whether random bits, the highest first, are less than those of x.
            if n < 3:
                digit = (word >> (11 + 9 * n)) & 0xFF
            else:
                digit = read(words, at) & 0xFF
                at += 1
            more = bool(digit < first)
            if digit == first:
                more = bool((read(words, at) & LATER) < (x & LATER))
                at += 1
            n += np.int64(more)
    return n & 1, at


@subroutine
def exp_ones(
    limit: Integer, fields: Integer, n_fields: Integer, words: Words64, at: Integer
) -> tuple[Integer, Integer]:
    """How often Bernoulli(exp(-1)) succeeds before it fails, but `limit` at most.

    `fields` holds the random bits of the first tests.
    """
    n = np.int64(0)
    while n < limit:
        if n_fields == 0:
            fields = read(words, at)
            n_fields = M_PER_WORD
            at += 1
        r = fields & M_MASK
        result: Integer = np.int64(EXP_ONE[r])
        if result == UNDECIDED:
            result, at = exp_one(r, words, at)
        if result == FAILS:
            break
        fields >>= M_BITS
        n_fields -= 1
        n += 1
    return n, at


@helper
def decide(x: Integer, word: Integer) -> Integer:
    """Bernoulli(exp(-x)) from a word alone: 0 if it succeeds, FAILS, or at least UNDECIDED."""
    # Three subtractions in one: a bit of BORROWS remains where a digit is not above that of x.
    difference = (x >> LATER_BITS) * ONES + BORROWS - (word & DIGITS)
    at_most = difference & BORROWS
    below = (difference - ONES) & BORROWS
    which = (below >> 19 | below >> 27 | below >> 35) & 7
    result: Integer = (EXP_FRACTION[np.uint64(word & M_MASK)] >> (which << 1)) & 3
    return result | (np.int64(at_most != below) << 1)


@kernel(types.void(readonly(uint64), int64, int64[::1], int64[::1]))
def draw(words: Words64, log2_sigma: int, out: Longs, counts: Longs) -> None:
    """Write samples until `out` is full or the words run out.

    `counts` becomes the number of samples, and that of the words that they used. The next sample
    begins with the first word that was not used.
    """
    k = log2_sigma
    sigma = np.int64(1) << k
    x_bits = 2 * k + 1
    x_mask = (np.int64(1) << x_bits) - 1
    n = np.int64(0)
    at: Integer = np.int64(0)
    counts[:] = 0
    # Arrays go to subroutines only: an inlined function that takes one counts references.
    while n < len(out) and at + 1 < len(words):
        word = np.int64(words[np.uint64(at)])
        at += 1
        u = (word >> OTHER) & (sigma - 1)
        negative = (word >> (OTHER + k)) & 1
        x = u << (BITS - k)
        result = decide(x, word)
        if result >= UNDECIDED:
            result, at = exp_fraction(x, word, words, at)
        if result == FAILS or at >= len(words):
            continue
        word = np.int64(words[np.uint64(at)])
        at += 1
        first = EXP_ONE[np.uint64((word >> OTHER) & M_MASK)]
        second = EXP_ONE[np.uint64((word >> (OTHER + M_BITS)) & M_MASK)]
        v: Integer = np.int64(1) - np.int64(first)
        if (first == UNDECIDED) | ((first == 0) & (second != FAILS)):
            v, at = exp_ones(TAIL, word >> OTHER, 2, words, at)
        y = u + (v << k)
        if (y == 0) & (negative == 1):
            continue
        square = (y - sigma) * (y - sigma)
        x = (square & x_mask) << (BITS - x_bits)
        if v > 1:
            whole = square >> x_bits
            successes, at = exp_ones(whole, 0, 0, words, at)
            if (successes < whole) | (v == TAIL):
                continue
        result = decide(x, word)
        if result >= UNDECIDED:
            result, at = exp_fraction(x, word, words, at)
        if result != FAILS and at <= len(words):
            out[n] = -y if negative == 1 else y
            n += 1
            counts[0] = n
            counts[1] = at
