"""A member of a ring: what a device says at each stage, and what it never says.

    announce   a public key for this ring
    deal       s_k and v_k, fresh seeds: both in a box for the member after, v_k in a box for the one before
    upload     c_k + V(v_k) - S(s_k) + S(s_(k-1)), modulo 2^64; c_k are its numbers, S and V what seeds grow into
    close      v_k, once it is told that its upload counts; and s_k for another member, where the one after has gone
    reveal     the v of a neighbour that counts and has gone since
    mend       S(s_p) - S(s_g), where the member before it (g) has gone and the nearest one before that which counts is p

v_k keeps an upload from the server that comes too late: who was left out is not counted, and nobody says its v. A member says of a
neighbour either v or what heals the ring without it, and never both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from coterie.federated.secagg.crypto import (
    SEED_BYTES,
    TAG_BYTES,
    Lock,
    Refused,
    Seed,
    Words,
    fresh,
    grown,
)

Way = Literal["seed", "numbers"]
"""What is passed on: a seed, or the numbers it would grow into, as in the paper."""


class Terms(NamedTuple):
    """What all members of a ring agree on."""

    round: int
    exchange: int
    ring: int
    length: int
    """How many numbers are added up."""
    way: Way = "seed"
    rows: str = ""
    """A digest of which rows of item tables are added up."""

    def about(self, attempt: int, purpose: str, sender: int, receiver: int) -> bytes:
        """What a box is for: it can be opened for nothing else."""
        ring = f"{self.round} {self.exchange} {self.ring} {self.length} {self.rows}"
        return f"{purpose} {ring} {attempt} {sender} {receiver}".encode()


class Neighbour(NamedTuple):
    user: int
    key: bytes


@dataclass(slots=True)
class Member:
    user: int
    terms: Terms
    numbers: Callable[[], Words]
    """What it adds, made when it is needed."""
    lock: Lock = field(default_factory=Lock.fresh, repr=False)
    attempt: int = -1
    before: Neighbour | None = None
    after: Neighbour | None = None
    share: Seed = field(default_factory=fresh, repr=False)
    veil: Seed = field(default_factory=fresh, repr=False)
    given: Words | None = field(default=None, repr=False)
    """What the share of the member before grew into."""
    veils: dict[str, Seed] = field(default_factory=dict, repr=False)
    """Of the members before and after."""
    counts: dict[str, bool] = field(default_factory=dict)
    """Whether they count; a member that has not been told says nothing of them."""
    mended: bool = False

    def announce(self) -> bytes:
        return self.lock.public

    def deal(self, attempt: int, before: Neighbour, after: Neighbour) -> tuple[bytes, bytes]:
        """Boxes for the members after and before."""
        if attempt <= self.attempt or self.given is not None:
            raise Refused("this ring was dealt already")
        self.attempt = attempt
        self.before = before
        self.after = after
        self.share = fresh()
        self.veil = fresh()
        share = (
            self.share
            if self.terms.way == "seed"
            else self._grown(self.share).astype("<u8").tobytes()
        )
        return self._sealed("forward", share + self.veil, after), self._sealed(
            "back", self.veil, before
        )

    def upload(self, from_before: bytes, from_after: bytes) -> Words:
        """What it adds, behind three masks."""
        if self.before is None or self.after is None or self.given is not None:
            raise Refused("nothing was dealt, or this was uploaded already")
        content = self._opened("forward", from_before, self.before)
        veils = {
            "before": Seed(content[-SEED_BYTES:]),
            "after": Seed(self._opened("back", from_after, self.after)),
        }
        given = self._numbers(content[:-SEED_BYTES])
        numbers = self.numbers()
        if len(veils["after"]) != SEED_BYTES or len(numbers) != self.terms.length:
            raise Refused("a box holds no seed, or the numbers are too many or too few")
        self.given = given
        self.veils = veils
        return numbers + self._grown(self.veil) - self._grown(self.share) + given

    def close(
        self, before_counts: bool, after_counts: bool, following: Neighbour
    ) -> tuple[Seed, bytes]:
        """Its veil, and where the member after has gone a box with its share for the next one that counts."""
        if self.given is None or self.counts:
            raise Refused("nothing was uploaded, or this was closed already")
        self.counts = {"before": before_counts, "after": after_counts}
        if after_counts:
            return self.veil, bytes(SEED_BYTES + TAG_BYTES)
        return self.veil, self._sealed("around", self.share, following)

    def reveal(self, which: Literal["before", "after"]) -> Seed:
        """The veil of a neighbour that counts."""
        if not self.counts.get(which):
            raise Refused("a neighbour that does not count keeps its veil")
        return self.veils[which]

    def mend(self, box: bytes, preceding: Neighbour) -> Words:
        """In place of what the member before gave, what the nearest one that counts did."""
        if self.counts.get("before", True) or self.given is None or self.mended:
            raise Refused("the member before counts, or this was mended already")
        share = Seed(self._opened("around", box, preceding))
        if len(share) != SEED_BYTES:
            raise Refused("a box holds no seed")
        self.mended = True
        return self._grown(share) - self.given

    def _numbers(self, share: bytes) -> Words:
        if self.terms.way == "seed" and len(share) == SEED_BYTES:
            return self._grown(Seed(share))
        if self.terms.way == "numbers" and len(share) == 8 * self.terms.length:
            return np.frombuffer(share, "<u8").astype(np.uint64)
        raise Refused("a box holds no share")

    def _grown(self, seed: Seed) -> Words:
        return grown(seed, self.terms.length)

    def _sealed(self, purpose: str, content: bytes, to: Neighbour) -> bytes:
        return self.lock.sealed(
            content, to.key, self.terms.about(self.attempt, purpose, self.user, to.user)
        )

    def _opened(self, purpose: str, box: bytes, of: Neighbour) -> bytes:
        return self.lock.opened(
            box, of.key, self.terms.about(self.attempt, purpose, of.user, self.user)
        )
