"""The server's side of one `secagg` group: the sum of its clients' vectors.

A client's side, and what the protocol withstands, is in `group_member`. The group is aborted, and
none of its clients counts, if fewer than a quorum survive or agree, if a secret that is needed
cannot be recovered, or if masks do not cancel: the sum then exceeds its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from coterie.federated.secagg import shamir
from coterie.federated.secagg.crypto import KeyPair, Rejected, Seed, expand, expand_into
from coterie.federated.secagg.group_member import Advert, GroupTerms, digest_of_seed, mask_seed
from coterie.federated.secagg.stages import Aborted
from coterie.federated.secagg.words import MAX_ENTRY, UNSIGNED, Words, to_integers
from coterie.types import Longs

SendToGroup = Callable[[str, Mapping[int, tuple[Any, ...]]], Mapping[int, Any]]
"""(stage, what each client receives) -> the replies of the clients that replied."""


@dataclass(frozen=True, slots=True)
class Group:
    terms: GroupTerms
    send: SendToGroup
    max_entry: int | None = MAX_ENTRY
    """Bound of an entry of one client's vector; None if entries are random words."""

    def aggregate(self) -> tuple[Longs, frozenset[int]]:
        """The sum of the survivors' vectors, and the survivors."""
        terms = self.terms
        adverts = self._collect_adverts()
        shares = self._collect_shares(adverts)
        uploads = self._collect_uploads(shares)
        survivors = self._choose_survivors(adverts, uploads)
        released = self._collect_released(uploads, survivors)
        total: Words = np.zeros(terms.length, UNSIGNED[terms.word])
        stream = np.empty(total.nbytes, np.uint8)
        for user in sorted(survivors):
            total += uploads[user]
            self_mask = self._recover_self_mask(user, adverts[user], released)
            total -= expand_into(stream, self_mask, terms.word)
        for dropped in sorted(shares.keys() - survivors):
            total -= self._masks_with(dropped, adverts, survivors, released)
        signed = to_integers(total, terms.word)
        self._check_bound(signed, len(survivors))
        return signed, survivors

    def _check_bound(self, total: Longs, n: int) -> None:
        """A mask that did not cancel makes the sum uniform, so that some entry exceeds the bound.

        A sum of random words has no bound. If it is wrong, rows are summed that nobody touched.
        """
        if self.max_entry is None:
            return
        if (np.abs(total.astype(np.float64)) > float(n * self.max_entry)).any():
            raise Aborted("the sum exceeds its bound: a message was changed on its way")

    def _collect_adverts(self) -> dict[int, Advert]:
        adverts = self.send("advertise", dict.fromkeys(self.terms.users, ()))
        self._require(adverts, "advertised keys")
        return dict(adverts)

    def _collect_shares(self, adverts: Mapping[int, Advert]) -> dict[int, dict[int, bytes]]:
        """Owner -> holder -> ciphertext, of the clients that shared."""
        out: dict[int, tuple[dict[int, Advert]]] = {user: ({},) for user in adverts}
        for user, advert in adverts.items():
            for holder in advert.holders:
                if holder in adverts:
                    out[user][0][holder] = adverts[holder]
                    out[holder][0][user] = advert
        shares = self.send("share", out)
        self._require(shares, "shared secrets")
        return dict(shares)

    def _collect_uploads(self, shares: Mapping[int, Mapping[int, bytes]]) -> dict[int, Words]:
        by_holder: dict[int, dict[int, bytes]] = {user: {} for user in shares}
        for owner, ciphertexts in shares.items():
            for holder, ciphertext in ciphertexts.items():
                if holder in by_holder:
                    by_holder[holder][owner] = ciphertext
        shared = tuple(sorted(shares))
        uploads = self.send("upload", {user: (by_holder[user], shared) for user in shares})
        return dict(uploads)

    def _choose_survivors(
        self, adverts: Mapping[int, Advert], uploaded: Collection[int]
    ) -> frozenset[int]:
        """The clients whose upload counts: others would not be hidden, and refuse to agree."""
        terms = self.terms
        survivors = set(uploaded)
        while True:
            hidden = {
                user
                for user in survivors
                if len(survivors & set(adverts[user].holders[: terms.n_masks])) >= terms.least_masks
            }
            if hidden == survivors:
                break
            survivors = hidden
        self._require(survivors, "uploaded", terms.least_survivors)
        return frozenset(survivors)

    def _collect_released(
        self, uploaded: Collection[int], survivors: frozenset[int]
    ) -> dict[int, dict[int, bytes]]:
        """Owner -> holder -> the share that was released, by all who uploaded."""
        signatures = self.send("agree", dict.fromkeys(uploaded, (survivors,)))
        self._require(signatures, "agreed to the survivors")
        released = self.send("unmask", dict.fromkeys(signatures, (signatures,)))
        by_owner: dict[int, dict[int, bytes]] = {}
        for holder, shares in released.items():
            for owner, share in shares.items():
                by_owner.setdefault(owner, {})[holder] = share
        return by_owner

    def _recover(
        self, owner: int, advert: Advert, released: Mapping[int, Mapping[int, bytes]]
    ) -> bytes:
        """A secret of a client, from the shares of its holders."""
        shares = released.get(owner, {})
        by_place = {
            place: shares[holder]
            for place, holder in enumerate(advert.holders, 1)
            if holder in shares
        }
        secret = shamir.recover(by_place, self.terms.threshold)
        if secret is None:
            raise Aborted("too few shares of a secret were released")
        return secret

    def _recover_self_mask(
        self, owner: int, advert: Advert, released: Mapping[int, Mapping[int, bytes]]
    ) -> Seed:
        seed = self._recover(owner, advert, released)
        if digest_of_seed(seed) != advert.self_mask_digest:
            raise Aborted("a recovered self-mask is not the one that was advertised")
        return Seed(seed)

    def _masks_with(
        self,
        dropped: int,
        adverts: Mapping[int, Advert],
        survivors: frozenset[int],
        released: Mapping[int, Mapping[int, bytes]],
    ) -> Words:
        """The masks between a client that dropped out and the survivors, as these added them."""
        terms = self.terms
        total: Words = np.zeros(terms.length, UNSIGNED[terms.word])
        chosen = set(adverts[dropped].holders[: terms.n_masks])
        neighbours = [
            user
            for user in sorted(survivors)
            if user in chosen or dropped in adverts[user].holders[: terms.n_masks]
        ]
        if not neighbours:
            return total
        key = KeyPair.from_secret(self._recover(dropped, adverts[dropped], released))
        if key.public != adverts[dropped].mask_key:
            raise Aborted("a recovered mask key is not the one that was advertised")
        for user in neighbours:
            try:
                secret = key.exchange(adverts[user].mask_key)
            except Rejected:
                raise Aborted("a mask key is not usable") from None
            mask = self._expand(mask_seed(secret, terms, dropped, user))
            total = total + mask if user < dropped else total - mask
        return total

    def _expand(self, seed: Seed) -> Words:
        return expand(seed, self.terms.length, self.terms.word)

    def _require(self, clients: Collection[int], did: str, least: int | None = None) -> None:
        """Abort with fewer clients than a quorum, or than `least`."""
        needed = self.terms.quorum if least is None else least
        if len(clients) < needed:
            raise Aborted(f"{len(clients)} clients {did}; the group needs {needed}")
