"""Rings: exact sums under any dropout, or none; ciphertexts for one receiver; uniform shares."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from telling_apart import classifier_auc, words_auc

from coterie.federated.secagg.crypto import KeyPair, Rejected, Seed, expand
from coterie.federated.secagg.ring import Ring, RingSum, collect_keys, min_survivors
from coterie.federated.secagg.ring_member import Neighbour, RingMember, RingTerms, ShareForm
from coterie.federated.secagg.ring_node import reply_to
from coterie.federated.secagg.stages import Aborted, StageArrays
from coterie.federated.secagg.words import MAX_ENTRY, Word, to_words

STAGES = (
    "advertise_keys",
    "distribute_shares",
    "upload",
    "unmask",
    "reveal_self_mask_of_predecessor",
    "reveal_self_mask_of_successor",
    "recover",
)
LENGTH = 5
LARGEST: dict[Word, int] = {32: 2**20, 64: MAX_ENTRY}
"""Bound of an entry of one client, by word: the sum over fifty clients fits."""
Change = Callable[[np.ndarray], np.ndarray]


class Network:
    """A ring's clients, and a server between them that may drop, change or store messages."""

    def __init__(
        self,
        vectors: dict[int, np.ndarray],
        dropouts: dict[int, str] | None = None,
        shares: ShareForm = "seed",
        word: Word = 64,
    ) -> None:
        length = len(next(iter(vectors.values())))
        self.terms = RingTerms(7, 1, 0, length, shares, word=word)
        self.max_entry = LARGEST[word]
        self.vectors = vectors
        self.dropouts = dropouts or {}
        self.members = {user: self.member(user, vector) for user, vector in vectors.items()}
        self.transcript: list[tuple[str, int, StageArrays]] = []

    def member(self, user: int, vector: np.ndarray) -> RingMember:
        words = to_words(np.asarray(vector, np.int64), self.terms.word)
        return RingMember(user, self.terms, lambda: words)

    def send(self, stage: str, users: np.ndarray, own: StageArrays) -> dict[int, StageArrays]:
        responding = np.array([self.responds(user, stage) for user in users.tolist()], bool)
        sent = self.changed(stage, users, own)
        replies = reply_to(
            stage,
            self.members,
            users[responding].tolist(),
            {name: rows[responding] for name, rows in sent.items()},
        )
        by_user = split_by_user(replies)
        self.transcript += [(stage, user, reply) for user, reply in by_user.items()]
        return by_user

    def responds(self, user: int, stage: str) -> bool:
        if user not in self.dropouts:
            return True
        return STAGES.index(stage) < STAGES.index(self.dropouts[user])

    def changed(self, stage: str, users: np.ndarray, own: StageArrays) -> StageArrays:
        return own

    def aggregate(self) -> RingSum:
        users = np.array(list(self.vectors), np.int32)
        replies = collect_keys(self.send, users, {})
        keys = {user: reply["key"].tobytes() for user, reply in replies.items()}
        minimum = min_survivors(len(users))
        ring = Ring(self.terms, self.send, minimum, max_entry=self.max_entry)
        return ring.aggregate(keys)

    def sent_by(self, stage: str, user: int) -> StageArrays:
        """What a client replied at a stage."""
        (reply,) = (reply for at, sender, reply in self.transcript if (at, sender) == (stage, user))
        return reply

    def late_upload(self, user: int, predecessor: int, successor: int) -> np.ndarray:
        """The upload of a client that the server has declared dropped."""
        share = self.sent_by("distribute_shares", predecessor)["share_ciphertext"]
        self_mask = self.sent_by("distribute_shares", successor)["self_mask_ciphertext"]
        return self.members[user].upload(share.tobytes(), self_mask.tobytes())


def split_by_user(replies: StageArrays) -> dict[int, StageArrays]:
    rows = {name: array for name, array in replies.items() if name not in ("users", "stage")}
    return {
        user: {name: array[k] for name, array in rows.items()}
        for k, user in enumerate(replies["users"].tolist())
    }


def random_vectors(
    n: int, length: int = LENGTH, seed: int = 0, word: Word = 64
) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    users = rng.permutation(100)[:n].tolist()
    largest = min(LARGEST[word], 2**40)
    return {user: rng.integers(-largest, largest, length) for user in users}


def assert_exact(ring_sum: RingSum, vectors: dict[int, np.ndarray]) -> None:
    expected = sum(vectors[user] for user in ring_sum.users.tolist())
    np.testing.assert_array_equal(ring_sum.vector.view(np.int64), expected)


def completes(network: Network) -> bool:
    """Whether the ring completes; its sum is then checked. False if the ring was aborted."""
    try:
        ring_sum = network.aggregate()
    except Aborted:
        return False
    assert_exact(ring_sum, network.vectors)
    dropped = [
        user
        for user, stage in network.dropouts.items()
        if STAGES.index(stage) <= STAGES.index("upload")
    ]
    assert set(ring_sum.users.tolist()) == set(network.vectors) - set(dropped)
    return True


# Sums


@pytest.mark.parametrize("n", [3, 4, 7, 50])
@pytest.mark.parametrize("shares", ["seed", "vector"])
@pytest.mark.parametrize("word", [32, 64])
def test_a_ring_sums_exactly(n, shares, word):
    assert completes(Network(random_vectors(n, word=word), shares=shares, word=word))


@given(
    st.lists(
        st.lists(st.integers(-(2**28), 2**28), min_size=3, max_size=3), min_size=4, max_size=7
    ),
    st.lists(st.sampled_from([None, *STAGES]), min_size=7, max_size=7),
    st.sampled_from(["seed", "vector"]),
)
@settings(max_examples=150, deadline=None)
def test_words_of_32_bits_sum_to_the_integer_sum_under_any_dropout(rows, stages, shares):
    """Seven entries of up to 2^28 stay below 2^31. A ring that aborts has no sum."""
    vectors = {user: np.array(row, np.int64) for user, row in enumerate(rows)}
    dropouts = {user: stage for user, stage in zip(vectors, stages, strict=False) if stage}
    network = Network(vectors, dropouts, shares, word=32)
    network.max_entry = 2**28
    completed = completes(network)
    assert completed or len(dropouts) > 1 or len(rows) - len(dropouts) < 3


@given(
    st.lists(
        st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=2), min_size=3, max_size=6
    )
)
@settings(max_examples=25, deadline=None)
def test_sums_are_exact_modulo_2_to_the_32_and_read_as_signed(rows):
    vectors = {user: np.array(row, np.int64) for user, row in enumerate(rows)}
    network = Network(vectors, word=32)
    network.max_entry = 2**31
    total = [(sum(column) + 2**31) % 2**32 - 2**31 for column in zip(*rows, strict=True)]
    assert network.aggregate().vector.view(np.int64).tolist() == total


@given(
    st.lists(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2), min_size=3, max_size=6
    )
)
@settings(max_examples=25, deadline=None)
def test_sums_are_exact_modulo_2_to_the_64(rows):
    network = Network({user: np.array(row, np.int64) for user, row in enumerate(rows)})
    network.max_entry = 2**63
    total = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    assert network.aggregate().vector.tolist() == total


@pytest.mark.parametrize("n", [1, 2])
def test_a_ring_of_two_is_aborted_since_each_could_subtract_its_own_vector(n):
    with pytest.raises(Aborted, match="needs 3"):
        Network(random_vectors(n)).aggregate()


# Dropout recovery


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("word", [32, 64])
def test_any_single_client_may_drop_out_at_any_stage(stage, word):
    vectors = random_vectors(6, word=word)
    for user in vectors:
        assert completes(Network(vectors, {user: stage}, word=word))


@pytest.mark.long
def test_any_two_clients_may_drop_out_at_any_stages():
    """The sum is exact or the ring aborts; it aborts only if a client needed for recovery drops."""
    aborted = set()
    vectors = random_vectors(6)
    for one, other in combinations(vectors, 2):
        for stages in product(STAGES, repeat=2):
            if not completes(Network(vectors, {one: stages[0], other: stages[1]})):
                aborted.add(frozenset(stages))
    recovery = (
        "unmask",
        "reveal_self_mask_of_predecessor",
        "reveal_self_mask_of_successor",
        "recover",
    )
    assert aborted <= {frozenset({"upload", stage}) for stage in recovery}
    assert frozenset({"upload", "unmask"}) in aborted


@pytest.mark.parametrize("cases", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_random_dropouts_in_a_ring_of_fifty(cases):
    rng = np.random.default_rng(3)
    completed = 0
    for case in range(cases):
        vectors = random_vectors(50, 2, case)
        dropped = rng.choice(list(vectors), rng.integers(0, 12), replace=False).tolist()
        n_stages = 3 if case % 2 else len(STAGES)
        dropouts = {user: STAGES[rng.integers(0, n_stages)] for user in dropped}
        completed += completes(Network(vectors, dropouts))
    # In every second case clients drop out before they upload only: all of those recover.
    assert completed > cases / 2


def test_adjacent_clients_may_drop_out():
    users = list(random_vectors(8))
    assert completes(Network(random_vectors(8), dict.fromkeys(users[2:5], "upload")))
    dropouts = {users[0]: "upload", users[-1]: "upload", users[3]: "distribute_shares"}
    assert completes(Network(random_vectors(8), dropouts))


def test_a_ring_is_aborted_when_more_than_half_drop_out():
    users = list(random_vectors(8))
    assert min_survivors(8) == 4
    assert completes(Network(random_vectors(8), dict.fromkeys(users[:4], "upload")))
    assert not completes(Network(random_vectors(8), dict.fromkeys(users[:5], "upload")))


def test_a_late_upload_does_not_count_and_stays_secret():
    """A client declared dropped may still upload: its self-mask hides the vector from a server."""
    vectors = random_vectors(6)
    predecessor, late, successor = list(vectors)[1:4]
    network = Network(vectors, {late: "upload"})
    assert completes(network)
    upload = network.late_upload(late, predecessor, successor)
    # The correction is S(s_predecessor) - S(s_late): it removes both shares from the upload.
    unmasked = upload - network.sent_by("recover", successor)["vector"]
    own = vectors[late].view(np.uint64)
    assert (unmasked != own).all()
    # The self-mask is the only mask that is left.
    self_mask = expand(network.members[late].self_mask, LENGTH)
    np.testing.assert_array_equal(unmasked - self_mask, own)
    assert not [stage for stage, _, _ in network.transcript if stage.startswith("reveal")]
    for neighbour, side in ((predecessor, "successor"), (successor, "predecessor")):
        with pytest.raises(Rejected):
            network.members[neighbour].reveal_self_mask(side)


def test_a_client_replies_to_each_stage_once():
    """A repeated request, with another neighbour or another claim, is rejected."""
    network = Network(random_vectors(5))
    network.aggregate()
    member = network.members[next(iter(network.vectors))]
    other = Neighbour(99, KeyPair.generate().public)
    for repeat in (
        lambda: member.distribute_shares(0, other, other),
        lambda: member.distribute_shares(9, other, other),
        lambda: member.upload(b"", b""),
        lambda: member.unmask(False, False, other),
        lambda: member.recover(b"", other),
    ):
        with pytest.raises(Rejected):
            repeat()


# Words


@pytest.mark.parametrize("shares", ["seed", "vector"])
def test_words_of_32_bits_halve_the_bytes(shares):
    """Of uploads, of corrections, and of shares that are vectors. Seeds and keys stay."""
    vectors = random_vectors(6, 100, word=32)
    dropped = list(vectors)[2]
    n_bytes = {}
    for word in (32, 64):
        network = Network(vectors, {dropped: "upload"}, shares, word)
        assert completes(network)
        n_bytes[word] = {
            (stage, name): array.nbytes
            for stage, _, reply in network.transcript
            for name, array in reply.items()
        }
    assert n_bytes[32]["upload", "vector"] == 400
    saved = {at: size - n_bytes[32][at] for at, size in n_bytes[64].items()}
    expected = {("upload", "vector"), ("recover", "vector")}
    if shares == "vector":
        expected.add(("distribute_shares", "share_ciphertext"))
    assert {at for at, n in saved.items() if n} == expected
    assert all(saved[at] == 400 for at in expected)


@pytest.mark.parametrize("word", [32, 64])
def test_a_vector_of_another_word_is_not_uploaded(word):
    """Masks of one word would not cover the bits of the other."""
    vectors = random_vectors(6, word=32)
    network = Network(vectors, word=word)
    other = list(vectors)[1]
    of_other_word = to_words(vectors[other], 96 - word)
    network.members[other].vector = lambda: of_other_word
    ring_sum = network.aggregate()
    assert other not in [user for stage, user, _ in network.transcript if stage == "upload"]
    assert set(ring_sum.users.tolist()) == set(vectors) - {other}
    assert_exact(ring_sum, vectors)


def test_members_with_different_words_cannot_decrypt_each_others_shares():
    vectors = random_vectors(6, word=32)
    network = Network(vectors, word=32)
    other = list(vectors)[1]
    member = network.members[other]
    member.terms = member.terms._replace(word=64)
    member.vector = lambda: to_words(vectors[other], 64)
    ring_sum = network.aggregate()
    # Neither the other member nor its neighbours, who need its ciphertexts, upload.
    assert set(ring_sum.users.tolist()) == set(vectors) - set(list(vectors)[:3])
    assert_exact(ring_sum, vectors)


# Ciphertexts


class ChangedDownlink(Network):
    """A server that changes what clients receive at a stage."""

    def __init__(
        self,
        vectors: dict[int, np.ndarray],
        dropouts: dict[int, str] | None = None,
        *,
        at: str,
        name: str,
        change: Change,
        word: Word = 64,
    ) -> None:
        super().__init__(vectors, dropouts, word=word)
        self.at = at
        self.name = name
        self.change = change

    def changed(self, stage: str, users: np.ndarray, own: StageArrays) -> StageArrays:
        if stage != self.at:
            return own
        return own | {self.name: self.change(own[self.name].copy())}


def flipped(ciphertexts: np.ndarray) -> np.ndarray:
    ciphertexts[1, 5] ^= 1
    return ciphertexts


def swapped(ciphertexts: np.ndarray) -> np.ndarray:
    return ciphertexts[[1, 0, *range(2, len(ciphertexts))]]


CHANGES = {
    "flipped bit": flipped,
    "swapped": swapped,
    "truncated": lambda ciphertexts: ciphertexts[:, :-1],
    "empty": lambda ciphertexts: ciphertexts[:, :0],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("at", "name"),
    [
        ("upload", "share_ciphertext"),
        ("upload", "self_mask_ciphertext"),
        ("recover", "share_ciphertext"),
    ],
)
@pytest.mark.parametrize("word", [32, 64])
def test_changed_ciphertexts_are_rejected(change, at, name, word):
    """A client that cannot decrypt does not upload; the sum recovers or the ring aborts."""
    vectors = random_vectors(9, word=word)
    users = list(vectors)
    network = ChangedDownlink(
        vectors,
        {users[4]: "upload", users[7]: "upload"},
        at=at,
        name=name,
        change=CHANGES[change],
        word=word,
    )
    try:
        ring_sum = network.aggregate()
    except Aborted:
        assert change in ("truncated", "empty") or at == "recover"
        return
    assert_exact(ring_sum, vectors)
    assert len(ring_sum.users) < 7


def test_ciphertexts_of_another_round_attempt_or_neighbour_are_rejected():
    one = KeyPair.generate()
    other = KeyPair.generate()
    terms = RingTerms(3, 0, 0, 5)
    context = terms.context(0, "share", 1, 2)
    ciphertext = one.encrypt(b"secret", other.public, context)
    assert other.decrypt(ciphertext, one.public, context) == b"secret"
    wrong = [
        terms.context(1, "share", 1, 2),
        terms.context(0, "self-mask", 1, 2),
        terms.context(0, "share", 2, 1),
        terms._replace(round=4).context(0, "share", 1, 2),
        terms._replace(ring=1).context(0, "share", 1, 2),
        terms._replace(exchange=1).context(0, "share", 1, 2),
    ]
    for another in wrong:
        with pytest.raises(Rejected):
            other.decrypt(ciphertext, one.public, another)
    with pytest.raises(Rejected):
        one.decrypt(ciphertext, other.public, context)  # its own, sent back
    with pytest.raises(Rejected):
        KeyPair.generate().decrypt(ciphertext, one.public, context)
    with pytest.raises(Rejected):
        other.decrypt(ciphertext, bytes(32), context)  # a key with an all-zero shared secret


def test_ciphertexts_of_an_earlier_attempt_are_rejected():
    """A server that replays the shares of the first attempt in place of the second's."""
    vectors = random_vectors(6)

    class Replaying(Network):
        first_attempt: ClassVar[dict[int, StageArrays]] = {}

        def send(self, stage: str, users: np.ndarray, own: StageArrays) -> dict[int, StageArrays]:
            replies = super().send(stage, users, own)
            if stage == "distribute_shares" and len(replies) < len(users):
                type(self).first_attempt = replies
            return replies

        def changed(self, stage: str, users: np.ndarray, own: StageArrays) -> StageArrays:
            if stage != "upload":
                return own
            predecessors = np.roll(users, 1).tolist()
            old = [self.first_attempt[user]["share_ciphertext"] for user in predecessors]
            return own | {"share_ciphertext": np.stack(old)}

    with pytest.raises(Aborted, match="0 clients uploaded"):
        Replaying(vectors, {list(vectors)[2]: "distribute_shares"}).aggregate()


class ChangedUplink(Network):
    """A network that changes what the first client sends at a stage."""

    def __init__(
        self,
        vectors: dict[int, np.ndarray],
        dropouts: dict[int, str] | None = None,
        *,
        at: str,
        name: str,
        change: Change,
        word: Word = 64,
    ) -> None:
        super().__init__(vectors, dropouts, word=word)
        self.at = at
        self.name = name
        self.change = change

    def send(self, stage: str, users: np.ndarray, own: StageArrays) -> dict[int, StageArrays]:
        replies = super().send(stage, users, own)
        if stage == self.at and replies:
            first = next(iter(replies))
            changed = self.change(replies[first][self.name].copy())
            replies[first] = replies[first] | {self.name: changed}
        return replies


@pytest.mark.parametrize(
    ("at", "name"),
    [
        ("unmask", "self_mask"),
        ("reveal_self_mask_of_predecessor", "self_mask"),
        ("recover", "vector"),
        ("upload", "vector"),
    ],
)
@pytest.mark.parametrize("word", [32, 64])
def test_masks_that_do_not_cancel_are_detected(at, name, word):
    """A changed self-mask, correction or upload makes the sum exceed its bound."""
    vectors = random_vectors(8, word=word)
    users = list(vectors)

    def scrambled(values: np.ndarray) -> np.ndarray:
        return values ^ np.frombuffer(np.random.default_rng(1).bytes(values.nbytes), values.dtype)

    dropouts = {users[2]: "upload", users[5]: "unmask"}
    network = ChangedUplink(vectors, dropouts, at=at, name=name, change=scrambled, word=word)
    with pytest.raises(Aborted, match="exceeds its bound"):
        network.aggregate()


def test_an_unusable_key_excludes_only_its_owner():
    vectors = random_vectors(7)
    network = ChangedUplink(vectors, at="advertise_keys", name="key", change=np.zeros_like)
    ring_sum = network.aggregate()
    assert len(ring_sum.users) == 6
    assert_exact(ring_sum, vectors)


def test_a_client_with_other_summed_rows_cannot_decrypt():
    one = KeyPair.generate()
    other = KeyPair.generate()
    terms = RingTerms(3, 0, 0, 5, rows="a")
    ciphertext = one.encrypt(b"secret", other.public, terms.context(0, "share", 1, 2))
    context = terms._replace(rows="b").context(0, "share", 1, 2)
    with pytest.raises(Rejected):
        other.decrypt(ciphertext, one.public, context)


@given(
    st.dictionaries(
        st.sampled_from(["key", "share_ciphertext", "self_mask_ciphertext", "vector", "self_mask"]),
        st.binary(max_size=80),
    )
)
@settings(max_examples=60, deadline=None)
def test_a_client_that_sends_malformed_replies_counts_as_dropped(malformed):
    vectors = random_vectors(6)
    faulty = list(vectors)[1]

    class FaultyClient(Network):
        def send(self, stage: str, users: np.ndarray, own: StageArrays) -> dict[int, StageArrays]:
            replies = super().send(stage, users, own)
            if faulty in replies:
                replies[faulty] = {
                    name: np.frombuffer(content, np.uint8) for name, content in malformed.items()
                }
            return replies

    try:
        ring_sum = FaultyClient(vectors).aggregate()
    except Aborted:
        return
    if faulty not in ring_sum.users:
        assert_exact(ring_sum, vectors)


# Shares are indistinguishable from random


def test_a_seed_expands_to_the_key_stream_of_chacha20():
    """RFC 8439, appendix A.1, test vector 1: a key and nonce of zeros."""
    stream = expand(Seed(bytes(32)), 8).astype("<u8").tobytes()
    assert stream.hex().startswith(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    )
    # Words of 32 bits split the same stream: each half the bytes.
    assert expand(Seed(bytes(32)), 16, 32).astype("<u4").tobytes() == stream


def shares(n: int, seed: int, values: np.ndarray) -> np.ndarray:
    """n shares of values modulo 2^64: the part that is not sent to the successor."""
    # A fixed seed: the test is about the key stream.
    key = Seed(np.random.default_rng(seed).bytes(32))
    return np.resize(values, n).astype(np.int64).view(np.uint64) - expand(key, n)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_million_shares_are_uniform_in_every_byte(gradient):
    from scipy.stats import chisquare

    values = np.random.default_rng(1).normal(0, 500, 1000).round() if gradient else np.zeros(1)
    lanes = shares(10**6, 5, values).astype("<u8").view(np.uint8).reshape(-1, 8)
    for lane in range(8):
        assert 0.001 < chisquare(np.bincount(lanes[:, lane], minlength=256)).pvalue < 0.999


def test_shares_of_a_gradient_cannot_be_told_from_shares_of_zero():
    gradient = np.random.default_rng(2).normal(0, 500, 40_000).round()
    n = 40_000

    auc = words_auc(shares(n, 1, np.zeros(n)), shares(n, 2, gradient))
    assert auc == pytest.approx(0.5, abs=0.01)


@pytest.mark.long
def test_shares_in_floating_point_can_be_told_apart():
    """The control: a random float and its difference to the gradient, a naive reading of Eq. 10."""
    rng = np.random.default_rng(2)
    gradient = rng.normal(0, 1e-3, 40_000)
    n = 40_000
    passed = rng.normal(0, 1e-3, (2, n))
    assert classifier_auc((0 - passed[0])[:, None], (gradient - passed[1])[:, None]) > 0.6


# Known limits


def test_one_neighbour_and_the_server_recover_a_late_upload():
    """The server knows both shares of a client declared dropped; a neighbour has its self-mask."""
    vectors = random_vectors(6)
    predecessor, late, successor = list(vectors)[1:4]
    network = Network(vectors, {late: "upload"})
    network.aggregate()
    upload = network.late_upload(late, predecessor, successor)
    self_mask = network.members[successor].neighbour_self_masks["predecessor"]
    correction = network.sent_by("recover", successor)["vector"]
    recovered = upload - correction - expand(self_mask, LENGTH)
    np.testing.assert_array_equal(recovered.view(np.int64), vectors[late])


def test_two_neighbours_and_the_server_recover_an_update():
    """The predecessor knows s_(k-1), the successor s_k and b_k, and the server has the upload."""
    vectors = random_vectors(6)
    network = Network(vectors)
    network.aggregate()
    predecessor, victim, successor = list(vectors)[1:4]
    upload = network.sent_by("upload", victim)["vector"]
    at_successor = network.members[successor]
    at_predecessor = network.members[predecessor]
    assert at_successor.received_share is not None
    recovered = (
        upload
        - expand(at_successor.neighbour_self_masks["predecessor"], LENGTH)
        + at_successor.received_share
        - expand(at_predecessor.share, LENGTH)
    )
    np.testing.assert_array_equal(recovered.view(np.int64), vectors[victim])


@pytest.mark.parametrize(
    ("predecessor", "successor"),
    [
        pytest.param(0, 0, id="a ring of one"),
        pytest.param(1, 1, id="a ring of two"),
        pytest.param(0, 1, id="its own predecessor"),
    ],
)
def test_a_member_refuses_small_rings(predecessor: int, successor: int):
    """Whatever the server says: in a ring of one, the upload would be the vector itself."""
    network = Network({user: np.arange(LENGTH) for user in range(3)})
    keys = {user: member.advertise_keys() for user, member in network.members.items()}

    def neighbour(user: int) -> Neighbour:
        return Neighbour(user, keys[user])

    with pytest.raises(Rejected, match="fewer than three members"):
        network.members[0].distribute_shares(0, neighbour(predecessor), neighbour(successor))
    disguised = Neighbour(7, keys[0])
    with pytest.raises(Rejected, match="fewer than three members"):
        network.members[0].distribute_shares(0, disguised, neighbour(1))
    assert network.members[0].distribute_shares(0, neighbour(2), neighbour(1))


def test_a_server_that_equivocates_recovers_an_update():
    """It tells a member that it counts, and its neighbours that it dropped out: the ring is for
    servers that follow the protocol. `secagg` refuses this (test_active_server)."""
    vectors = random_vectors(6)
    network = Network(vectors)
    users = np.array(list(vectors), np.int32)
    replies = collect_keys(network.send, users, {})
    keys = {user: reply["key"].tobytes() for user, reply in replies.items()}
    ring = Ring(network.terms, network.send, 3)
    order, shares, self_masks = ring._distribute_shares(keys)
    uploads = ring._collect_uploads(order, shares, self_masks)
    predecessor, victim, successor = order.tolist()[1:4]
    members = network.members
    self_mask, _ = members[victim].unmask(True, True, Neighbour(successor, keys[successor]))
    _, share = members[predecessor].unmask(True, False, Neighbour(successor, keys[successor]))
    members[successor].unmask(False, True, Neighbour(predecessor, keys[predecessor]))
    masks = members[successor].recover(share, Neighbour(predecessor, keys[predecessor]))
    recovered = uploads[victim]["vector"] - expand(self_mask, LENGTH) - masks
    np.testing.assert_array_equal(recovered.view(np.int64), vectors[victim])


def test_two_members_anywhere_and_the_server_recover_the_sums_of_both_arcs():
    vectors = random_vectors(9)
    network = Network(vectors)
    network.aggregate()
    order = list(vectors)
    first, second = order[1], order[5]
    arc = order[2:5]
    total = np.zeros(LENGTH, np.uint64)
    for user in arc:
        # Everybody's self-mask is known to the server after `unmask`.
        self_mask = Seed(network.sent_by("unmask", user)["self_mask"].tobytes())
        total += network.sent_by("upload", user)["vector"] - expand(self_mask, LENGTH)
    received = network.members[second].received_share
    assert received is not None
    total = total - expand(network.members[first].share, LENGTH) + received
    np.testing.assert_array_equal(total.view(np.int64), sum(vectors[user] for user in arc))
