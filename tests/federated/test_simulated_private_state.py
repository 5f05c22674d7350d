"""Private state in the simulator: rows of some clients, and of all without copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from coterie.core.records import Record
from coterie.federated import simulated_private_state
from coterie.types import Floats


@dataclass(frozen=True, slots=True)
class State(Record):
    private: ClassVar[tuple[str, ...]] = ("scores",)
    scores: Floats


TABLE = np.arange(6, dtype=np.float32).reshape(3, 2)
EVERYBODY = np.arange(3, dtype=np.int32)
SOME = np.array([0, 2], np.int32)


def test_rows_of_everybody_are_the_table_itself_and_cannot_be_written() -> None:
    state = State(TABLE.copy())
    rows = simulated_private_state.rows_of(state, EVERYBODY)["scores"]
    assert np.shares_memory(rows, state.scores)
    with pytest.raises(ValueError, match="read-only"):
        rows[0] = 1


@pytest.mark.parametrize("users", [SOME, EVERYBODY[::-1].copy(), EVERYBODY[:2]])
def test_rows_of_others_are_copies_in_their_order(users: np.ndarray) -> None:
    state = State(TABLE.copy())
    rows = simulated_private_state.rows_of(state, users)["scores"]
    assert rows.tolist() == TABLE[users].tolist()
    assert not np.shares_memory(rows, state.scores)


@pytest.mark.parametrize("groups", [[EVERYBODY], [SOME], [SOME, np.array([1], np.int32)], []])
def test_accepted_clients_are_renewed_and_others_stay(groups: list[np.ndarray]) -> None:
    state = State(TABLE.copy())
    new = [(users, {"scores": TABLE[users] * 10}) for users in groups]
    after = simulated_private_state.renewed(state, state, new)
    wanted = TABLE.copy()
    for users in groups:
        wanted[users] *= 10
    assert after.scores.tolist() == wanted.tolist()
    assert state.scores.tolist() == TABLE.tolist()
