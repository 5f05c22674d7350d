"""Defences against hostile clients: bounds by hand, properties, and honest runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import histories, play_locally, sha256, world_for

from coterie.algorithms import fedfast
from coterie.algorithms.registry import algorithm
from coterie.errors import ConfigError
from coterie.federated.federation import AnyWorld, Federation, SecureSum, Sums
from coterie.federated.robust import bounds, groups, trimming
from coterie.federated.robust.multiples import Multiples
from coterie.federated.robust.turns import with_a_turn
from coterie.federated.secagg import server as secagg_server
from coterie.federated.secagg.vector_sum import VectorSum
from coterie.types import SCALE, Updates

DEFENCES = ["bounded", "trimmed", "groups"]


def updates_of(*clients: dict[int, list[int]], samples: list[int] | None = None) -> Updates:
    """Updates of clients that send rows for items."""
    n = len(clients)
    counts = [len(one) for one in clients]
    none = np.zeros((n, 0), np.int32)
    width = max((len(row) for one in clients for row in one.values()), default=1)
    rows = [row for one in clients for row in one.values()]
    return Updates(
        users=np.arange(n, dtype=np.int32),
        samples=np.array(samples or [1] * n, np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        items=np.array([item for one in clients for item in one], np.int32),
        item_rows=np.array(rows, np.int32).reshape(len(rows), width),
        user_rows=none,
        dense=none,
    )


# Bounds


def test_a_long_row_is_shortened_to_a_multiple_of_the_median():
    """Four honest clients send rows of norm 5; the fifth sends one of norm 5,000."""
    sent = updates_of(*[{0: [3, 4]}] * 4, {0: [3000, 4000]})
    rows = bounds.bounded(sent, Multiples(rows=2)).item_rows
    assert rows[:4].tolist() == [[3, 4]] * 4
    assert rows[4].tolist() == [6, 8]


def test_a_row_is_compared_with_the_root_mean_square():
    """A row of norm 50 among 99 of norm 0: their root mean square is 5."""
    honest = {0: [30, 40]} | {item: [0, 0] for item in range(1, 100)}
    sent = updates_of(*[honest] * 5)
    assert bounds.shortened_rows(sent, Multiples(rows=12))[0].tolist() == [30, 40]
    assert bounds.shortened_rows(sent, Multiples(rows=5))[0].tolist() == [15, 20]


def test_of_two_clients_the_smaller_update_sets_the_bound():
    sent = updates_of({0: [3, 4]}, {0: [3000, 4000]})
    rows = bounds.bounded(sent, Multiples(rows=2)).item_rows
    assert rows.tolist() == [[3, 4], [6, 8]]


def test_one_client_has_no_bounds():
    sent = updates_of({0: [3000, 4000], 1: [1, 0]})
    assert bounds.bounded(sent, Multiples(rows=0.1)) is sent


def test_many_rows_are_shortened_together():
    honest = {0: [3, 4], 1: [4, 3]}
    hostile = {item: [3, 4] for item in range(100)}
    rows = bounds.shortened_rows(updates_of(*[honest] * 4, hostile), Multiples())
    assert rows[:8].tolist() == [[3, 4], [4, 3]] * 4
    whole = np.sqrt((rows[8:].astype(float) ** 2).sum())
    assert whole <= 3 * np.sqrt(50)


def test_a_row_of_few_clients_moves_less():
    """Three clients send item 0, two of them item 1, and one item 2."""
    sent = updates_of({0: [9], 1: [9], 2: [9]}, {0: [9], 1: [9]}, {0: [9]})
    rows = bounds.shortened_rows(sent, Multiples())
    assert rows.ravel().tolist() == [9, 6, 3, 9, 6, 9]


def test_no_row_is_longer_than_the_third_longest_of_its_item():
    """One client moves item 0 far, where three others agree on 10. Item 1 has two senders."""
    honest = [{0: [size]} for size in (10, 10, 4, 2)]
    sent = updates_of(*honest, {0: [10], 1: [9]}, {0: [39], 1: [3]})
    multiples = Multiples(rows=99, updates=99, fewest_agreeing=3)
    rows = bounds.shortened_rows(sent, multiples)
    assert rows.ravel().tolist() == [10, 10, 4, 2, 10, 6, 10, 2]  # two of three: two thirds


def test_two_colluders_do_not_move_a_cold_row_of_fedfast():
    """They move it by 100 times as much as all honest clients."""
    world = world_for("fedfast", histories(4, 30, 15), robust="bounded")
    multiples = fedfast.ACTVAGG.bounds(world)
    honest = {0: [1]} | {item: [100] for item in range(1, 9)}
    hostile = {0: [-100]} | {item: [100] for item in range(1, 9)}
    rows = bounds.shortened_rows(updates_of(*[honest] * 8, *[hostile] * 2), multiples)
    assert rows[::9].ravel().tolist() == [1] * 8 + [-1] * 2


def test_the_number_of_clients_that_have_to_agree_follows_the_round():
    share = Multiples(agreeing=0.015)
    assert [share.number_agreeing(n) for n in (2, 66, 67, 200, 201)] == [1, 1, 2, 3, 4]
    assert Multiples(agreeing=0.015, fewest_agreeing=3).number_agreeing(67) == 3
    assert Multiples().number_agreeing(10_000) == 1


@pytest.mark.parametrize("name", ["fedfast", "pfpl+"])
def test_one_percent_of_the_clients_do_not_set_the_length_of_a_row(name):
    """Six colluders of 600 move item 0 by 100, all others by 1."""
    world = world_for(name, histories(4, 30, 15), robust="bounded")
    federation = algorithm(name).train
    assert isinstance(federation, Federation)
    multiples = federation.exchanges[0].bounds(world)
    ordinary = {item: [100] for item in range(1, 9)}
    sent = [{0: [1]} | ordinary] * 594 + [{0: [100]} | ordinary] * 6
    rows = bounds.shortened_rows(updates_of(*sent), multiples)
    assert set(rows[::9].ravel().tolist()) == {1}
    assert set(rows[1:9].ravel().tolist()) == {100}


def test_clients_that_send_all_items_need_no_count():
    """Three clients send both items, so that both have enough senders."""
    sent = updates_of(*[{0: [9], 1: [9]}] * 3, {1: [9]})
    assert len(bounds.by_senders(sent.items, sent.offsets, 3)) == 0
    assert bounds.by_senders(sent.items, sent.offsets, 4).tolist() == [3 / 4, 1]


def test_samples_are_capped_at_four_medians():
    samples = np.array([1, 10, 10, 10, 1 << 23])
    assert bounds.capped_samples(samples, 4).tolist() == [1, 10, 10, 10, 40]


@settings(deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_hostile=st.integers(1, 4),
    amplitude=st.integers(1, 8 * SCALE - 1),
)
def test_less_than_half_of_the_clients_cannot_move_a_row_far(seed, n_hostile, amplitude):
    """Ten honest clients with rows of norm up to 100."""
    rng = np.random.default_rng(seed)
    honest = [{item: rng.integers(-40, 40, 4).tolist() for item in range(6)} for _ in range(10)]
    hostile = [{item: [amplitude] * 4 for item in range(6)} for _ in range(n_hostile)]
    multiples = Multiples(rows=2)
    rows = bounds.bounded(updates_of(*honest, *hostile), multiples).item_rows
    norms = np.sqrt((rows.astype(float) ** 2).sum(axis=1))
    assert norms[60:].max(initial=0) <= 2 * 80
    assert (np.abs(rows[:60]) <= 40).all()


def test_updates_without_rows_are_as_they_were():
    """FedEASE's clients send histories: there is nothing to shorten."""
    sent = updates_of({}, {}, {}, {}, {})
    assert len(bounds.bounded(sent, Multiples()).item_rows) == 0


# Trimming


def test_extremes_get_the_values_of_their_neighbours():
    items = np.array([0, 0, 0, 0, 0, 1, 1], np.int32)
    rows = np.array([[5], [1], [900], [-900], [2], [7], [8]], np.int32)
    assert trimming.trimmed_rows(items, rows).ravel().tolist() == [5, 1, 5, 1, 2, 0, 0]


def test_the_sum_over_groups_is_that_of_the_middle_ones():
    """Groups of two clients; by client the others have 1, 1.5 and 2."""
    sums = np.array([[1], [2], [3], [4], [1000]])
    assert trimming.trimmed_sum(sums, np.full(5, 2), 1).tolist() == [15]


def test_a_larger_group_is_not_extreme():
    """By client, groups have 2, 2, 2 and 9."""
    sums = np.array([[4], [20], [6], [18]])
    assert trimming.trimmed_sum(sums, np.array([2, 10, 3, 2]), 1).tolist() == [34]


def test_a_row_counts_as_a_whole_or_not_at_all():
    """The median is [2, 2], and the second group is there."""
    row = np.array([[[1, 9]], [[2, 2]], [[9, 1]]])
    assert trimming.central_sum(row, np.ones(3, np.int64), 1).tolist() == [[6, 6]]


def test_every_row_leaves_out_groups_of_its_own():
    """Groups of 2, 2 and 4 clients. By client, row 0 is 1, 1.5 and 50, and row 1 90, 3 and 4."""
    sums = np.array([[[2], [180]], [[3], [6]], [[200], [16]]])
    assert trimming.central_sum(sums, np.array([2, 2, 4]), 1).tolist() == [[12], [32]]


@pytest.mark.parametrize("seed", range(3))
def test_second_moments_without_extreme_groups_are_second_moments(seed):
    """Sums of x x^T by component are not positive definite; FedALS solves with them."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-100, 100, (10, 12, 5))
    x[:3] *= 50
    sums = np.einsum("gnd,gne->gde", x, x).reshape(10, 1, 25)
    kept = trimming.central_sum(sums, np.full(10, 12), 3).reshape(5, 5)
    assert np.linalg.eigvalsh(kept).min() > 0


def test_groups_cover_a_cohort_once():
    found = groups.assign(23, seed=1, t=2)
    assert sorted(np.concatenate(found).tolist()) == list(range(23))
    assert len(found) == 10


# Runs


@pytest.mark.parametrize("defence", DEFENCES)
@pytest.mark.parametrize("name", ["fedavg", "fedfast", "fcf", "pfpl", "fedals", "fedease"])
def test_bits_do_not_depend_on_nodes(name, defence):
    training = histories(4, 30, 15)
    given_: dict[str, Any] = {"robust": defence, "participation": 0.5, "rounds": 20}
    one, _ = play_locally(name, training, **given_)
    three, _ = play_locally(name, training, nodes=3, **given_)
    assert sha256(one[-1]) == sha256(three[-1])


def test_equal_updates_are_not_changed():
    sent = updates_of(*[{0: [3, 4], 1: [4, 3]}] * 6)
    for defend in (bounds.bounded, trimming.trimmed):
        assert (defend(sent, Multiples()).item_rows == sent.item_rows).all()


@pytest.mark.parametrize("defence", ["trimmed", "groups"])
def test_a_round_without_extremes_is_refused(defence):
    with pytest.raises(ConfigError, match="a round selects 2 clients; expected at least 5"):
        play_locally("fedavg", histories(4, 30, 15), robust=defence, participation=0.05)


@pytest.mark.parametrize(
    "given_",
    [
        {"robust": "bounded", "secure_aggregation": "secagg"},
        {"robust": "trimmed", "secure_aggregation": "ring"},
        {"robust": "groups", "epsilon": 1.0},
    ],
)
def test_a_defence_needs_updates_in_the_clear(given_):
    with pytest.raises(ConfigError, match=f"setting 'robust' is '{given_['robust']}'"):
        play_locally("fcf", histories(4, 30, 15), **given_)


# Groups of secure aggregation


def test_secure_sums_leave_the_extreme_groups_out():
    """Four groups; of each component the smallest and the largest sum by client do not count."""
    training = histories(4, 40, 15)
    given_: dict[str, Any] = {"participation": 1.0, "rounds": 1, "secure_aggregation": "secagg"}
    given_ |= {"group_size": 10, "smallest_group": 5}
    recorded: list[tuple[list[Sums], list[int]]] = []

    def twin(tables: SecureSum, parts: list[Sums], n_clients: list[int]) -> Sums:
        recorded.append((parts, n_clients))
        return groups.without_extremes(tables, parts, n_clients)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secagg_server, "without_extremes", twin)
        trimmed, _ = play_locally("fcf", training, robust="groups", **given_)
    plain, _ = play_locally("fcf", training, **given_)
    [(parts, n_clients)] = recorded
    assert n_clients == [10, 10, 10, 9]  # one user has no history
    by_client = np.array([p["items"].ravel() / n for p, n in zip(parts, n_clients, strict=True)])
    expected = [round(sum(sorted(column)[1:3]) / 2 * 39) for column in by_client.T.tolist()]
    found = groups.without_extremes(SecureSum(), parts, n_clients)["items"]
    assert found.ravel().tolist() == expected
    assert sha256(trimmed[-1]) != sha256(plain[-1])


def totals_of(robust: str, *values: int) -> secagg_server.GroupTotals:
    """Groups of two clients each, whose sums are single numbers."""
    world = world_for("fedavg", histories(4, 30, 15), robust=robust, secure_aggregation="secagg")
    totals = secagg_server.GroupTotals(world, SecureSum(), {"x": np.zeros(1, np.int64)})
    for value in values:
        users = np.zeros(2, np.int32)
        totals.add(VectorSum(np.array([value]), np.empty(0, np.int32), users))
    return totals


def test_groups_share_a_table_unless_they_are_compared():
    plain = totals_of("none", 1, 2, 900)
    assert (plain.whole["x"].tolist(), len(plain.tables)) == ([903], 1)
    compared = totals_of("groups", 1, 2, 900)
    assert (compared.whole["x"].tolist(), len(compared.tables)) == ([6], 3)


def test_too_few_groups_that_completed_do_not_count():
    """With two groups nobody can tell which one is extreme."""
    assert totals_of("groups", 1, 900).whole["x"].tolist() == [0]


def test_bits_of_groups_do_not_depend_on_nodes():
    training = histories(4, 40, 15)
    given_: dict[str, Any] = {"robust": "groups", "secure_aggregation": "secagg"}
    given_ |= {"participation": 1.0, "group_size": 10, "smallest_group": 5}
    one, _ = play_locally("fedavg", training, **given_)
    three, _ = play_locally("fedavg", training, nodes=3, **given_)
    assert sha256(one[-1]) == sha256(three[-1])


def test_too_few_groups_are_refused():
    with pytest.raises(ConfigError, match="a round of 29 clients is 1; expected at least 3"):
        play_locally(
            "fcf",
            histories(4, 30, 15),
            robust="groups",
            secure_aggregation="secagg",
            participation=1.0,
        )


# Turns


def world_of(participation: float, robust: str) -> AnyWorld:
    return world_for("fedfast", histories(4, 200, 15), participation=participation, robust=robust)


def test_no_client_is_selected_in_more_than_its_turns():
    """200 clients, of which 10 % are selected: each has a turn in 20 % of the rounds."""
    world = world_of(0.1, "bounded")
    turns = np.array([with_a_turn(world, 0.1, t)[world.members] for t in range(500)])
    assert (turns.sum(axis=1) == 40).all()
    assert turns.mean(axis=0).max() < 0.27  # four standard deviations above 0.2
    assert turns.mean(axis=0).min() > 0.13


@pytest.mark.parametrize(("participation", "robust"), [(0.5, "bounded"), (0.1, "none")])
def test_all_clients_have_a_turn(participation, robust):
    world = world_of(participation, robust)
    assert (with_a_turn(world, participation, 3) == world.members).all()
