"""How far a client's update may exceed those of the other clients of its round."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiples:
    """Bounds as multiples of medians over the clients of a round: see `robust.bounds`.

    An algorithm declares its own where honest clients differ more from each other: the bound on
    rows is about the 99 % quantile of honest rows, by `benchmarks/honest_norms.py`.
    """

    rows: float = 4.0
    """The norm of an item row, of the median client's root mean square."""
    updates: float = 3.0
    """The norms of all item rows together, and of the dense part."""
    own_row: float = 3.0
    """The norm of the client's own row."""
    samples: float = 4.0
    agreeing: int = 1
    """No row of an item is longer than the n-th longest, where n clients send any: so many have to
    agree on how far it moves. With 1 there is no such bound."""
