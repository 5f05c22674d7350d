"""Each attacker on hand-made rounds with known answers."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hand_made import after, claimed, claims_of, observed
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.attacks import attackers
from coterie.attacks.evidence import ServerKnowledge
from coterie.attacks.features import extract_features, opposite

N = 12
NO_ROWS = np.zeros((N, 2))
PLAIN = ServerKnowledge(2, N, 2)
P = np.array([-0.3, 0.4])


def row(e: float, p: np.ndarray, q: np.ndarray | float = 0.0, reg: float = 0.0) -> list[float]:
    """Eqs. 3 to 5: e > 0 for a liked item, e < 0 for a sampled one."""
    return [*(e * p - reg * np.asarray(q) * np.ones(2)), e]


# Signs


def test_bias_sign_claims_what_was_pushed_up_more_often_than_down():
    first = observed(
        {0: {1: row(0.5, P), 2: row(-0.5, P), 3: row(0.2, P)}, 1: {2: row(0.4, P)}}, NO_ROWS
    )
    second = observed({0: {1: row(-0.1, P), 3: row(0.1, P), 4: row(-0.2, P)}}, NO_ROWS, t=1)
    assert claims_of(attackers.BIAS_SIGN, PLAIN, first) == [{1, 3}, {2}]
    assert claims_of(attackers.BIAS_SIGN, PLAIN, first, second) == [{3}, {2}]


def test_bias_sign_needs_no_factors_and_factor_sign_no_bias():
    """Factors alone tell bias-sign nothing, and biases alone tell factor-sign nothing."""
    factors = {0: {1: [*P, 0], 2: [*-P, 0], 3: [*(-0.5 * P), 0]}}
    biases = {0: {1: [0, 0, 0.5], 2: [0, 0, -0.5], 3: [0, 0, -0.2]}}
    assert claims_of(attackers.BIAS_SIGN, PLAIN, observed(factors, NO_ROWS))[0] == set()
    assert claims_of(attackers.BIAS_SIGN, PLAIN, observed(biases, NO_ROWS))[0] == {1}
    assert claims_of(attackers.FACTOR_SIGN, PLAIN, observed(biases, NO_ROWS))[0] == set()
    assert claims_of(attackers.FACTOR_SIGN, PLAIN, observed(factors, NO_ROWS))[0] == {1}


@pytest.mark.parametrize("p", [P, -P, np.array([0.0, -0.01])])
def test_factor_sign_claims_the_smaller_side_wherever_the_user_stands(p):
    sent = {1: row(0.5, p), 2: row(-0.5, p), 3: row(-0.4, p), 4: row(-0.3, p), 5: row(0.1, p)}
    assert claims_of(attackers.FACTOR_SIGN, PLAIN, observed({0: sent}, NO_ROWS)) == [{1, 5}, set()]


def test_factor_sign_waits_until_one_side_recurs():
    """One disclosed triple a round: after one round the sides are equal, then the liked item
    repeats. Between the rounds the user's vector turns by 40 degrees."""
    turned = np.array([[0.77, -0.64], [0.64, 0.77]]) @ P
    first = observed({0: {1: row(0.5, P), 7: row(-0.5, P)}}, NO_ROWS)
    second = observed({0: {1: row(0.6, turned), 3: row(-0.6, turned)}}, NO_ROWS, t=1)
    assert claims_of(attackers.FACTOR_SIGN, PLAIN, first)[0] == set()
    assert claims_of(attackers.FACTOR_SIGN, PLAIN, first, second)[0] == {1}


def test_factor_sign_does_not_take_regularisation_for_a_side():
    """Item 4 is a negative whose row is almost only regularisation."""
    Q = np.full((N, 2), 2.0) * np.sign(P)
    server = ServerKnowledge(1, N, 2, reg_positive=0.02, reg_negative=0.02)
    sent = {i: row(-0.5, P, Q[i], 0.02) for i in (2, 3)} | {
        4: row(-0.001, P, -Q[4], 0.02),
        1: row(0.5, P, Q[1], 0.02),
    }
    assert np.sign(sent[4][:2]).tolist() == np.sign(P).tolist()  # as if it were liked
    assert claims_of(attackers.FACTOR_SIGN, server, observed({0: sent}, Q)) == [{1}]


# Pairs

RNG_ROWS = np.sin(np.arange(2 * N) + 1.0).reshape(N, 2)  # any rows that differ
DECAYED = ServerKnowledge(2, N, 2, reg_positive=0.01, reg_negative=0.001)


def triple(
    i: int, j: int, e: float, p: np.ndarray, server: ServerKnowledge = DECAYED
) -> dict[int, list[float]]:
    return {
        i: row(e, p, RNG_ROWS[i], server.reg_positive),
        j: row(-e, p, RNG_ROWS[j], server.reg_negative),
    }


@pytest.mark.parametrize("p", [P, -P])
def test_pairing_tells_who_is_liked_by_the_regularisation_of_the_two(p):
    """(1, 2) and (5, 6) are triples; the liked item of 4 was not disclosed; 7 was in two triples,
    with 8 and with 9."""
    moved = p + 0.03  # pairing allows for a user's vector that moves between triples
    both = np.array(row(0.31, p, RNG_ROWS[7], 0.01)) + row(0.22, moved, RNG_ROWS[7], 0.01)
    sent = {
        **triple(1, 2, 0.5, p),
        **triple(5, 6, 0.45, moved),
        4: row(-0.4, p, RNG_ROWS[4], 0.001),
        7: both.tolist(),
        8: row(-0.31, p, RNG_ROWS[8], 0.001),
        9: row(-0.22, moved, RNG_ROWS[9], 0.001),
    }
    assert claims_of(attackers.PAIRING, DECAYED, observed({0: sent}, RNG_ROWS)) == [{1, 5}, set()]


def test_pairing_with_one_triple_a_round_knows_at_once():
    one_round = observed({0: triple(9, 3, 0.5, P)}, RNG_ROWS)
    assert claims_of(attackers.PAIRING, DECAYED, one_round)[0] == {9}


def test_pairing_without_a_difference_in_regularisation_waits_for_items_that_recur():
    same = ServerKnowledge(1, N, 2, reg_positive=0.01, reg_negative=0.01)
    first = observed({0: triple(1, 2, 0.5, P, same)}, RNG_ROWS)
    second = observed({0: triple(1, 3, 0.4, P, same)}, RNG_ROWS, t=1)
    assert claims_of(attackers.PAIRING, same, first) == [set()]
    assert claims_of(attackers.PAIRING, same, first, second) == [{1}]


def test_pairing_is_not_misled_by_rows_that_are_nearly_opposite():
    sent = {1: row(0.5, P, RNG_ROWS[1], 0.01), 2: row(-0.50001, P, RNG_ROWS[2], 0.001)}
    assert claims_of(attackers.PAIRING, DECAYED, observed({0: sent}, RNG_ROWS))[0] == set()


def test_users_of_one_round_are_not_paired_with_each_other():
    """The longest row of one user is exactly opposite to the shortest of the other."""
    one = {1: row(0.5, P), 8: row(-0.3, P)}
    other = {2: row(-0.5, P), 9: row(0.7, P)}

    def paired(sent: dict[int, dict[int, list[float]]]) -> list[bool]:
        one_round = observed(sent, NO_ROWS)
        features = extract_features(one_round, 2, np.zeros((len(one_round.users), 2)))
        return opposite(features, 1, 0.0, 0.0).tolist()

    assert paired({0: one, 1: other}) == [False] * 4
    assert paired({0: one | other}) == [True, True, False, False]


# Counts


def test_frequency_claims_what_came_more_often_than_chance_lets_it():
    """Ten rounds of one draw among a hundred items: by chance
    100 P(X >= 2) = 100 (1 - 0.99^10 - 10 * 0.01 * 0.99^9) = 0.43 items come twice, so two rounds
    are enough."""
    server = ServerKnowledge(1, 100, 2)
    rows = np.zeros((100, 2))
    rounds = [observed({0: {10: row(1, P), 20 + t: row(-1, P)}}, rows, t) for t in range(9)]
    rounds.append(observed({0: {21: row(-1, P), 50: row(-1, P)}}, rows, 9))
    assert claims_of(attackers.FREQUENCY, server, *rounds) == [{10, 21}]


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(1, 50), st.integers(2, 400))
def test_frequencys_threshold_is_the_first_that_chance_hardly_reaches(rounds, triples, n_items):
    server = ServerKnowledge(1, n_items, 1)
    evidence = attackers.Evidence(
        server,
        np.array([rounds]),
        np.array([rounds * triples]),
        np.empty(0, np.int64),
        np.empty(0, np.int32),
        (),
    )
    (least,) = attackers.rounds_beyond_chance(evidence)
    chance = 1 - (1 - 1 / n_items) ** triples

    def expected(c: int) -> float:
        return n_items * sum(
            comb(rounds, x) * chance**x * (1 - chance) ** (rounds - x) for x in range(c, rounds + 1)
        )

    assert expected(least) < 1 + 1e-6
    assert least == 1 or expected(least - 1) >= 1 - 1e-6


def test_complement_claims_what_observed_users_never_sent():
    first = observed({0: {i: row(-1, P) for i in (0, 2, 5)}}, NO_ROWS)
    second = observed({0: {i: row(-1, P) for i in range(2, 9)}}, NO_ROWS, t=1)
    assert claims_of(attackers.COMPLEMENT, PLAIN, first, second) == [{1, 9, 10, 11}, set()]


def test_complement_finds_a_history_that_is_never_disclosed():
    """60 items, 12 of them liked, 8 draws among the others in each of 75 rounds: of the 48 others
    about 48 (47/48)^600 = 0.0002 are never drawn."""
    rng = np.random.default_rng(0)
    server = ServerKnowledge(1, 60, 2)
    others = np.setdiff1d(np.arange(60), liked := rng.permutation(60)[:12])
    rounds = [
        observed(
            {0: {int(j): row(-0.5, P) for j in rng.choice(others, 8)}}, np.zeros((60, 2)), t, 8
        )
        for t in range(75)
    ]
    assert claims_of(attackers.COMPLEMENT, server, *rounds) == [set(liked.tolist())]
    assert len(claims_of(attackers.COMPLEMENT, server, rounds[0])[0]) >= 52
    for blind in (attackers.BIAS_SIGN, attackers.FACTOR_SIGN, attackers.PAIRING):
        assert claims_of(blind, server, *rounds) == [set()]


def test_never_down_also_claims_disclosed_items():
    first = observed({0: {0: row(0.5, P), **{i: row(-0.5, P) for i in (3, 4, 5, 6)}}}, NO_ROWS)
    second = observed(
        {0: {1: row(0.5, P), **{i: row(-0.5, P) for i in (5, 7, 8, 9, 10, 11)}}}, NO_ROWS, t=1
    )
    assert claims_of(attackers.COMPLEMENT, PLAIN, first, second)[0] == {2}
    assert claims_of(attackers.NEVER_DOWN, PLAIN, first, second) == [{0, 1, 2}, set()]


# FCF


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([0.0, 1.0, 5.0, 40.0]))
def test_fcf_finds_exactly_what_was_liked_in_one_round(seed, d, alpha):
    """f(u, i) = c_ui (p_ui - x_u . y_i) x_u in units of the largest confidence, for any x_u."""
    rng = np.random.default_rng(seed)
    n_items = 60
    Y = rng.normal(0, 0.3, (n_items, d))
    X = rng.normal(0, 0.5, (3, d)) + 0.05
    liked = rng.random((3, n_items)) < 0.2
    c = np.where(liked, 1 + alpha, 1.0)
    scores = X @ Y.T
    weights = c * (liked - scores) / (1 + alpha)
    # Here the row of a liked item equals that of an unseen one.
    plain = np.abs(c - (c - 1) * scores) < 0.02
    sent = {u: {i: (weights[u, i] * X[u]).tolist() for i in range(n_items)} for u in range(3)}
    server = ServerKnowledge(3, n_items, d)
    found = claims_of(attackers.FCF, server, observed(sent, Y))
    for u in range(3):
        if np.linalg.norm(X[u]) > 0.1:
            expected = set(np.flatnonzero(liked[u] & ~plain[u]))
            assert found[u] - set(np.flatnonzero(plain[u])) == expected


def test_fcf_goes_by_the_majority_of_rounds():
    Y = np.array([[1.0], [0.5], [-0.5], [0.25], [0.75]])
    x = 0.5
    unseen = {i: [-(x * y) * x] for i, (y,) in enumerate(Y)}
    liked = unseen | {3: [(1 - x * Y[3, 0]) * x]}
    server = ServerKnowledge(1, 5, 1)
    once = observed({0: liked}, Y)
    never = observed({0: unseen}, Y)
    assert claims_of(attackers.FCF, server, once) == [{3}]
    assert claims_of(attackers.FCF, server, once, once, never) == [{3}]
    assert claims_of(attackers.FCF, server, once, never) == [set()]


# All of them


@pytest.mark.parametrize("attacker", attackers.ON_FPL, ids=lambda a: a.name)
def test_reading_in_parts_changes_nothing(attacker):
    """Thirty users, half of them in every other round, up to four triples each, and some liked
    items not disclosed."""
    rng = np.random.default_rng(3)
    Q = rng.normal(size=(40, 2))
    server = ServerKnowledge(30, 40, 2, 0.01, 0.001)
    rounds = []
    for t in range(6):
        sent = {u: some_triples(rng, Q, int(rng.integers(1, 5))) for u in range(0, 30, 1 + t % 2)}
        rounds.append(observed(sent, Q, t))
    whole = after(attacker, server, rounds)
    parted = after(attacker, server, [part for one in rounds for part in one.parts(7)])
    assert sum(len(list(one.parts(7))) for one in rounds) > 40
    for name in ("keys", "scores", "elsewhere"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parted, name))
    assert any(claimed(whole, server))


def some_triples(rng: np.random.Generator, Q: np.ndarray, n: int) -> dict[int, list[float]]:
    p = rng.normal(size=2)
    items = rng.permutation(40).tolist()
    e = rng.random(n) + 0.1
    sent = {j: row(-e[s], p, Q[j], 0.001) for s, j in enumerate(items[:n])}
    return sent | {
        i % 10: row(e[s], p, Q[i % 10], 0.01) for s, i in enumerate(items[n : 2 * n]) if s or n == 1
    }
