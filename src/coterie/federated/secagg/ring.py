"""The server's side of one ring: it learns the sum of its clients' vectors and nothing else.

This is Step 4 of STTFedRec (circular secret sharing) with dropout recovery. Each client sends an
additive share modulo 2^word to its successor, encrypted so that the relaying server cannot read it
(`ring_member`).

Deviations from the paper:
- It shares floating-point gradients, whose masks are not uniform and leak. Here vectors are
  integers modulo 2^32 or 2^64 (`words`), and sums are exact.
- It sends a share as a vector. Here it is a seed by default (`ring_shares`).
- In it one dropout breaks the sum. Here `dropout_recovery` completes the sum.

The ring is aborted, and none of its clients counts, if fewer than `minimum` clients are left, if a
client that is needed for recovery drops out, or if masks do not cancel: the sum then exceeds its
bound.

An honest-but-curious server sees public keys, ciphertexts and masked vectors. It does learn who
took part and when a client dropped out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from coterie.federated.secagg.crypto import (
    KEY_BYTES,
    SEED_BYTES,
    TAG_BYTES,
    KeyPair,
    Uint64Array,
    expand,
)
from coterie.federated.secagg.dropout_recovery import recover_self_masks, recover_shares
from coterie.federated.secagg.ring_member import RingTerms
from coterie.federated.secagg.stages import (
    Aborted,
    ReplySpec,
    SendStage,
    StageArrays,
    key_rows,
    request,
    require_clients,
    stacked,
)
from coterie.federated.secagg.words import MAX_ENTRY, Words, to_integers
from coterie.types import Bools, Ints, Longs

MIN_CLIENTS = 3
"""In a ring of two, either client could subtract its own vector from the sum."""
MAX_ATTEMPTS = 3
"""How often share distribution is tried."""


class RingSum(NamedTuple):
    vector: Uint64Array
    """Signed integers modulo 2^64, whatever the word of the ring."""
    users: Ints
    """The clients whose upload counts, ascending."""
    clear: StageArrays
    """What they uploaded in the clear, a row for each client."""


def min_survivors(n: int) -> int:
    """How many of a ring's n clients have to upload: half of them, and at least three."""
    return max(MIN_CLIENTS, -(-n // 2))


def collect_keys(send: SendStage, users: Ints, clear: ReplySpec) -> dict[int, StageArrays]:
    """Run `advertise_keys`: public keys, and what clients send in the clear with them."""
    expected: ReplySpec = {"key": (np.uint8, (KEY_BYTES,))} | clear
    replies = request(send, "advertise_keys", users, {}, expected)
    # A client with an unusable key is left out here. Otherwise its neighbours would drop out too.
    trial = KeyPair.generate()
    usable = {
        user: reply for user, reply in replies.items() if trial.accepts(reply["key"].tobytes())
    }
    require_clients(len(usable), min_survivors(len(users)), "advertised keys")
    return usable


@dataclass(frozen=True, slots=True)
class Ring:
    """The server's view of one ring."""

    terms: RingTerms
    send: SendStage
    minimum: int
    """How many clients have to upload."""
    clear: ReplySpec = field(default_factory=dict)
    """What clients upload in the clear."""
    max_entry: int = MAX_ENTRY
    """Bound of an entry of one client's vector."""

    def aggregate(self, keys: dict[int, bytes]) -> RingSum:
        """The sum over all clients that upload. `keys` are in the order of the ring."""
        users, share_ciphertexts, self_mask_ciphertexts = self._distribute_shares(keys)
        uploads = self._collect_uploads(users, share_ciphertexts, self_mask_ciphertexts)
        uploaded = np.isin(users, list(uploads))
        require_clients(int(uploaded.sum()), self.minimum, "uploaded")
        total: Words = np.zeros(self.terms.length, self.terms.dtype)
        for reply in uploads.values():
            total += reply["vector"]
        unmasked = self._unmask(users, uploaded, keys)
        for seed in recover_self_masks(self.send, users, uploaded, unmasked):
            total -= expand(seed, self.terms.length, self.terms.word)
        for correction in recover_shares(self.send, users, uploaded, keys, unmasked, self.terms):
            total += correction
        survivors = np.sort(users[uploaded])
        signed = to_integers(total, self.terms.word)
        self._check_bound(signed, len(survivors))
        clear = {name: stacked(uploads, survivors, name) for name in self.clear}
        return RingSum(signed.view(np.uint64), survivors, clear)

    def _check_bound(self, total: Longs, n: int) -> None:
        """A mask that did not cancel makes the sum uniform modulo 2^word: it exceeds the bound.

        An entry stays within the bound by chance with probability n * max_entry / 2^(word - 1). For
        an exchange this is below 1 (`check_words`): the more entries, the surer the check.
        """
        magnitude = np.abs(total.astype(np.float64))
        if (magnitude > float(n * self.max_entry)).any():
            raise Aborted("the sum exceeds its bound: a message was changed on its way")

    def _distribute_shares(self, keys: dict[int, bytes]) -> tuple[Ints, np.ndarray, np.ndarray]:
        """The ring's clients, and their ciphertexts for the successor and the predecessor.

        A client that drops out here has sent nothing that is part of a sum yet, so the ring is
        formed again without it.
        """
        users = np.array(list(keys), np.int32)
        share_bytes = self.terms.share_bytes
        expected: ReplySpec = {
            "share_ciphertext": (np.uint8, (share_bytes + SEED_BYTES + TAG_BYTES,)),
            "self_mask_ciphertext": (np.uint8, (SEED_BYTES + TAG_BYTES,)),
        }
        for attempt in range(MAX_ATTEMPTS):
            require_clients(len(users), self.minimum, "distributed shares")
            predecessors = np.roll(users, 1)
            successors = np.roll(users, -1)
            own: StageArrays = {
                "attempt": np.full(len(users), attempt, np.int32),
                "predecessor": predecessors,
                "predecessor_key": key_rows(keys, predecessors),
                "successor": successors,
                "successor_key": key_rows(keys, successors),
            }
            replies = request(self.send, "distribute_shares", users, own, expected)
            if len(replies) == len(users):
                share_ciphertexts = stacked(replies, users, "share_ciphertext")
                self_mask_ciphertexts = stacked(replies, users, "self_mask_ciphertext")
                return users, share_ciphertexts, self_mask_ciphertexts
            users = users[np.isin(users, list(replies))]
        raise Aborted(f"clients dropped out in {MAX_ATTEMPTS} attempts to distribute shares")

    def _collect_uploads(
        self, users: Ints, share_ciphertexts: np.ndarray, self_mask_ciphertexts: np.ndarray
    ) -> dict[int, StageArrays]:
        own = {
            "share_ciphertext": np.roll(share_ciphertexts, 1, axis=0),
            "self_mask_ciphertext": np.roll(self_mask_ciphertexts, -1, axis=0),
        }
        expected: ReplySpec = {"vector": (self.terms.dtype, (self.terms.length,))} | self.clear
        return request(self.send, "upload", users, own, expected)

    def _unmask(
        self, users: Ints, uploaded: Bools, keys: dict[int, bytes]
    ) -> dict[int, StageArrays]:
        """Self-masks of the clients whose upload counts, and shares for the next survivors."""
        survivors = users[uploaded]
        next_survivors = np.roll(survivors, -1)
        own: StageArrays = {
            "predecessor_uploaded": np.roll(uploaded, 1)[uploaded].astype(np.uint8),
            "successor_uploaded": np.roll(uploaded, -1)[uploaded].astype(np.uint8),
            "successor": next_survivors,
            "successor_key": key_rows(keys, next_survivors),
        }
        expected: ReplySpec = {
            "self_mask": (np.uint8, (SEED_BYTES,)),
            "share_ciphertext": (np.uint8, (SEED_BYTES + TAG_BYTES,)),
        }
        return request(self.send, "unmask", survivors, own, expected)
