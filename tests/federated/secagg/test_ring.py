"""Rings: exact sums whoever vanishes when, or none; boxes that open for one neighbour and one purpose; shares that say nothing."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from coterie.federated.secagg.client import answer
from coterie.federated.secagg.crypto import Lock, Refused, Seed, grown
from coterie.federated.secagg.member import Member, Neighbour, Terms
from coterie.federated.secagg.ring import LARGEST, Columns, GivenUp, Ring, announced, fewest

STAGES = ("announce", "deal", "upload", "close", "reveal before", "reveal after", "mend")
LENGTH = 5


class Network:
    """Members, and a server between them that may lose, change or keep what they say."""

    largest = LARGEST

    def __init__(
        self,
        contributions: dict[int, np.ndarray],
        vanish: dict[int, str] | None = None,
        **terms: Any,
    ) -> None:
        length = len(next(iter(contributions.values())))
        self.terms = Terms(7, 1, 0, length, **terms)
        self.contributions = contributions
        self.vanish = vanish or {}
        self.members = {user: self.member(user, numbers) for user, numbers in contributions.items()}
        self.heard: list[tuple[str, int, Columns]] = []

    def member(self, user: int, numbers: np.ndarray) -> Member:
        return Member(user, self.terms, lambda: np.asarray(numbers, np.int64).view(np.uint64))

    def ask(self, stage: str, users: np.ndarray, own: Columns) -> dict[int, Columns]:
        there = np.array([self.is_there(user, stage) for user in users.tolist()], bool)
        sent = self.changed(stage, users, own)
        said = answer(
            stage,
            self.members,
            users[there].tolist(),
            {name: column[there] for name, column in sent.items()},
        )
        found = {}
        for k, user in enumerate(said["users"].tolist()):
            found[user] = {
                name: column[k] for name, column in said.items() if name not in ("users", "stage")
            }
            self.heard.append((stage, user, found[user]))
        return found

    def is_there(self, user: int, stage: str) -> bool:
        return user not in self.vanish or STAGES.index(stage) < STAGES.index(self.vanish[user])

    def changed(self, stage: str, users: np.ndarray, own: Columns) -> Columns:
        return own

    def added(self) -> Any:
        users = np.array(list(self.contributions), np.int32)
        keys = {
            user: said["key"].tobytes() for user, said in announced(self.ask, users, {}).items()
        }
        return Ring(self.terms, self.ask, fewest(len(users)), largest=self.largest).add_up(keys)


def contributions(n: int, length: int = LENGTH, seed: int = 0) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    users = rng.permutation(100)[:n].tolist()
    return {user: rng.integers(-(2**40), 2**40, length) for user in users}


def exact(network: Network) -> bool:
    """Whether the sum is that of those who count; False where the ring was given up."""
    try:
        added = network.added()
    except GivenUp:
        return False
    expected = sum(network.contributions[user] for user in added.users.tolist())
    np.testing.assert_array_equal(added.numbers.view(np.int64), expected)
    lost = [
        user
        for user, stage in network.vanish.items()
        if STAGES.index(stage) <= STAGES.index("upload")
    ]
    assert set(added.users.tolist()) == set(network.contributions) - set(lost)
    return True


# Sums


@pytest.mark.parametrize("n", [3, 4, 7, 50])
@pytest.mark.parametrize("way", ["seed", "numbers"])
def test_a_ring_adds_up(n, way):
    assert exact(Network(contributions(n), way=way))


@given(
    st.lists(
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2), min_size=3, max_size=6
    )
)
@settings(max_examples=25, deadline=None)
def test_sums_are_exact_modulo_2_to_the_64(rows):
    network = Network({user: np.array(row, np.int64) for user, row in enumerate(rows)})
    network.largest = 2**63
    total = [sum(column) % 2**64 for column in zip(*rows, strict=True)]
    assert network.added().numbers.tolist() == total


@pytest.mark.parametrize("n", [1, 2])
def test_a_ring_of_two_would_tell_each_what_the_other_added(n):
    with pytest.raises(GivenUp, match="needs 3"):
        Network(contributions(n)).added()


# Who vanishes is healed around.


@pytest.mark.parametrize("stage", STAGES)
def test_any_single_member_may_vanish_at_any_stage(stage):
    for user in contributions(6):
        assert exact(Network(contributions(6), {user: stage}))


def test_any_two_may_vanish_at_any_stages():
    """The sum is exact or there is none; it is given up only where nobody can stand in."""
    given_up = set()
    everybody = contributions(6)
    for one, other in combinations(everybody, 2):
        for stages in product(STAGES, repeat=2):
            if not exact(Network(everybody, {one: stages[0], other: stages[1]})):
                given_up.add(frozenset(stages))
    healing = ("close", "reveal before", "reveal after", "mend")
    assert given_up <= {frozenset({"upload", stage}) for stage in healing}
    assert frozenset({"upload", "close"}) in given_up


@pytest.mark.parametrize("cases", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_random_cases_in_a_ring_of_fifty(cases):
    rng = np.random.default_rng(3)
    exactly = 0
    for case in range(cases):
        everybody = contributions(50, 2, case)
        gone = rng.choice(list(everybody), rng.integers(0, 12), replace=False).tolist()
        vanish = {user: STAGES[rng.integers(0, 3 if case % 2 else len(STAGES))] for user in gone}
        exactly += exact(Network(everybody, vanish))
    assert (
        exactly > cases / 2
    )  # every second case vanishes before uploads are in, and all of those are healed


def test_members_in_a_row_may_vanish():
    users = list(contributions(8))
    assert exact(Network(contributions(8), dict.fromkeys(users[2:5], "upload")))
    assert exact(
        Network(contributions(8), {users[0]: "upload", users[-1]: "upload", users[3]: "deal"})
    )


def test_a_ring_is_given_up_when_half_of_it_has_gone():
    users = list(contributions(8))
    assert fewest(8) == 4
    assert exact(Network(contributions(8), dict.fromkeys(users[:4], "upload")))
    assert not exact(Network(contributions(8), dict.fromkeys(users[:5], "upload")))


def test_a_late_upload_is_not_counted_and_stays_secret():
    """Whoever was left out may still send its upload: with all that it heard a server has one mask too few."""
    everybody = contributions(6)
    users = list(everybody)
    late = users[2]
    after = users[3]
    network = Network(everybody, {late: "upload"})
    assert exact(network)
    boxes = {(stage, user): columns for stage, user, columns in network.heard}
    before = users[1]
    upload = network.members[late].upload(
        boxes["deal", before]["forward"].tobytes(), boxes["deal", after]["back"].tobytes()
    )
    mended = boxes["mend", after]["numbers"]  # S(s_before) - S(s_late)
    unmasked = upload - mended
    own = everybody[late].view(np.uint64)
    assert (unmasked != own).all()
    np.testing.assert_array_equal(
        unmasked - grown(network.members[late].veil, LENGTH), own
    )  # and no more than one
    assert not [stage for stage, _ in boxes if stage.startswith("reveal")]
    for neighbour, which in ((before, "after"), (after, "before")):
        with pytest.raises(Refused):
            network.members[neighbour].reveal(which)


def test_a_member_answers_once():
    """Asked again, with another neighbour or another story, it says nothing."""
    network = Network(contributions(5))
    users = list(network.contributions)
    network.added()
    member = network.members[users[0]]
    stranger = Neighbour(99, Lock.fresh().public)
    for again in (
        lambda: member.deal(0, stranger, stranger),
        lambda: member.deal(9, stranger, stranger),
        lambda: member.upload(b"", b""),
        lambda: member.close(False, False, stranger),
        lambda: member.mend(b"", stranger),
    ):
        with pytest.raises(Refused):
            again()


# Boxes


class Meddler(Network):
    """A server that changes what one member gets at a stage."""

    def __init__(self, *given: Any, at: str, column: str, change: Any, **terms: Any) -> None:
        super().__init__(*given, **terms)
        self.at = at
        self.column = column
        self.change = change

    def changed(self, stage: str, users: np.ndarray, own: Columns) -> Columns:
        if stage != self.at:
            return own
        changed = own | {self.column: own[self.column].copy()}
        changed[self.column] = self.change(changed[self.column])
        return changed


def flipped(boxes: np.ndarray) -> np.ndarray:
    boxes[1, 5] ^= 1
    return boxes


def swapped(boxes: np.ndarray) -> np.ndarray:
    return boxes[[1, 0, *range(2, len(boxes))]]


CHANGES = {
    "a bit": flipped,
    "order": swapped,
    "cut off": lambda boxes: boxes[:, :-1],
    "nothing": lambda boxes: boxes[:, :0],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    ("at", "column"), [("upload", "forward"), ("upload", "back"), ("mend", "forward")]
)
def test_boxes_that_were_changed_are_refused(change, at, column):
    """Whoever cannot open its box does not upload, and is healed around or the ring is given up: there is no wrong sum."""
    everybody = contributions(9)
    network = Meddler(
        everybody,
        {list(everybody)[4]: "upload", list(everybody)[7]: "upload"},
        at=at,
        column=column,
        change=CHANGES[change],
    )
    try:
        added = network.added()
    except GivenUp:
        assert change in ("cut off", "nothing") or at == "mend"
        return
    np.testing.assert_array_equal(
        added.numbers.view(np.int64), sum(everybody[user] for user in added.users.tolist())
    )
    assert len(added.users) < 7


def test_boxes_of_another_round_attempt_or_neighbour_are_refused():
    one = Lock.fresh()
    other = Lock.fresh()
    terms = Terms(3, 0, 0, 5)
    box = one.sealed(b"secret", other.public, terms.about(0, "forward", 1, 2))
    assert other.opened(box, one.public, terms.about(0, "forward", 1, 2)) == b"secret"
    wrong = [
        terms.about(1, "forward", 1, 2),
        terms.about(0, "back", 1, 2),
        terms.about(0, "forward", 2, 1),
        terms._replace(round=4).about(0, "forward", 1, 2),
        terms._replace(ring=1).about(0, "forward", 1, 2),
        terms._replace(exchange=1).about(0, "forward", 1, 2),
    ]
    for context in wrong:
        with pytest.raises(Refused):
            other.opened(box, one.public, context)
    with pytest.raises(Refused):
        one.opened(box, other.public, terms.about(0, "forward", 1, 2))  # its own, sent back
    with pytest.raises(Refused):
        Lock.fresh().opened(box, one.public, terms.about(0, "forward", 1, 2))
    with pytest.raises(Refused):
        other.opened(
            box, bytes(32), terms.about(0, "forward", 1, 2)
        )  # a key that would make the secret nought


def test_boxes_of_an_earlier_dealing_are_refused():
    """A ring that was dealt twice: the first boxes, kept by the server and sent in place of the second, open for nobody."""
    everybody = contributions(6)

    class Keeper(Network):
        private_state: ClassVar[dict[int, Columns]] = {}

        def ask(self, stage: str, users: np.ndarray, own: Columns) -> dict[int, Columns]:
            said = super().ask(stage, users, own)
            if stage == "deal" and len(said) < len(users):
                type(self).private_state = said
            return said

        def changed(self, stage: str, users: np.ndarray, own: Columns) -> Columns:
            if stage != "upload":
                return own
            old = np.stack(
                [self.private_state[user]["forward"] for user in np.roll(users, 1).tolist()]
            )
            return own | {"forward": old}

    with pytest.raises(GivenUp, match="0 members uploaded"):
        Keeper(everybody, {list(everybody)[2]: "deal"}).added()


class Liar(Network):
    """A server, or a wire, that changes what members say."""

    def __init__(self, *given: Any, at: str, column: str, change: Any) -> None:
        super().__init__(*given)
        self.at = at
        self.column = column
        self.change = change

    def ask(self, stage: str, users: np.ndarray, own: Columns) -> dict[int, Columns]:
        said = super().ask(stage, users, own)
        if stage == self.at and said:
            first = next(iter(said))
            said[first] = said[first] | {self.column: self.change(said[first][self.column].copy())}
        return said


@pytest.mark.parametrize(
    ("at", "column"),
    [("close", "veil"), ("reveal before", "veil"), ("mend", "numbers"), ("upload", "numbers")],
)
def test_masks_that_do_not_cancel_are_noticed(at, column):
    """A veil, a mending or an upload with other bits: the sum is no sum that there could be."""
    everybody = contributions(8)
    users = list(everybody)

    def scrambled(values: np.ndarray) -> np.ndarray:
        return values ^ np.frombuffer(np.random.default_rng(1).bytes(values.nbytes), values.dtype)

    network = Liar(
        everybody, {users[2]: "upload", users[5]: "close"}, at=at, column=column, change=scrambled
    )
    with pytest.raises(GivenUp, match="larger than it can be"):
        network.added()


def test_a_key_that_cannot_be_used_keeps_only_its_owner_out():
    everybody = contributions(7)
    network = Liar(everybody, at="announce", column="key", change=np.zeros_like)
    added = network.added()
    assert len(added.users) == 6
    np.testing.assert_array_equal(
        added.numbers.view(np.int64), sum(everybody[user] for user in added.users.tolist())
    )


def test_who_adds_up_other_rows_opens_no_box():
    one = Lock.fresh()
    other = Lock.fresh()
    terms = Terms(3, 0, 0, 5, rows="a")
    box = one.sealed(b"secret", other.public, terms.about(0, "forward", 1, 2))
    with pytest.raises(Refused):
        other.opened(box, one.public, terms._replace(rows="b").about(0, "forward", 1, 2))


@given(
    st.dictionaries(
        st.sampled_from(["key", "forward", "back", "numbers", "veil"]), st.binary(max_size=80)
    )
)
@settings(max_examples=60, deadline=None)
def test_members_that_talk_nonsense_are_as_if_they_had_vanished(nonsense):
    everybody = contributions(6)
    fool = list(everybody)[1]

    class Fool(Network):
        def ask(self, stage: str, users: np.ndarray, own: Columns) -> dict[int, Columns]:
            said = super().ask(stage, users, own)
            if fool in said:
                said[fool] = {
                    name: np.frombuffer(content, np.uint8) for name, content in nonsense.items()
                }
            return said

    try:
        added = Fool(everybody).added()
    except GivenUp:
        return
    if fool not in added.users:
        np.testing.assert_array_equal(
            added.numbers.view(np.int64), sum(everybody[user] for user in added.users.tolist())
        )


# What shares say


def test_what_a_seed_grows_into_is_chacha20():
    """RFC 8439, Section 2.3.2's cipher with a key and nonce of noughts: appendix A.1, test vector 1."""
    stream = grown(Seed(bytes(32)), 8).astype("<u8").tobytes()
    assert stream.hex().startswith(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    )


def shares(n: int, seed: int, values: np.ndarray) -> np.ndarray:
    """n shares of values modulo 2^64: the part that is not passed on."""
    key = Seed(np.random.default_rng(seed).bytes(32))  # a fixed one: what is tested is the stream
    return np.resize(values, n).astype(np.int64).view(np.uint64) - grown(key, n)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_million_shares_are_uniform_in_every_byte(gradient):
    from scipy.stats import chisquare

    values = np.random.default_rng(1).normal(0, 500, 1000).round() if gradient else np.zeros(1)
    lanes = shares(10**6, 5, values).astype("<u8").view(np.uint8).reshape(-1, 8)
    for lane in range(8):
        assert 0.001 < chisquare(np.bincount(lanes[:, lane], minlength=256)).pvalue < 0.999


def told_apart(zeros: np.ndarray, real: np.ndarray) -> float:
    """The AUC of a classifier that tries to tell shares of nought from shares of a gradient."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    x = np.concatenate([zeros, real])
    y = np.repeat([0, 1], [len(zeros), len(real)])
    order = np.random.default_rng(0).permutation(len(y))
    train = order[: len(y) // 2]
    test = order[len(y) // 2 :]
    fitted = HistGradientBoostingClassifier(max_iter=40, random_state=0).fit(x[train], y[train])
    return float(roc_auc_score(y[test], fitted.predict_proba(x[test])[:, 1]))


def test_shares_of_a_gradient_cannot_be_told_from_shares_of_nought():
    gradient = np.random.default_rng(2).normal(0, 500, 40_000).round()
    n = 40_000

    def features(words: np.ndarray) -> np.ndarray:
        return np.hstack(
            [words.astype("<u8").view(np.uint8).reshape(-1, 8), words[:, None] / 2.0**64]
        )

    auc = told_apart(features(shares(n, 1, np.zeros(n))), features(shares(n, 2, gradient)))
    assert auc == pytest.approx(0.5, abs=0.01)


def test_shares_in_floating_point_can():
    """The control: a random number and what is missing to the gradient, as the paper's Eq. 10 is written down naively."""
    rng = np.random.default_rng(2)
    gradient = rng.normal(0, 1e-3, 40_000)
    n = 40_000
    passed = rng.normal(0, 1e-3, (2, n))
    assert told_apart((0 - passed[0])[:, None], (gradient - passed[1])[:, None]) > 0.6


def test_one_neighbour_and_the_server_recover_an_upload_that_came_too_late():
    """Of whoever was left out the masks between it and its neighbours are known: only its veil is left, which both of them have."""
    everybody = contributions(6)
    users = list(everybody)
    before, late, after = users[1:4]
    network = Network(everybody, {late: "upload"})
    network.added()
    said = {(stage, user): columns for stage, user, columns in network.heard}
    upload = network.members[late].upload(
        said["deal", before]["forward"].tobytes(), said["deal", after]["back"].tobytes()
    )
    veil = network.members[after].veils["before"]
    recovered = upload - said["mend", after]["numbers"] - grown(veil, LENGTH)
    np.testing.assert_array_equal(recovered.view(np.int64), everybody[late])


def test_two_neighbours_and_the_server_recover_an_update():
    """The limit of a ring: the member before knows s_(k-1), the one after s_k and v_k, and the server has the upload."""
    everybody = contributions(6)
    network = Network(everybody)
    network.added()
    users = list(everybody)
    victim = users[2]
    before = users[1]
    after = users[3]
    (upload,) = (
        said["numbers"]
        for stage, user, said in network.heard
        if (stage, user) == ("upload", victim)
    )
    known_after = network.members[after]
    known_before = network.members[before]
    assert known_after.given is not None
    recovered = (
        upload
        - grown(known_after.veils["before"], LENGTH)
        + known_after.given
        - grown(known_before.share, LENGTH)
    )
    np.testing.assert_array_equal(recovered.view(np.int64), everybody[victim])
