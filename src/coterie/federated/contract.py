"""What an algorithm's functions must return. A mistake is named where it happens.

An update that a node sends is data and is refused silently (`validation.py`); what the
algorithm's own code returns is checked here and raises.
"""

from __future__ import annotations

import numpy as np

from coterie.core.records import Record
from coterie.errors import ContractError
from coterie.federated.federation import (
    AnyExchange,
    AnyWorld,
    PrivateState,
    SecureSum,
    State,
    Sums,
)
from coterie.federated.validation import DTYPES
from coterie.types import Ints, Updates


def check_cohort(world: AnyWorld, cohort: Ints) -> Ints:
    """The cohort that `sample` returned: ascending int32 indices of clients that are present."""
    if not isinstance(cohort, np.ndarray) or cohort.dtype != np.int32 or cohort.ndim != 1:
        raise ContractError(
            f"sample returned {_described(cohort)}; expected a one-dimensional int32 array of "
            "user indices. Convert it: np.flatnonzero(chosen).astype(np.int32)."
        )
    if (cohort[1:] <= cohort[:-1]).any():
        raise ContractError(
            "sample returned users that are not ascending, or repeated; expected every user once, "
            "in ascending order. Return np.unique(cohort)."
        )
    outside = cohort[(cohort < 0) | (cohort >= world.n_users)]
    if len(outside):
        raise ContractError(
            f"sample returned user {int(outside[0])}; expected indices from 0 to "
            f"{world.n_users - 1}. Draw from world.present."
        )
    absent = cohort[~world.present[cohort]]
    if len(absent):
        raise ContractError(
            f"sample returned user {int(absent[0])}, who is not available in this round or has no "
            "training data; expected users of world.present only. Draw from world.present."
        )
    return cohort


def check_updates(updates: Updates) -> None:
    """The arrays of what `client_update` returned; their sizes are the server's to check."""
    for name, column in updates.columns().items():
        if column.dtype != DTYPES[name]:
            raise ContractError(
                f"client_update returned {name} of dtype {column.dtype}; "
                f"expected {np.dtype(DTYPES[name])}. "
                "Use coterie.quantise for rows, and int32 for users and items."
            )


def check_private_rows(before: PrivateState, after: PrivateState, n_users: int) -> None:
    """The next private state: the same names as before, one row for every client."""
    if before and after.keys() != before.keys():
        raise ContractError(
            f"client_update returned private state {_names(after)}; expected {_names(before)}, as "
            "init_clients does. Return a row for every client under each name."
        )
    for name, rows in after.items():
        wanted = (n_users, *before[name].shape[1:]) if name in before else (n_users,)
        if rows.shape[: len(wanted)] != wanted:
            raise ContractError(
                f"client_update returned private state {name!r} of shape {rows.shape}; "
                f"expected {wanted}. Return one row for each of message.users."
            )


def check_rows_per_user(made: PrivateState, n_users: int) -> None:
    """What `init_clients` or `client_model` returned on a node: one row for every user there."""
    for name, rows in made.items():
        if len(rows) != n_users:
            raise ContractError(
                f"init_clients or client_model returned {len(rows)} rows of {name!r} on a node of "
                f"{n_users} users; expected one for every user. "
                "Return a row for each of node.users."
            )


def check_initial_private_state(state: Record, private: PrivateState) -> None:
    """What `init_clients` returned: the state's private fields."""
    if set(private) != set(state.private):
        raise ContractError(
            f"init_clients returned {_names(private)}, but the private fields of "
            f"{type(state).__name__} are {_names(state.private)}; expected the same names. "
            "Name the fields in `private`, or return them from init_clients."
        )


def check_sums(world: AnyWorld, exchange: AnyExchange, sums: Sums) -> Sums:
    """What `aggregate` returned: int64 arrays, with those of `SecureSum.by_item` among them."""
    for name, total in sums.items():
        if not isinstance(total, np.ndarray) or total.dtype != np.int64:
            raise ContractError(
                f"aggregate returned the sum {name!r} as {_described(total)}; expected an int64 "
                "array. Sum the updates' integers, and divide by SCALE in server_update."
            )
    secure = exchange.secure_sum
    missing = [name for name in secure.by_item if name not in sums] if secure and sums else []
    if missing:
        raise ContractError(
            f"SecureSum.by_item names {missing[0]!r}, but aggregate returned {_names(sums)}; "
            "expected one of these. Correct the name."
        )
    return sums


def check_words(world: AnyWorld, secure: SecureSum) -> None:
    """The word and the bound that `SecureSum` declares: no sum over a ring or group may wrap."""
    word = secure.word(world)
    if word not in (32, 64):
        raise ContractError(f"SecureSum.word returned {word!r}; expected 32 or 64. Return 64.")
    bound = secure.max_entry(world)
    n = min(world.settings.largest_group, world.n_users)
    if not 0 < n * bound < 1 << (word - 1):
        raise ContractError(
            f"SecureSum.max_entry returned {bound} for words of {word} bits; expected at least 1, "
            f"and {n} clients times it below 2^{word - 1}. "
            "Return the largest entry of one client, and 64 from SecureSum.word where 32 bits are "
            "too few."
        )


def check_next_state(before: State, after: State) -> State:
    """What `server_update` returned: a state of the same type."""
    if type(after) is not type(before):
        raise ContractError(
            f"server_update returned {_described(after)}; expected a {type(before).__name__}. "
            "Return dataclasses.replace(state, ...)."
        )
    return after


def _described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of dtype {value.dtype} and shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"


def _names(names: object) -> str:
    assert isinstance(names, (dict, tuple, set))
    return ", ".join(repr(name) for name in sorted(names)) or "none"
