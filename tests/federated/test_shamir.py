"""Secret sharing: against hand-computed numbers, all subsets, and what few shares say."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.federated.secagg import shamir

SECRET = bytes(range(32))


def number(n: int) -> bytes:
    return n.to_bytes(shamir.SHARE_BYTES, "little")


def test_the_modulus_is_prime():
    """Fermat with several bases, and Miller and Rabin."""
    p = shamir.PRIME
    odd, twos = p - 1, 0
    while odd % 2 == 0:
        odd //= 2
        twos += 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        x = pow(base, odd, p)
        assert x in (1, p - 1) or p - 1 in [pow(x, 2**k, p) for k in range(1, twos)]


def test_a_polynomial_by_hand():
    """f(x) = 1234 + 166 x + 94 x^2 at 1, 2, 3: 1494, 1942, 2578 (any of Shamir's introductions)."""
    shares = {1: number(1494), 2: number(1942), 3: number(2578)}
    assert shamir.recover(shares, 3) == (1234).to_bytes(32, "little")
    assert shamir.recover(shares | {4: number(1234 + 4 * 166 + 16 * 94)}, 3) == (1234).to_bytes(
        32, "little"
    )
    assert shamir.recover(shares | {3: number(2579)}, 3) == (1235).to_bytes(32, "little")


def test_all_subsets_of_shares():
    shares = dict(enumerate(shamir.split(SECRET, 6, 4), 1))
    for size in range(7):
        for chosen in combinations(shares, size):
            found = shamir.recover({place: shares[place] for place in chosen}, 4)
            assert found == (SECRET if size >= 4 else None)


@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_secret_and_threshold(secret: bytes, k: int, data: st.DataObject):
    t = data.draw(st.integers(1, k))
    shares = dict(enumerate(shamir.split(secret, k, t), 1))
    places = data.draw(st.permutations(sorted(shares)))[:t]
    assert shamir.recover({place: shares[place] for place in places}, t) == secret


def test_shares_are_those_of_an_independent_implementation():
    """Interpolation by exact Gaussian elimination instead of Lagrange's formula."""
    shares = shamir.split(SECRET, 5, 5)
    p = shamir.PRIME
    rows = [
        [pow(x, power, p) for power in range(5)] + [int.from_bytes(share, "little")]
        for x, share in enumerate(shares, 1)
    ]
    for column in range(5):
        inverse = pow(rows[column][column], -1, p)
        rows[column] = [value * inverse % p for value in rows[column]]
        for other in range(5):
            if other != column:
                factor = rows[other][column]
                rows[other] = [
                    (a - factor * b) % p for a, b in zip(rows[other], rows[column], strict=True)
                ]
    assert rows[0][-1].to_bytes(32, "little") == SECRET


def test_fewer_shares_look_the_same_for_any_secret():
    """The first bytes of t - 1 shares of two secrets have one distribution (a two-sample test)."""
    counts = np.zeros((2, 256), int)
    for which, secret in enumerate((bytes(32), b"\xff" * 32)):
        for _ in range(4000):
            for share in shamir.split(secret, 3, 3)[:2]:
                counts[which, share[0]] += 1
    expected = counts.sum(axis=0) / 2
    statistic = float((((counts - expected) ** 2) / np.maximum(expected, 1)).sum())
    assert statistic < 340  # the 99.97th percentile of chi squared with 255 degrees of freedom


@pytest.mark.parametrize(
    ("secret", "k", "t"), [(b"short", 3, 2), (SECRET, 3, 4), (SECRET, 3, 0), (SECRET, 0, 0)]
)
def test_impossible_splits_are_refused(secret: bytes, k: int, t: int):
    with pytest.raises(ValueError, match="cannot be split"):
        shamir.split(secret, k, t)


@pytest.mark.parametrize(
    "wrong", [{0: number(1)}, {1: b"short"}, {1: number(shamir.PRIME)}, {-1: number(1)}]
)
def test_malformed_shares_recover_nothing(wrong: dict[int, bytes]):
    shares = dict(enumerate(shamir.split(SECRET, 4, 2), 1))
    assert shamir.recover({3: shares[3], 4: shares[4]} | wrong, 2) is None
