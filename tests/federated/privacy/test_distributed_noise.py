"""Noise that clients add under secure aggregation: how much of it reaches the server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_federation import histories, play, play_locally, world_for

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

from coterie.algorithms import pair_sums, private_pairs
from coterie.engines.local import LocalEngine
from coterie.errors import ConfigError
from coterie.federated.privacy.plan import NoisePlan, plan_for
from coterie.federated.secagg import group_node
from coterie.federated.secagg.group_member import GroupMember, mask_vectors
from coterie.federated.secagg.words import to_integers

N_USERS = 60
N_ITEMS = 150
"""11,475 sums: their variance is known to 1.3 %."""
CLOSE = 0.06
"""More than four standard deviations of it."""
DISTRIBUTED: dict[str, Any] = {
    "epsilon": 2.0,
    "noise": "distributed",
    "secure_aggregation": "secagg",
    "colluders": 0,
    "holders": N_USERS - 2,
    "participation": 1.0,
    "rounds": 1,
}


def variance_ratio(**changes: Any) -> tuple[float, int, NoisePlan]:
    """Variance of the noise in the sums over what the accountant counted on, and the clients."""
    training = histories(1, N_USERS, N_ITEMS)
    world = world_for("fedease", training, **(DISTRIBUTED | changes))
    plan = plan_for(world, pair_sums.PRIVATE_SUM)
    assert plan is not None
    states, _ = play("fedease", world, LocalEngine.over(world, training, 1))
    state = states[-1]
    added = np.flatnonzero(state.added)
    scale = private_pairs.scales(plan, world.n_users, N_ITEMS)
    exact = private_pairs.private_sums(training.positives.of_users(added), N_ITEMS, 0.5, scale)
    noise = np.concatenate([state.pairs - exact["pairs"], state.items - exact["items"]])
    return float(np.mean(noise.astype(float) ** 2)) / plan.sigma**2, len(added), plan


@pytest.mark.parametrize(("dropout", "margin"), [(0.0, 0.1), (0.0, 0.4), (0.1, 0.3), (0.3, 0.5)])
def test_noise_is_never_less_than_counted_on_and_at_most_the_margin_more(dropout, margin):
    ratio, n_added, _ = variance_ratio(client_dropout=dropout, noise_margin=margin)
    assert n_added == N_USERS - 1 if not dropout else 0 < n_added < N_USERS - 1
    assert 1 - CLOSE < ratio < (1 + CLOSE) / (1 - margin)


def test_a_group_with_too_few_survivors_is_abandoned():
    training = histories(1, N_USERS, N_ITEMS)
    few = DISTRIBUTED | {"client_dropout": 0.3, "noise_margin": 0.05}
    states, costs = play_locally("fedease", training, **few)
    assert not states[-1].added.any()
    assert not costs[-1].accepted


def test_shares_of_colluders_do_not_count():
    """They know their own noise, so that the others' must be enough."""
    _, _, plan = variance_ratio(noise_margin=0.1)
    _, _, cautious = variance_ratio(noise_margin=0.1, colluders=5)
    n = N_USERS - 1
    assert plan.n_shares == -(-n * 9 // 10)
    assert cautious.n_shares == plan.n_shares - -(-n * 5 // (n - 1))
    assert cautious.fewest_survivors == plan.fewest_survivors


def test_local_noise_is_that_of_every_client():
    ratio, n_added, plan = variance_ratio(noise="local")
    assert plan.n_shares == 1
    assert ratio == pytest.approx(n_added, rel=CLOSE)


def test_no_upload_is_without_noise(monkeypatch):
    """Look under the masks: every client's vector has its share of noise in every entry."""
    training = histories(1, N_USERS, N_ITEMS)
    world = world_for("fedease", training, **DISTRIBUTED)
    plan = plan_for(world, pair_sums.PRIVATE_SUM)
    assert plan is not None
    under_masks: dict[int, np.ndarray] = {}

    def recorded(members: list[GroupMember], vectors: np.ndarray) -> None:
        word = members[0].terms.word
        for member, vector in zip(members, vectors, strict=True):
            under_masks[member.user] = to_integers(vector, word).copy()
        mask_vectors(members, vectors)

    monkeypatch.setattr(group_node, "mask_vectors", recorded)
    states, _ = play("fedease", world, LocalEngine.over(world, training, 1))
    assert len(under_masks) == N_USERS - 1
    scale = private_pairs.scales(plan, world.n_users, N_ITEMS)
    for user, vector in under_masks.items():
        history = training.positives.of_users(np.array([user]))
        exact = private_pairs.private_sums(history, N_ITEMS, 0.5, scale)
        noise = vector - np.concatenate([exact["items"], exact["pairs"]])
        assert noise.std() == pytest.approx(1 << plan.log2_sigma, rel=CLOSE)
        assert np.mean(noise == 0) < 0.01
    # What the server ends with is the sum of exactly these.
    total = sum(under_masks.values())
    assert (total == np.concatenate([states[-1].items, states[-1].pairs])).all()


def test_the_same_sum_has_the_same_noise():
    """Whoever sees two sums with other noise could average them."""
    training = histories(1, N_USERS, 30)
    first, second = (play_locally("fedease", training, **DISTRIBUTED)[0][-1] for _ in range(2))
    assert (first.pairs == second.pairs).all()


@pytest.mark.parametrize(
    "changes", [{"secure_aggregation": "none"}, {"secure_aggregation": "ring"}, {"epsilon": None}]
)
def test_clients_need_groups_to_hide_in(changes):
    given = {key: DISTRIBUTED[key] for key in ("epsilon", "noise", "secure_aggregation")}
    with pytest.raises(ConfigError, match="setting 'noise'"):
        world_for("fedease", histories(0), **(given | changes))
