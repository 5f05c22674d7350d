"""Shamir's secret sharing: any t of k shares recover a secret, fewer say nothing about it.

A secret of 32 bytes is the constant term of a random polynomial of degree t - 1 over the integers
modulo a prime. A share is the polynomial at a place 1, 2, ... Coefficients come from the operating
system's random generator.

Shamir. How to share a secret. Communications of the ACM 22, 1979.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import lru_cache

PRIME = (1 << 256) + 297
"""The smallest prime above 2^256: every secret of 32 bytes is a number below it."""
SECRET_BYTES = 32
SHARE_BYTES = 33


def split(secret: bytes, k: int, t: int) -> list[bytes]:
    """k shares, those at the places 1 to k, of which t recover the secret."""
    if len(secret) != SECRET_BYTES or not 1 <= t <= k:
        raise ValueError(f"{len(secret)} bytes cannot be split into {k} shares with threshold {t}")
    coefficients = [secrets.randbelow(PRIME) for _ in range(t - 1)]
    coefficients.append(int.from_bytes(secret, "little"))
    return [
        _evaluate(coefficients, place).to_bytes(SHARE_BYTES, "little") for place in range(1, k + 1)
    ]


def recover(shares: Mapping[int, bytes], t: int) -> bytes | None:
    """The secret of t or more shares by place; None if they are too few, or malformed.

    Shares of another secret give another secret: whoever recovers one compares it with a public
    key, or with a digest of it.
    """
    places = tuple(sorted(shares))[:t]
    if len(places) < t or not all(_is_valid(place, shares[place]) for place in places):
        return None
    values = [int.from_bytes(shares[place], "little") for place in places]
    weights = _weights(places)
    secret = sum(weight * value for weight, value in zip(weights, values, strict=True)) % PRIME
    return secret.to_bytes(SECRET_BYTES, "little") if secret >> 256 == 0 else None


def _is_valid(place: int, share: bytes) -> bool:
    return place > 0 and len(share) == SHARE_BYTES and int.from_bytes(share, "little") < PRIME


def _evaluate(coefficients: list[int], x: int) -> int:
    """The polynomial at x; the constant term comes last."""
    value = 0
    for coefficient in coefficients:
        # A place is a small number: one reduction at the end costs less than one at each step.
        value = value * x + coefficient
    return value % PRIME


@lru_cache(maxsize=256)
def _weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """What the values at places are multiplied with to get the value at 0 (Lagrange)."""
    weights = []
    for place in places:
        above = 1
        below = 1
        for other in places:
            if other != place:
                above *= other
                below *= other - place
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
