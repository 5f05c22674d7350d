"""`secagg`: exact sums whoever drops out, and a server that lies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
from telling_apart import words_auc

from coterie.federated.secagg import shamir
from coterie.federated.secagg.crypto import KeyPair, Rejected, Seed, expand
from coterie.federated.secagg.group import Group
from coterie.federated.secagg.group_member import (
    Advert,
    GroupMember,
    GroupTerms,
    Hosted,
    mask_seed,
    survivors_text,
)
from coterie.federated.secagg.identity import Identity
from coterie.federated.secagg.stages import Aborted

STAGES = ("advertise", "share", "upload", "agree", "unmask")
IDENTITIES = [Identity.generate() for _ in range(100)]
KNOWN_KEYS = {user: identity.public for user, identity in enumerate(IDENTITIES)}
Dropout = Callable[[str, int], bool]
"""(stage, user) -> whether the client drops out before it replies."""


def terms_for(n: int, holders: int, colluders: int = 0, length: int = 5, word=32) -> GroupTerms:
    return GroupTerms("a purpose", tuple(range(n)), holders, colluders, length, word, b"a model")


@dataclass
class Clients:
    """The clients of a group, in one process; what each sends and receives is recorded."""

    terms: GroupTerms
    drops: Dropout = lambda stage, user: False
    members: dict[int, GroupMember] = field(default_factory=dict)
    hosted: Hosted = field(default_factory=Hosted)
    gone: set[int] = field(default_factory=set)
    sent: dict[str, dict[int, Any]] = field(default_factory=dict)
    received: dict[str, dict[int, Any]] = field(default_factory=dict)
    rejected: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for user in self.terms.users:
            vector = vector_of(user, self.terms)
            self.members[user] = GroupMember(
                user,
                self.terms,
                IDENTITIES[user],
                KNOWN_KEYS,
                lambda vector=vector: vector,
                hosted=self.hosted,
            )

    def send(self, stage: str, out: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        self.received[stage] = dict(out)
        replies = {}
        for user, content in out.items():
            if user not in self.gone and self.drops(stage, user):
                self.gone.add(user)
            if user in self.gone:
                continue
            try:
                replies[user] = getattr(self.members[user], stage)(*content)
            except Rejected as error:
                self.rejected[stage, user] = str(error)
        self.sent[stage] = replies
        return replies


def vector_of(user: int, terms: GroupTerms) -> np.ndarray:
    rng = np.random.default_rng(user)
    signed = {32: np.int32, 64: np.int64}[terms.word]
    return rng.integers(-1000, 1000, terms.length).astype(signed).view(f"u{terms.word // 8}")


def sum_over(users: frozenset[int], terms: GroupTerms) -> list[int]:
    signed = {32: np.int32, 64: np.int64}[terms.word]
    return sum(vector_of(user, terms).view(signed).astype(int) for user in users).tolist()


def run(terms: GroupTerms, drops: Dropout = lambda stage, user: False) -> frozenset[int] | None:
    """The survivors of a group whose sum is right; None if it was aborted."""
    clients = Clients(terms, drops)
    try:
        total, survivors = Group(terms, clients.send, max_entry=1000).aggregate()
    except Aborted:
        return None
    assert total.tolist() == sum_over(survivors, terms)
    assert survivors <= set(clients.sent["upload"])
    return survivors


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize(("n", "holders", "colluders"), [(6, 5, 0), (20, 8, 1), (100, 20, 2)])
def test_the_sum_of_all(n: int, holders: int, colluders: int, word):
    assert run(terms_for(n, holders, colluders, word=word)) == frozenset(range(n))


@pytest.mark.parametrize("stage", STAGES)
def test_all_dropout_subsets_of_a_group_of_six(stage: str):
    """With up to two dropouts the sum of the others is complete, with more it may be aborted."""
    terms = terms_for(6, 5)
    assert (terms.threshold, terms.quorum, terms.least_masks) == (3, 4, 2)
    for size in range(7):
        for dropouts in itertools.combinations(range(6), size):
            found = run(terms, lambda at, user, gone=dropouts: at == stage and user in gone)
            if found is not None:
                counted = stage in ("agree", "unmask")
                assert found <= set(range(6)) - (set() if counted else set(dropouts))
            if size > 3:
                assert found is None
            if size == 0:
                assert found == frozenset(range(6))


@pytest.mark.long
def test_random_dropouts_in_groups_of_a_hundred():
    """In every stage, with several rates: never a wrong sum, and mostly a complete one."""
    terms = terms_for(100, 50, 2, length=3)  # the default holders and colluders
    completed = 0
    for case in range(1000):
        rng = np.random.default_rng(case)
        rate = [0.01, 0.03, 0.05][case % 3]
        found = run(terms, lambda stage, user, rng=rng, rate=rate: rng.random() < rate)
        completed += found is not None
    assert completed > 985


# A server that lies


def honest_until(stage: str, terms: GroupTerms) -> Clients:
    """Clients after the stages before `stage` with an honest server."""
    clients = Clients(terms)
    group = Group(terms, clients.send, max_entry=1000)
    adverts = group._collect_adverts()
    if stage == "share":
        return clients
    shares = group._collect_shares(adverts)
    if stage == "upload":
        return clients
    group._collect_uploads(shares)
    return clients


TERMS = terms_for(30, 10, 1)


def test_equivocation_about_survivors():
    """Half of the clients are told that a client counts, the others that it dropped out. No set has
    a quorum, so nobody releases a share."""
    clients = honest_until("agree", TERMS)
    victim = 7
    everybody = frozenset(TERMS.users)
    sets = {
        user: everybody if user % 2 or user == victim else everybody - {victim}
        for user in TERMS.users
    }
    signatures = clients.send("agree", {user: (sets[user],) for user in TERMS.users})
    released = clients.send("unmask", dict.fromkeys(signatures, (signatures,)))
    assert released == {}
    assert len(clients.rejected) == len(TERMS.users)


def test_a_client_agrees_once():
    """The same round with one survivor fewer: no client that agreed before agrees again."""
    clients = honest_until("agree", TERMS)
    everybody = frozenset(TERMS.users)
    first = clients.send("agree", dict.fromkeys(TERMS.users, (everybody,)))
    second = clients.send("agree", {user: (everybody - {3},) for user in TERMS.users})
    assert (len(first), second) == (30, {})
    again = clients.send("agree", dict.fromkeys(TERMS.users, (everybody,)))
    assert again == first


def test_isolation_by_declared_dropouts():
    """The clients that a victim chose for its masks are declared dropped out: the victim does not
    agree, and its holders keep the shares of its self-mask even if a quorum does."""
    clients = honest_until("agree", TERMS)
    victim = 7
    chosen = clients.members[victim].holders
    survivors = frozenset(set(TERMS.users) - set(chosen[: TERMS.n_masks]))
    assert len(survivors) >= TERMS.quorum
    assert victim not in clients.send("agree", dict.fromkeys(survivors, (survivors,)))
    text = survivors_text(TERMS, survivors)
    signatures = {user: IDENTITIES[user].sign(text) for user in survivors}
    for holder in set(chosen) & survivors:
        member = clients.members[holder]
        assert victim in member.held
        member.survivors = survivors
        member.received["agree"] = b""
        assert victim not in member.unmask(signatures)


# Clients of one node


def test_clients_of_one_node_send_what_they_would_send_alone(monkeypatch: pytest.MonkeyPatch):
    """What a node computes once for all its clients changes no message of theirs, but for the keys
    of ciphertexts between them: those hide the same shares."""
    monkeypatch.setattr("secrets.randbelow", lambda bound: 12345)
    together = Clients(TERMS)
    Group(TERMS, together.send, 1000).aggregate()
    alone = Clients(TERMS)
    for user, member in together.members.items():
        secrets = {name: getattr(member, name) for name in ("mask_key", "cipher_key", "self_mask")}
        alone.members[user] = replace(alone.members[user], hosted=Hosted(), **secrets)
    Group(TERMS, alone.send, 1000).aggregate()
    assert set(alone.sent) == set(STAGES)
    for stage, replies in together.sent.items():
        for user, reply in replies.items():
            same = alone.sent[stage][user]
            if stage == "share":
                reply = {holder: len(ciphertext) for holder, ciphertext in reply.items()}
                same = {holder: len(ciphertext) for holder, ciphertext in same.items()}
            is_equal = (same == reply).all() if stage == "upload" else same == reply
            assert is_equal, (stage, user)
    for user, member in together.members.items():
        assert member.held == alone.members[user].held


def test_only_a_node_reads_what_its_clients_encrypt_for_each_other():
    """A client of another node that advertises the cipher key of a client of this one cannot."""
    clients = honest_until("share", TERMS)
    adverts = clients.sent["advertise"]
    member = clients.members[0]
    attacker, owner_of_key = member.holders[:2]
    # On another node, so that its keys are not those of this one's clients.
    clients.members[attacker].hosted = Hosted()
    stolen = adverts[attacker]._replace(cipher_key=adverts[owner_of_key].cipher_key)
    signature = IDENTITIES[attacker].sign(stolen.signed_text(TERMS, attacker))
    forged = {user: adverts[user] for user in member.holders}
    forged[attacker] = stolen._replace(signature=signature)
    sent = member.share(forged)
    assert set(sent) == set(member.holders)
    reader = clients.members[attacker]
    reader.adverts = {0: adverts[0]}
    assert reader._read_shares({0: sent[attacker]}) == {}


def test_clients_of_one_node_need_no_key_agreement(monkeypatch: pytest.MonkeyPatch):
    """Those for masks remain: a server computes the masks of a client that dropped out."""
    agreed: list[bytes] = []
    exchange = KeyPair.exchange

    def counted(self: KeyPair, public: bytes) -> bytes:
        agreed.append(public)
        return exchange(self, public)

    monkeypatch.setattr(KeyPair, "exchange", counted)
    clients = Clients(TERMS)
    Group(TERMS, clients.send, 1000).aggregate()
    cipher_keys = {advert.cipher_key for advert in clients.sent["advertise"].values()}
    assert agreed
    assert not cipher_keys & set(agreed)


def test_a_node_relies_on_known_keys_for_its_own_clients_too():
    """A signature of a client of the node does not count where another key is known for it."""
    clients = honest_until("share", TERMS)
    adverts = clients.sent["advertise"]
    member = clients.members[0]
    other = member.holders[0]
    member.known_keys = KNOWN_KEYS | {other: IDENTITIES[99].public}
    assert other not in member.share({user: adverts[user] for user in member.holders})


def test_a_changed_ciphertext_of_the_same_node_is_not_read():
    clients = honest_until("upload", TERMS)
    member = clients.members[0]
    shares = clients.sent["share"]
    by_owner = {owner: sent[0] for owner, sent in shares.items() if 0 in sent}
    owner = min(by_owner)
    changed = bytes([by_owner[owner][0] ^ 1]) + by_owner[owner][1:]
    member.upload(by_owner | {owner: changed}, sorted(shares))
    assert set(member.held) == set(by_owner) - {owner}


@pytest.mark.parametrize("fault", ["another key", "another model", "no such client", "self"])
def test_adverts_that_a_server_forges(fault: str):
    clients = honest_until("share", TERMS)
    adverts = clients.sent["advertise"]
    member = clients.members[0]
    other = member.holders[0]
    forged: dict[int, Advert] = {user: adverts[user] for user in member.holders}
    if fault == "another key":
        forged[other] = adverts[other]._replace(mask_key=KeyPair.generate().public)
    elif fault == "another model":
        terms = TERMS._replace(broadcast=b"another model")
        text = adverts[other].signed_text(terms, other)
        forged[other] = adverts[other]._replace(signature=IDENTITIES[other].sign(text))
    elif fault == "no such client":
        forged[99] = forged.pop(other)
    else:
        other = 0
        forged[0] = member.advertise()
    ciphertexts = member.share(forged)
    assert set(ciphertexts) == set(member.holders) - {other}
    assert other not in member.adverts
    assert 99 not in member.adverts


@pytest.mark.parametrize(
    "changes",
    [
        {"users": (0,), "holders": 0},
        {"users": (0, 1), "holders": 1},
        {"users": (0, 0, 1, 2, 3, 4), "holders": 4},
        {"users": (1, 2, 3, 4, 5, 6), "holders": 4},
        {"users": tuple(range(6)), "holders": 6},
        {"users": tuple(range(6)), "holders": 5, "colluders": 5},
        {"users": tuple(range(30)), "holders": 10, "colluders": 9},
        {"word": 16},
    ],
)
def test_terms_that_would_not_hide_a_client(changes: dict[str, Any]):
    terms = TERMS._replace(**changes)
    member = GroupMember(0, terms, IDENTITIES[0], KNOWN_KEYS, lambda: vector_of(0, TERMS))
    with pytest.raises(Rejected):
        member.advertise()


def test_another_model_for_one_client_reveals_nothing():
    """Model inconsistency: the victim's terms have another digest, so nobody accepts its advert."""
    clients = Clients(TERMS)
    victim = 7
    other_terms = TERMS._replace(broadcast=b"another model")
    clients.members[victim] = replace(clients.members[victim], terms=other_terms)
    adverts = Group(TERMS, clients.send)._collect_adverts()
    Group(TERMS, clients.send, 1000)._require(adverts, "advertised")
    out: dict[int, tuple[dict[int, Advert]]] = {user: ({},) for user in adverts}
    for user, advert in adverts.items():
        for holder in advert.holders:
            out[user][0][holder] = adverts[holder]
            out[holder][0][user] = advert
    shares = clients.send("share", out)
    assert victim not in shares
    assert not any(victim in ciphertexts for ciphertexts in shares.values())


def test_signatures_of_others_do_not_count():
    clients = honest_until("agree", TERMS)
    everybody = frozenset(TERMS.users)
    signatures = clients.send("agree", dict.fromkeys(TERMS.users, (everybody,)))
    member = clients.members[0]
    few = dict(itertools.islice(signatures.items(), TERMS.quorum - 1))
    repeated = few | {user: signatures[0] for user in TERMS.users if user not in few}
    strangers = few | dict.fromkeys(range(50, 90), signatures[0])
    for wrong in (few, repeated, strangers, {}):
        with pytest.raises(Rejected, match="too few clients agreed"):
            member.unmask(wrong)
    assert member.unmask(signatures)


def test_nobody_releases_both_shares_of_a_client():
    clients = honest_until("agree", TERMS)
    survivors = frozenset(TERMS.users) - {3}
    signatures = clients.send("agree", dict.fromkeys(survivors, (survivors,)))
    released = clients.send("unmask", dict.fromkeys(signatures, (signatures,)))
    for holder, shares in released.items():
        held = clients.members[holder].held
        for owner, share in shares.items():
            expected = held[owner].of_mask_key if owner == 3 else held[owner].of_self_mask
            assert share == expected
        assert set(shares) == set(held)


# Collusion


def test_a_copied_mask_key_gives_another_mask():
    """A colluder with the key of an honest client: the victim's two masks must not cancel."""
    terms = terms_for(10, 9, 1)
    clients = Clients(terms)
    honest, victim, colluder = clients.members[0], clients.members[4], clients.members[9]
    copied = honest.mask_key.public
    text = colluder.advertise()._replace(mask_key=copied)
    advert = text._replace(signature=IDENTITIES[9].sign(text.signed_text(terms, 9)))
    adverts = {user: member.advertise() for user, member in clients.members.items() if user != 4}
    victim.advertise()
    ciphertexts = victim.share(adverts | {9: advert})
    assert 9 in ciphertexts  # the advert is signed, so that it is accepted
    victim.receive_shares({}, terms.users)
    seeds = [seed for seed, _ in victim.mask_seeds()]
    assert len(seeds) == len(set(seeds)) == 10


COLLUSION = terms_for(16, 9, 2, length=2048)
"""t = 6 of 9 shares recover a secret."""


@dataclass
class Conspiracy:
    """The server, and some of the holders of client 0: all that they know after a group is done."""

    clients: Clients
    holders: tuple[int, ...]

    @classmethod
    def of(cls, n: int) -> Conspiracy:
        clients = Clients(COLLUSION)
        Group(COLLUSION, clients.send, max_entry=1000).aggregate()
        return cls(clients, clients.members[0].holders[:n])

    def view(self) -> np.ndarray:
        """The victim's upload less all masks that the conspirators know."""
        upload = self.clients.sent["upload"][0].copy()
        for user in self.holders:
            upload -= self.mask_between(self.clients.members[user].mask_key, user)
        return upload

    def mask_between(self, key: KeyPair, user: int) -> np.ndarray:
        """What the victim, who comes first, added for its mask with another client."""
        victim = self.clients.members[0].mask_key.public
        other = victim if key.public != victim else self.clients.members[user].mask_key.public
        seed = mask_seed(key.exchange(other), COLLUSION, 0, user)
        return expand(seed, COLLUSION.length, 32)

    def recovered(self) -> np.ndarray | None:
        """The victim's vector, from the secrets that their shares recover."""
        places = {self.clients.members[0].holders.index(user) + 1: user for user in self.holders}
        held = {place: self.clients.members[user].held[0] for place, user in places.items()}
        t = COLLUSION.threshold
        mask_key = shamir.recover({p: one.of_mask_key for p, one in held.items()}, t)
        self_mask = shamir.recover({p: one.of_self_mask for p, one in held.items()}, t)
        if mask_key is None or self_mask is None:
            return None
        upload = self.clients.sent["upload"][0] - expand(Seed(self_mask), COLLUSION.length, 32)
        for user in self.clients.members[0].masked_with:
            upload = upload - self.mask_between(KeyPair.from_secret(mask_key), user)
        return upload


@pytest.mark.long
def test_fewer_colluders_than_the_threshold_see_noise():
    """A classifier cannot tell what they see of a gradient from random words."""
    pytest.importorskip("sklearn")
    t = COLLUSION.threshold
    conspiracies = [Conspiracy.of(t - 1) for _ in range(15)]
    assert all(each.recovered() is None for each in conspiracies)
    seen = np.concatenate([each.view() for each in conspiracies])
    noise = np.random.default_rng(0).integers(0, 1 << 32, len(seen), np.uint32)
    assert words_auc(seen, noise) == pytest.approx(0.5, abs=0.02)
    # The control: the vectors themselves are told apart.
    plain = np.concatenate([vector_of(0, COLLUSION) for _ in conspiracies])
    assert words_auc(plain, noise) > 0.95


def test_as_many_colluders_as_the_threshold_recover_a_vector():
    """Why c, the assumed number of colluders, has to be below t."""
    recovered = Conspiracy.of(COLLUSION.threshold).recovered()
    assert recovered is not None
    np.testing.assert_array_equal(recovered, vector_of(0, COLLUSION))


def test_no_secret_is_shown():
    clients = honest_until("agree", TERMS)
    member = clients.members[0]
    shown = repr(member) + repr(member.identity) + str(clients.rejected)
    for secret in (member.mask_key.secret, member.cipher_key.secret, bytes(member.self_mask)):
        assert secret.hex() not in shown
        assert repr(secret) not in shown
