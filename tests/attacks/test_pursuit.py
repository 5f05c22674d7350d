"""Planted histories are found again from the vectors that they were solved for."""

from __future__ import annotations

import numpy as np
import pytest

from coterie.algorithms.fedals import FedALS
from coterie.algorithms.local import least_squares
from coterie.attacks.pursuit import basis_pursuit, matching_pursuit
from coterie.attacks.solved_vectors import Equations, equations, whiten
from coterie.core.fixed_point import quantise
from coterie.types import SCALE, Rows

N_ITEMS = 150


def planted(d: int, lengths: list[int], seed: int = 0, reg_exponent: float = 1.0):
    """Items, histories, and their vectors as a client sends them."""
    rng = np.random.default_rng(seed)
    Y = rng.normal(0, 0.5, (N_ITEMS, d)).astype(np.float32)
    owned = [np.sort(rng.permutation(N_ITEMS)[:n]).astype(np.int32) for n in lengths]
    history = Rows(np.cumsum([0, *lengths]), np.concatenate(owned))
    settings = FedALS(embedding_size=d, alpha=10.0, reg=0.06, reg_exponent=reg_exponent)
    X = quantise(least_squares.solve(history, Y, settings)) / SCALE
    return Y, [set(items.tolist()) for items in owned], X, float(settings.alpha)


@pytest.mark.parametrize("reg_exponent", [0.0, 1.0])
def test_a_history_solves_the_equations_of_its_vector(reg_exponent):
    """Whatever the ridge is: the equations leave it out."""
    Y, histories, X, alpha = planted(12, [5, 60], reg_exponent=reg_exponent)
    for x, history in zip(X, histories, strict=True):
        system = equations(whiten(Y), x, alpha)
        p = np.isin(np.arange(N_ITEMS), list(history)).astype(float)
        assert np.abs(system.columns @ p - system.right).max() < system.tolerance
        p[min(history)] = 0
        assert np.abs(system.columns @ p - system.right).max() > 100 * system.tolerance


def test_matching_pursuit_finds_short_histories_exactly():
    lengths = [1, 3, 6, 9]
    Y, histories, X, alpha = planted(96, lengths)
    items = whiten(Y)
    found = matching_pursuit([equations(items, x, alpha) for x in X], 20)
    assert [set(own[own >= 0].tolist()) for own in found] == histories


def test_matching_pursuit_fails_where_histories_are_long_against_d():
    Y, histories, X, alpha = planted(8, [30])
    found = matching_pursuit([equations(whiten(Y), X[0], alpha)], 30)[0]
    assert len(histories[0] & set(found.tolist())) < 20


def test_basis_pursuit_finds_longer_histories_exactly():
    Y, histories, X, alpha = planted(96, [6, 20, 40])
    items = whiten(Y)
    for x, history in zip(X, histories, strict=True):
        found = basis_pursuit(equations(items, x, alpha), Y @ x)
        assert found is not None
        assert set(np.flatnonzero(found > 0.5).tolist()) == history


def test_two_rounds_find_what_one_does_not():
    first = planted(40, [35], seed=1)
    Y, histories, _, alpha = first
    other = np.random.default_rng(9).normal(0, 0.5, Y.shape).astype(np.float32)
    history = Rows(np.array([0, 35]), np.array(sorted(histories[0]), np.int32))
    x = (
        quantise(
            least_squares.solve(history, other, FedALS(embedding_size=40, alpha=10.0, reg=0.06))
        )[0]
        / SCALE
    )
    systems = [equations(whiten(Y), first[2][0], alpha), equations(whiten(other), x, alpha)]

    def found(some: list[Equations]) -> set[int]:
        p = basis_pursuit(Equations.joined(some), other @ x)
        assert p is not None
        return set(np.flatnonzero(p > 0.5).tolist())

    assert found(systems) == histories[0]
    assert found(systems[1:]) != histories[0]


def test_known_items_are_part_of_the_history():
    Y, histories, X, alpha = planted(24, [12])
    known = np.array(sorted(histories[0])[:6])
    found = basis_pursuit(equations(whiten(Y), X[0], alpha), Y @ X[0], known)
    assert found is not None
    assert (found[known] == 1).all()


def test_none_where_no_history_explains_a_vector():
    """An item outside of the history is said to be in it."""
    Y, histories, X, alpha = planted(140, [6])
    wrong = np.array([min(set(range(N_ITEMS)) - histories[0])])
    system = equations(whiten(Y), X[0], alpha)
    assert basis_pursuit(system, Y @ X[0]) is not None
    assert basis_pursuit(system, Y @ X[0], wrong) is None
