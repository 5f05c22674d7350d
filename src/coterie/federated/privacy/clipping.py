"""Clipped updates: differential privacy for any algorithm whose clients send updates to add up.

DP-FedAvg (McMahan, Ramage, Talwar, Zhang. Learning differentially private recurrent language
models. ICLR 2018): an update longer than `clip` is shortened to it, and noise is added to the sum.
Coterie divides sums by nothing that depends on data, so that there is no second sum to protect.

An update becomes integers on the grid of the noise: `clip` is the sensitivity of the plan. It is
rounded towards zero, so that no vector becomes longer. The server scales sums back.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from coterie.federated.client_rows import scaled, squared_norms
from coterie.federated.federation import (
    AlgorithmSettings,
    AnyWorld,
    ClientResult,
    Exchange,
    FastPaths,
    NodeData,
    PrivateSum,
    SinglePass,
    State,
    Sums,
    World,
)
from coterie.federated.privacy.plan import plan_for, with_noise
from coterie.types import SCALE, Doubles, Message, Updates


def clipped(
    exchange: Exchange[State, AlgorithmSettings], private: PrivateSum
) -> Exchange[State, AlgorithmSettings]:
    """The same exchange, whose clients clip their updates under a privacy budget.

    Its sums are those of updates as they are: item rows and dense parameters, without weights.
    """
    secure = exchange.secure_sum
    assert secure is not None

    def client_update(
        world: World[AlgorithmSettings], message: Message, node: NodeData
    ) -> ClientResult:
        result = exchange.client_update(world, message, node)
        plan = plan_for(world, private)
        if plan is None:
            return result
        updates, private_state = (result, {}) if isinstance(result, Updates) else result
        return clip(updates, world.settings.clip, plan.sensitivity), private_state

    def from_table(world: AnyWorld, sums: Sums) -> Sums:
        plan = plan_for(world, private)
        if plan is not None:
            sums = to_fixed_point(sums, world.settings.clip, plan.sensitivity)
        return secure.from_table(world, sums)

    def single_pass(
        world: World[AlgorithmSettings], message: Message, node: NodeData
    ) -> SinglePass | None:
        if world.settings.epsilon is not None:
            return None  # a single pass has no update that could be clipped
        return exchange.fast.single_pass(world, message, node)

    fast: FastPaths[State, AlgorithmSettings] = replace(exchange.fast, single_pass=single_pass)
    return replace(
        exchange,
        client_update=client_update,
        fast=fast,
        secure_sum=replace(with_noise(secure, private), from_table=from_table),
        private_sum=private,
    )


def clip(updates: Updates, longest: float, sensitivity: float) -> Updates:
    """Updates on the grid on which `longest` is `sensitivity`, each at most that long.

    One with entries out of range, whose training diverged, becomes zero. To refuse it would tell of
    the user's data what no noise hides.
    """
    factor = sensitivity / (longest * SCALE)
    length = np.maximum(lengths(updates), 1e-9)
    by_user = np.minimum(factor, sensitivity * (1 - 1e-9) / length)
    rows = np.ascontiguousarray(updates.item_rows)
    return replace(
        updates,
        item_rows=scaled(rows, updates.offsets, by_user) if rows.size else rows,
        dense=np.trunc(updates.dense * by_user[:, None]).astype(np.int32),
    )


def lengths(updates: Updates) -> Doubles:
    """(n,) the L2 norm of every client's update, in fixed point; infinite if out of range."""
    squared: Doubles = np.zeros(len(updates))
    for rows, offsets in (
        (updates.item_rows, updates.offsets),
        (updates.dense, np.arange(len(updates) + 1)),
    ):
        if rows.size:
            squared += squared_norms(np.ascontiguousarray(rows), offsets).by_client
    return np.sqrt(squared)


def to_fixed_point(sums: Sums, longest: float, sensitivity: float) -> Sums:
    """Noisy sums in the fixed point of updates."""
    factor = longest * SCALE / sensitivity
    return {name: np.rint(total * factor).astype(np.int64) for name, total in sums.items()}
