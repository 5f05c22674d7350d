"""One client's part in a ring: what it sends at each stage, and which secrets stay with it.

Client k has a predecessor k-1 and a successor k+1. x_k is its private vector, s_k its share seed
and b_k its self-mask seed. PRG expands a seed to a vector. Everything is modulo 2^word, 2^32 or
2^64 as the exchange declares (`words`).

    advertise_keys     a public key, generated for this ring
    distribute_shares  s_k and b_k, encrypted for the successor; b_k, encrypted for the predecessor
    upload             y_k = x_k + PRG(b_k) - PRG(s_k) + PRG(s_(k-1))
    unmask             b_k, once the server confirms that y_k counts; and s_k, encrypted for the
                       next survivor, if the successor dropped out before it uploaded
    reveal_self_mask   b of a neighbour that uploaded and dropped out before `unmask`
    recover            PRG(s_p) - PRG(s_d), if the predecessor d dropped out before it uploaded;
                       p is the nearest survivor before d

In the sum of all y_k the shares cancel and the self-masks remain; `unmask` removes those.

Why a self-mask (Bonawitz et al. 2017, double masking): the server decides who dropped out. If it
declares a client dropped and then receives its late upload, `recover` has given it the share terms
of that upload. Only PRG(b_k) still hides x_k, and no neighbour reveals b_k of a client that does
not count. A client therefore gives, for each neighbour, either the self-mask or the correction
that replaces it, never both.

Not protected: both neighbours together with the server recover x_k. For a client that was declared
dropped and uploads late, one neighbour and the server are enough. Nothing checks that x_k is an
honest update.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from coterie.federated.secagg.crypto import (
    SEED_BYTES,
    TAG_BYTES,
    KeyPair,
    Rejected,
    Seed,
    expand,
    new_seed,
)
from coterie.federated.secagg.words import UNSIGNED, Word, Words, from_bytes, to_bytes

ShareForm = Literal["seed", "vector"]
"""How a share is sent: as a seed, or as the vector that the seed expands to, as in the paper."""
Side = Literal["predecessor", "successor"]
SMALLEST_RING = 3
"""Clients of the smallest ring that a member takes part in."""


class RingTerms(NamedTuple):
    """What all members of a ring agree on."""

    round: int
    exchange: int
    ring: int
    length: int
    """The length of the summed vector."""
    shares: ShareForm = "seed"
    rows: str = ""
    """A digest of the summed rows of item tables. Members with different rows cannot decrypt
    each other's shares."""
    word: Word = 64
    """Bits of an entry of the summed vector."""

    @property
    def dtype(self) -> type[np.unsignedinteger[Any]]:
        """The dtype of vectors. One of another dtype would carry bits that no mask covers."""
        return UNSIGNED[self.word]

    @property
    def share_bytes(self) -> int:
        """The length of a share as it is sent."""
        return SEED_BYTES if self.shares == "seed" else self.length * self.word // 8

    def context(self, attempt: int, purpose: str, sender: int, receiver: int) -> bytes:
        """The context of a ciphertext: it decrypts in no other one."""
        # 64 is left out: contexts are then those of releases without 32-bit words.
        length = f"{self.length}" if self.word == 64 else f"{self.length}x{self.word}"
        ring = f"{self.round} {self.exchange} {self.ring} {length} {self.rows}"
        return f"{purpose} {ring} {attempt} {sender} {receiver}".encode()


class Neighbour(NamedTuple):
    user: int
    key: bytes


@dataclass(slots=True)
class RingMember:
    """A client in a ring. It replies to each stage once and rejects a repetition."""

    user: int
    terms: RingTerms
    vector: Callable[[], Words]
    """Computes its private vector when `upload` needs it."""
    key_pair: KeyPair = field(default_factory=KeyPair.generate, repr=False)
    attempt: int = -1
    predecessor: Neighbour | None = None
    successor: Neighbour | None = None
    share: Seed = field(default_factory=new_seed, repr=False)
    self_mask: Seed = field(default_factory=new_seed, repr=False)
    received_share: Words | None = field(default=None, repr=False)
    """The predecessor's share, expanded; None before `upload`."""
    neighbour_self_masks: dict[Side, Seed] = field(default_factory=dict, repr=False)
    neighbour_uploaded: dict[Side, bool] = field(default_factory=dict)
    """Whether the neighbours' uploads count; empty before `unmask`, when it reveals nothing."""
    recovered: bool = False

    def advertise_keys(self) -> bytes:
        return self.key_pair.public

    def distribute_shares(
        self, attempt: int, predecessor: Neighbour, successor: Neighbour
    ) -> tuple[bytes, bytes]:
        """Ciphertexts for the successor (share and self-mask) and the predecessor (self-mask)."""
        if attempt <= self.attempt or self.received_share is not None:
            raise Rejected("shares were distributed already")
        self._check_neighbours(predecessor, successor)
        self.attempt = attempt
        self.predecessor = predecessor
        self.successor = successor
        # New seeds: the neighbours of an earlier attempt hold the old ones.
        self.share = new_seed()
        self.self_mask = new_seed()
        share: bytes = self.share
        if self.terms.shares == "vector":
            share = to_bytes(self._expand(self.share), self.terms.word)
        for_successor = self._encrypt("share", share + self.self_mask, successor)
        for_predecessor = self._encrypt("self-mask", self.self_mask, predecessor)
        return for_successor, for_predecessor

    def upload(self, share_ciphertext: bytes, self_mask_ciphertext: bytes) -> Words:
        """The private vector, masked by the self-mask and both shares."""
        if self.predecessor is None or self.successor is None or self.received_share is not None:
            raise Rejected("no shares were distributed, or the upload was sent already")
        content = self._decrypt("share", share_ciphertext, self.predecessor)
        self_masks: dict[Side, Seed] = {
            "predecessor": Seed(content[-SEED_BYTES:]),
            "successor": Seed(self._decrypt("self-mask", self_mask_ciphertext, self.successor)),
        }
        received_share = self._read_share(content[:-SEED_BYTES])
        vector = self.vector()
        if len(self_masks["successor"]) != SEED_BYTES or len(vector) != self.terms.length:
            raise Rejected("a self-mask is not a seed, or the vector has a wrong length")
        if vector.dtype != self.terms.dtype:
            raise Rejected(f"the vector is {vector.dtype}; its words have {self.terms.word} bits")
        self.received_share = received_share
        self.neighbour_self_masks = self_masks
        return vector + self._expand(self.self_mask) - self._expand(self.share) + received_share

    def unmask(
        self, predecessor_uploaded: bool, successor_uploaded: bool, next_survivor: Neighbour
    ) -> tuple[Seed, bytes]:
        """Its self-mask; and its share for the next survivor, if the successor dropped out."""
        if self.received_share is None or self.neighbour_uploaded:
            raise Rejected("nothing was uploaded, or the self-mask was sent already")
        self.neighbour_uploaded = {
            "predecessor": predecessor_uploaded,
            "successor": successor_uploaded,
        }
        if successor_uploaded:
            # Nothing to pass on: zeros of the same length, so that replies have one shape.
            return self.self_mask, bytes(SEED_BYTES + TAG_BYTES)
        return self.self_mask, self._encrypt("recovery", self.share, next_survivor)

    def reveal_self_mask(self, side: Side) -> Seed:
        """The self-mask of a neighbour whose upload counts."""
        if not self.neighbour_uploaded.get(side):
            raise Rejected("the self-mask of a client whose upload does not count stays secret")
        return self.neighbour_self_masks[side]

    def recover(self, share_ciphertext: bytes, previous_survivor: Neighbour) -> Words:
        """The correction that replaces the dropped predecessor's share in the sum."""
        predecessor_counts = self.neighbour_uploaded.get("predecessor", True)
        if predecessor_counts or self.received_share is None or self.recovered:
            raise Rejected("the predecessor's upload counts, or recovery was done already")
        share = Seed(self._decrypt("recovery", share_ciphertext, previous_survivor))
        if len(share) != SEED_BYTES:
            raise Rejected("a recovery ciphertext does not hold a seed")
        self.recovered = True
        return self._expand(share) - self.received_share

    def _check_neighbours(self, predecessor: Neighbour, successor: Neighbour) -> None:
        """Refuse a ring of one or two, whatever size the server says that it has.

        In a ring of one the shares cancel in the upload, and in a ring of two the sum less one
        vector is the other. A server that makes up clients can still pretend a ring of three.
        """
        users = {self.user, predecessor.user, successor.user}
        keys = {self.key_pair.public, predecessor.key, successor.key}
        if len(users) < SMALLEST_RING or len(keys) < SMALLEST_RING:
            raise Rejected("the ring has fewer than three members")

    def _read_share(self, share: bytes) -> Words:
        if len(share) != self.terms.share_bytes:
            raise Rejected("a share ciphertext does not hold a share of the agreed form")
        if self.terms.shares == "seed":
            return self._expand(Seed(share))
        return from_bytes(share, self.terms.word)

    def _expand(self, seed: Seed) -> Words:
        return expand(seed, self.terms.length, self.terms.word)

    def _encrypt(self, purpose: str, plaintext: bytes, receiver: Neighbour) -> bytes:
        context = self.terms.context(self.attempt, purpose, self.user, receiver.user)
        return self.key_pair.encrypt(plaintext, receiver.key, context)

    def _decrypt(self, purpose: str, ciphertext: bytes, sender: Neighbour) -> bytes:
        context = self.terms.context(self.attempt, purpose, sender.user, self.user)
        return self.key_pair.decrypt(ciphertext, sender.key, context)
