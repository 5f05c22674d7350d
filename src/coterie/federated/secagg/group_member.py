"""One client's part in `secagg`: what it sends at each stage, what it checks, which secrets it has.

The protocol follows SecAgg (Bonawitz et al. 2017) on a sparse graph that clients choose, as in
SecAgg+ (Bell et al. 2020), against a server that may lie. All n clients of a group have long-term
signing keys, which every client knows since it joined. Client i draws k holders from its group, by
a secret of its own. x_i is its private vector, modulo 2^word.

    advertise  two public keys for this group (masks, encryption), a digest of its self-mask seed
               b_i, and its holders; signed
    share      for every holder, encrypted: a share of the mask key and one of b_i; any t of k
               shares recover a secret
    upload     y_i = x_i + PRG(b_i) + sum_j +-PRG(s_ij), over the mask neighbours j: the first m of
               its holders, and the clients among whose first m it is
    agree      its signature under the set of survivors: the clients whose upload counts
    unmask     shares of others' secrets: of b_j if j is a survivor, of the mask key if it is not

The server sums up the survivors' uploads. Masks between survivors cancel; those with clients that
dropped out, and the self-masks, are computed from recovered secrets.

What a client checks, so that a server that lies learns no more than a sum over many clients:

- Keys and holders are signed with a key that it knows; others are left out. A server cannot take
  part as a client.
- It draws its holders itself. Of k holders at most c are assumed to collude with the server, and
  t > (k + c) / 2: no two disjoint sets of honest holders can recover both secrets of a client.
- It releases shares for one set of survivors, with more than (n + C) / 2 signatures, where C are
  the assumed colluders of the group. Two sets cannot both have so many. So the server cannot tell
  some holders that a client counts, and others that it dropped out.
- It releases a share of b_j only if at least c + 2 of the clients that j chose for its masks
  survive: each has two neighbours that do not collude, and a sum is over three honest clients or
  more.
- Everything that was broadcast enters all keys. Clients with different models do not decrypt each
  other's shares, and their masks do not cancel.
- It takes part once in an exchange of a round: after it has agreed to survivors, it agrees to no
  others. A repeated message gets the same reply, another one at a passed stage none.

Not protected: what the sum itself says, and updates that are made to do harm.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from coterie.federated.secagg import shamir
from coterie.federated.secagg.crypto import (
    KeyPair,
    PairSecrets,
    Rejected,
    Seed,
    decrypt,
    derive_key,
    encrypt,
    expand,
    expand_into,
    key_in_one_node,
    new_seed,
)
from coterie.federated.secagg.identity import Identity, is_signed
from coterie.federated.secagg.words import UNSIGNED, Word, Words

LEAST_HONEST_NEIGHBOURS = 2
"""Survivors next to each survivor that do not collude: a sum is over one more, at least."""

SMALL_GROUP = 40
"""Clients up to which masks between all cost no more than the sparse ones of a group of 100."""


class GroupTerms(NamedTuple):
    """What all clients of a group agree on."""

    purpose: str
    """What is summed: the run, the round, the exchange and the phase of it."""
    users: tuple[int, ...]
    """Ascending."""
    holders: int
    """k, how many clients hold shares of a client's secrets."""
    colluders: int
    """c, how many of the holders may collude with the server."""
    length: int
    """The length of the summed vector."""
    word: Word
    broadcast: bytes
    """A digest of everything that was broadcast to the group."""
    smallest: int = 3
    """How many clients a group has at least, as each client knows it: a server could form a group
    of one client and of others that collude with it."""
    fewest_survivors: int = 0
    """How many clients must survive so that their noise is enough; 0 where clients add none."""

    @property
    def threshold(self) -> int:
        """t, how many shares recover a secret."""
        return (self.holders + self.colluders) // 2 + 1

    @property
    def quorum(self) -> int:
        """How many clients have to agree to the survivors."""
        group_colluders = -(-len(self.users) * self.colluders // self.holders)
        return (len(self.users) + group_colluders) // 2 + 1

    @property
    def least_survivors(self) -> int:
        """How many clients must survive."""
        return max(self.quorum, self.fewest_survivors)

    @property
    def n_masks(self) -> int:
        """m, how many of its holders a client chooses for masks: twice those that must survive, or
        a sixth of many holders, who are many because clients often drop out.

        In a small group all, since few dropouts there could be too many.
        """
        if len(self.users) <= SMALL_GROUP:
            return self.holders
        return min(self.holders, max(2 * self.least_masks, self.holders // 6))

    @property
    def least_masks(self) -> int:
        """How many of those have to survive."""
        return self.colluders + LEAST_HONEST_NEIGHBOURS

    @property
    def context(self) -> bytes:
        """A digest of the terms, which is part of every key and signature."""
        return _digest_of(self)

    def check(self, user: int) -> None:
        """Refuse terms under which a client would not be hidden."""
        users = self.users
        if user not in users or list(users) != sorted(set(users)):
            raise Rejected("the clients of the group are not distinct, or this one is not in it")
        if len(users) < self.smallest:
            raise Rejected("the group has fewer clients than the smallest that a client accepts")
        if not 0 <= self.colluders < self.holders < len(users):
            raise Rejected("the group is too small for its holders, or has too many colluders")
        if self.threshold > self.holders or self.least_masks > self.n_masks:
            raise Rejected("with so many colluders the threshold cannot be reached")
        if self.length < 0 or self.word not in UNSIGNED:
            raise Rejected("the length of the sum or its word is invalid")


@lru_cache(maxsize=16)
def _digest_of(terms: GroupTerms) -> bytes:
    return hashlib.sha256(repr(tuple(terms)).encode()).digest()


class Advert(NamedTuple):
    """What a client tells its group."""

    mask_key: bytes
    cipher_key: bytes
    self_mask_digest: bytes
    holders: tuple[int, ...]
    """Users, in the order in which they were drawn."""
    signature: bytes

    def signed_text(self, terms: GroupTerms, user: int) -> bytes:
        listed = ",".join(map(str, self.holders)).encode()
        keys = (self.mask_key, self.cipher_key, self.self_mask_digest)
        return b"|".join([b"advert", terms.context, b"%d" % user, *keys, listed])

    def is_well_formed(self, terms: GroupTerms, user: int) -> bool:
        """Whether a client's advert names k distinct others of the group."""
        chosen = set(self.holders)
        has_k = len(self.holders) == len(chosen) == terms.holders
        return has_k and user not in chosen and chosen <= set(terms.users)


class Shares(NamedTuple):
    """One holder's shares of a client's secrets."""

    of_mask_key: bytes
    of_self_mask: bytes


def digest_of_seed(seed: bytes) -> bytes:
    """What shows that a recovered seed is the right one. A seed is random: its digest hides it."""
    return hashlib.sha256(b"self-mask " + seed).digest()


def survivors_text(terms: GroupTerms, survivors: Collection[int]) -> bytes:
    """What clients sign when they agree to survivors."""
    listed = ",".join(map(str, sorted(survivors))).encode()
    return b"|".join([b"survivors", terms.context, listed])


@dataclass(frozen=True, slots=True, repr=False)
class Hosted:
    """What the clients of one node compute once for all of them. It holds secrets of theirs."""

    pair_secrets: PairSecrets = field(default_factory=PairSecrets)
    cipher_secrets: dict[bytes, bytes] = field(default_factory=dict)
    """The public cipher key of each of its clients -> a secret derived from the private one."""
    valid_adverts: dict[tuple[bytes, int, bytes], Advert] = field(default_factory=dict)
    """(the context of the terms, user, signature) -> its advert, if that is valid."""
    signed: set[tuple[bytes, bytes, bytes]] = field(default_factory=set)
    """(public key, text, signature) of its own clients, which need no verification."""
    encrypted: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    """(key, ciphertext) -> the shares that one of its clients encrypted."""
    agreed: dict[tuple[bytes, frozenset[tuple[int, bytes]]], int] = field(default_factory=dict)
    """(the survivors, signatures of clients) -> how many of them are valid."""

    def add_client(self, pair: KeyPair) -> None:
        """Add a client of the node, by the keys with which others encrypt for it."""
        self.cipher_secrets[pair.public] = derive_key(pair.secret, b"clients of one node")

    def cipher_key(self, own: KeyPair, public: bytes, context: bytes) -> bytes:
        """The key for one ciphertext, between a client of the node and the owner of a public key.

        Two clients of the node need no key agreement, which is most of the work of a group: no
        other node needs their key. It follows from private keys, so that it is the same after a
        crash.
        """
        first, second = sorted((own.public, public))
        if first in self.cipher_secrets and second in self.cipher_secrets:
            return key_in_one_node(self.cipher_secrets[first], second + context)
        return self.pair_secrets.key(own, public, context)

    def sign(self, identity: Identity, text: bytes) -> bytes:
        signature = identity.sign(text)
        self.signed.add((identity.public, text, signature))
        return signature

    def is_signed(self, public: bytes | None, text: bytes, signature: bytes) -> bool:
        """Whether the owner of a public key signed a text; False if the key is not known."""
        if public is None:
            return False
        return (public, text, signature) in self.signed or is_signed(public, text, signature)


@dataclass(slots=True)
class GroupMember:
    """A client in a group. It replies to the same message again, and to no other one."""

    user: int
    terms: GroupTerms
    identity: Identity = field(repr=False)
    known_keys: Mapping[int, bytes] = field(repr=False)
    """User -> the signing key that was pinned when it joined."""
    vector: Callable[[], Words] = field(repr=False)
    """Computes the private vector when `upload` needs it."""
    mask_key: KeyPair = field(default_factory=KeyPair.generate, repr=False)
    cipher_key: KeyPair = field(default_factory=KeyPair.generate, repr=False)
    self_mask: Seed = field(default_factory=new_seed, repr=False)
    hosted: Hosted = field(default_factory=Hosted, repr=False)
    """Shared with the other clients of the same node."""
    holders: tuple[int, ...] = ()
    """The clients it chose to hold shares; the first m also for masks."""
    adverts: dict[int, Advert] = field(default_factory=dict)
    """Of its holders, its mask neighbours and the clients whose shares it holds."""
    ciphertexts: dict[int, bytes] = field(default_factory=dict, repr=False)
    """Holder -> the encrypted shares of its secrets."""
    held: dict[int, Shares] = field(default_factory=dict, repr=False)
    """Owner -> the shares that it holds."""
    masked_with: frozenset[int] = frozenset()
    """The mask neighbours in its upload."""
    survivors: frozenset[int] = frozenset()
    """The survivors that it agreed to."""
    received: dict[str, bytes] = field(default_factory=dict, repr=False)
    """Stage -> a digest of what it received."""
    context: bytes = field(init=False, repr=False)
    """Of the terms, like the two numbers after it."""
    n_masks: int = field(init=False, repr=False)
    least_masks: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.context = self.terms.context
        self.n_masks = self.terms.n_masks
        self.least_masks = self.terms.least_masks
        self.hosted.add_client(self.cipher_key)

    # Stages

    def advertise(self) -> Advert:
        """Its public keys and its holders, signed."""
        if not self.holders:
            self.terms.check(self.user)
            self.holders = self._draw_holders()
        digest = digest_of_seed(self.self_mask)
        advert = Advert(self.mask_key.public, self.cipher_key.public, digest, self.holders, b"")
        signature = self.hosted.sign(self.identity, advert.signed_text(self.terms, self.user))
        return advert._replace(signature=signature)

    def share(self, adverts: Mapping[int, Advert]) -> dict[int, bytes]:
        """Holder -> encrypted shares of its secrets.

        `adverts` are those of its holders and of the clients that chose it, as far as they are
        there. Those that it does not accept are left out.
        """
        text = b"".join(b"%d " % user + adverts[user].signature for user in sorted(adverts))
        if self._is_repeated("share", text):
            return self.ciphertexts
        valid = {user: one for user, one in adverts.items() if self._accepts(user, one)}
        terms = self.terms
        if len(set(self.holders) & valid.keys()) < terms.threshold:
            raise Rejected("too few holders are there to recover a secret")
        self.adverts = valid
        of_mask_key = shamir.split(self.mask_key.secret, terms.holders, terms.threshold)
        of_self_mask = shamir.split(self.self_mask, terms.holders, terms.threshold)
        for place, holder in enumerate(self.holders):
            if holder in valid:
                content = of_mask_key[place] + of_self_mask[place]
                self.ciphertexts[holder] = self._encrypt(content, holder)
        self._pass("share", text)
        return self.ciphertexts

    def upload(self, ciphertexts: Mapping[int, bytes], shared: Collection[int]) -> Words:
        """The private vector, masked.

        `ciphertexts` are shares of clients that chose it as a holder, by owner. `shared` are the
        clients of the group that sent theirs.
        """
        self.receive_shares(ciphertexts, shared)
        masked = self.checked_vector().copy()
        mask_vectors([self], masked[None])
        return masked

    def receive_shares(self, ciphertexts: Mapping[int, bytes], shared: Collection[int]) -> None:
        """The first half of `upload`: the shares it holds, and the neighbours it masks with."""
        self._require("share")
        owners = [b"%d " % owner + ciphertexts[owner] for owner in sorted(ciphertexts)]
        text = b"|".join([*owners, b"shared", *(b"%d" % user for user in sorted(shared))])
        if self._is_repeated("upload", text):
            return
        masked_with = frozenset(self.mask_neighbours & set(shared))
        if not self._is_hidden(self.holders, masked_with):
            raise Rejected("too few of the clients that it chose for masks are there")
        self.masked_with = masked_with
        self.held = self._read_shares(ciphertexts)
        self._pass("upload", text)

    def checked_vector(self) -> Words:
        """The private vector, not masked: it never leaves the node."""
        vector = self.vector()
        if len(vector) != self.terms.length or vector.dtype != UNSIGNED[self.terms.word]:
            raise Rejected("the vector has another length or word than the group agreed on")
        return vector

    def agree(self, survivors: Collection[int]) -> bytes:
        """Its signature under the survivors. It signs no other set in this exchange.

        It need not be one of them: it holds shares of theirs, and its own upload stays hidden by
        its self-mask, of which nobody releases a share then.
        """
        self._require("upload")
        chosen = frozenset(survivors)
        text = survivors_text(self.terms, chosen)
        if self._is_repeated("agree", text):
            return self.hosted.sign(self.identity, text)
        if not chosen <= set(self.terms.users):
            raise Rejected("the survivors are of another group")
        if len(chosen) < self.terms.least_survivors:
            raise Rejected("too few clients survive")
        if self.user in chosen and not self._is_hidden(self.holders, chosen & self.masked_with):
            raise Rejected("too few of the clients that it chose for masks survive")
        self.survivors = chosen
        self._pass("agree", text)
        return self.hosted.sign(self.identity, text)

    def unmask(self, signatures: Mapping[int, bytes]) -> dict[int, bytes]:
        """Owner -> a share: of the self-mask seed of a survivor, of the mask key of another client.

        `signatures` are those of clients that agreed to the same survivors.
        """
        self._require("agree")
        if self._count_agreed(signatures) < self.terms.quorum:
            raise Rejected("too few clients agreed to the survivors")
        released = {}
        for owner, shares in self.held.items():
            if owner not in self.survivors:
                released[owner] = shares.of_mask_key
            elif self._is_hidden(self.adverts[owner].holders, self.survivors):
                released[owner] = shares.of_self_mask
        return released

    def _draw_holders(self) -> tuple[int, ...]:
        """Holders that only this client can predict, and that it would draw again.

        If they were new every time, a server could ask again until they suit it. They depend on
        what the group is for and on a secret of the client, not on what the server broadcasts.
        """
        info = b"holders " + self.terms.purpose.encode()
        seed = Seed(derive_key(self.identity.secret, info))
        others = [user for user in self.terms.users if user != self.user]
        order = np.argsort(expand(seed, len(others)), kind="stable")[: self.terms.holders]
        return tuple(others[place] for place in order.tolist())

    # Checks

    @property
    def has_agreed(self) -> bool:
        """Whether it agreed to survivors, and so to no others in this exchange."""
        return "agree" in self.received

    @property
    def mask_neighbours(self) -> set[int]:
        """The clients that it chose for masks, and those that chose it."""
        n = self.n_masks
        chose_it = {
            user for user, advert in self.adverts.items() if self.user in advert.holders[:n]
        }
        return chose_it | (set(self.holders[:n]) & self.adverts.keys())

    def _is_hidden(self, holders: Sequence[int], survivors: frozenset[int]) -> bool:
        """Whether enough of the clients that a client chose for masks survive."""
        return len(survivors.intersection(holders[: self.n_masks])) >= self.least_masks

    def _accepts(self, user: int, advert: Advert) -> bool:
        """Whether an advert is of a client that it deals with, and signed with the known key.

        Others are left out, as if they had not come: one client with a wrong signature, or with
        another model, must not keep all others from their sum.
        """
        if user not in self.holders and self.user not in advert.holders:
            return False
        if user == self.user:
            return False
        key = (self.context, user, advert.signature)
        if self.hosted.valid_adverts.get(key) == advert:
            return True
        if user not in self.terms.users or not advert.is_well_formed(self.terms, user):
            return False
        text = advert.signed_text(self.terms, user)
        if not self.hosted.is_signed(self.known_keys.get(user), text, advert.signature):
            return False
        self.hosted.valid_adverts[key] = advert
        return True

    def _count_agreed(self, signatures: Mapping[int, bytes]) -> int:
        """How many signatures under the survivors are valid; not more than the quorum."""
        text = survivors_text(self.terms, self.survivors)
        key = (text, frozenset(signatures.items()))
        if key not in self.hosted.agreed:
            valid = (
                user
                for user, signature in sorted(signatures.items())
                if self.hosted.is_signed(self.known_keys.get(user), text, signature)
            )
            self.hosted.agreed[key] = len(list(islice(valid, self.terms.quorum)))
        return self.hosted.agreed[key]

    def _is_repeated(self, stage: str, content: bytes) -> bool:
        """Whether the same was received before; Rejected if something else was."""
        before = self.received.get(stage)
        if before is None:
            return False
        if not hmac.compare_digest(before, hashlib.sha256(content).digest()):
            raise Rejected(f"the stage {stage} is over, and another message came")
        return True

    def _pass(self, stage: str, content: bytes) -> None:
        """Remember what was received, once nothing of it was rejected."""
        self.received[stage] = hashlib.sha256(content).digest()

    def _require(self, stage: str) -> None:
        if stage not in self.received:
            raise Rejected(f"the stage {stage} was not reached")

    # Secrets

    def _encrypt(self, content: bytes, holder: int) -> bytes:
        context = self._link(self.user, holder)
        key = self._cipher_key(self.adverts[holder], context)
        ciphertext = encrypt(key, content, context)
        self.hosted.encrypted[key, ciphertext] = content
        return ciphertext

    def _read_shares(self, ciphertexts: Mapping[int, bytes]) -> dict[int, Shares]:
        """The shares in ciphertexts, by owner. Those that cannot be read are left out."""
        found = {}
        for owner, ciphertext in ciphertexts.items():
            advert = self.adverts.get(owner)
            if advert is None or self.user not in advert.holders:
                continue
            try:
                content = self._decrypt(ciphertext, advert, owner)
            except Rejected:
                continue
            if len(content) == 2 * shamir.SHARE_BYTES:
                half = shamir.SHARE_BYTES
                found[owner] = Shares(content[:half], content[half:])
        return found

    def _decrypt(self, ciphertext: bytes, advert: Advert, owner: int) -> bytes:
        context = self._link(owner, self.user)
        key = self._cipher_key(advert, context)
        content = self.hosted.encrypted.get((key, ciphertext))
        return decrypt(key, ciphertext, context) if content is None else content

    def _cipher_key(self, other: Advert, context: bytes) -> bytes:
        """The key for one ciphertext: its context names owner and holder."""
        return self.hosted.cipher_key(self.cipher_key, other.cipher_key, context)

    def mask_seeds(self) -> list[tuple[Seed, bool]]:
        """The seeds of the masks in its upload, and whether each is added or subtracted."""
        seeds = [(self.self_mask, True)]
        for other in sorted(self.masked_with):
            public = self.adverts[other].mask_key
            info = mask_info(self.context, self.user, other)
            seed = Seed(self.hosted.pair_secrets.key(self.mask_key, public, info))
            seeds.append((seed, self.user < other))
        return seeds

    def _link(self, owner: int, holder: int) -> bytes:
        """What a ciphertext is bound to."""
        return b"shares %d %d " % (owner, holder) + self.context


def mask_vectors(members: Sequence[GroupMember], vectors: Words) -> None:
    """Mask the vectors of a node's clients, (n, length), in place.

    A mask between two of them is expanded once, added to one vector and subtracted from the other.
    """
    terms = members[0].terms
    uses: dict[Seed, list[tuple[int, bool]]] = {}
    for row, member in enumerate(members):
        for seed, is_added in member.mask_seeds():
            uses.setdefault(seed, []).append((row, is_added))
    stream = np.empty(terms.length * terms.word // 8, np.uint8)
    for seed, places in uses.items():
        mask = expand_into(stream, seed, terms.word)
        for row, is_added in places:
            combine = np.add if is_added else np.subtract
            combine(vectors[row], mask, out=vectors[row])


def mask_info(context: bytes, user: int, other: int) -> bytes:
    """What the seed of a mask between two clients is bound to.

    With the users in it, a colluder that advertises the key of somebody else has another mask.
    Otherwise that mask could cancel the one with the owner of the key.
    """
    return b"mask %d %d " % (min(user, other), max(user, other)) + context


def mask_seed(secret: bytes, terms: GroupTerms, user: int, other: int) -> Seed:
    """The seed of the mask between two clients that share a secret."""
    return Seed(derive_key(secret, mask_info(terms.context, user, other)))
