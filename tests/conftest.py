"""Fixtures shared by several test files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe import axe_script
from browser import driven

from coterie.data.fetch import find_local
from coterie.data.interactions import Interactions
from coterie.data.synthetic import Synthetic, generate

SHARED_DATASETS = Path(__file__).parents[2] / "shared" / "datasets"
SECOND_TOWERS = ("sttfedrec-clsm", "fl-clsm")
"""Algorithms that differ from their DSSM versions in the network alone."""
OF_ALL_ALGORITHMS = ("tests", "federated", "secagg", "deployment", "baselines")
"""Folders whose tests run for every algorithm."""

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell starts programs in the background with Ctrl-C ignored, and those inherit it that the
    # tests start and interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

REPRESENTATIVES = {
    "test_a_server_that_dies_resumes": ("settings1-", "settings8-", "settings13-"),
    "test_the_number_of_nodes_does_not_change_a_run": ("plain", "drop-out-fedfast"),
    "test_the_number_of_threads_does_not_change_a_run": ("plain", "drop-out-fedfast"),
    "test_bytes_are_as_many_as_the_simulator_counts": ("fcf",),
    "test_a_node_that_dies_during_secure_aggregation_drops_out": ("ring-3-4-1",),
    "test_bytes_under_secure_aggregation_are_those_of_a_run": ("fcf", "fedease"),
    "test_the_run_is_the_one_in_which_the_node_did_not_answer": ("fcf",),
    "test_algorithms_of_sums": ("fedals",),
    "test_claims_are_not_refuted_and_controls_leak": ("fcf", "fedals"),
    "test_features_of_movielens_exclude_zip_codes": ("ml-100k",),
    "test_a_node_that_was_away_follows_when_it_returns": ("fcf",),
    "test_a_second_rollback": ("True-",),
    "test_users_of_silent_nodes_are_in_no_group": ("ring",),
    "test_noise_of_clients": ("local",),
    "test_as_many_sums_as_fit": ("1.0]", "0.5-40.0-0.05"),
    "test_the_checkerboard_is_completed": ("[0-",),
    "test_a_thousand_malicious_replies": ("fcf",),
    "test_killed_and_resumed_run_equals_an_uninterrupted_one": ("[0]",),
    "test_models_equal_those_of_plain_sums": ("'secagg'}", "fcf-", "fedfast-"),
    "test_the_reported_bytes_are_those_sent": ("fedfast", "fcf", "sttfedrec-dssm"),
    "test_resuming_from_any_checkpoint_gives_the_uninterrupted_run": ("to the end",),
    "test_no_update_leaves_a_device_in_the_clear": ("fedfast", "fcf", "sttfedrec-dssm"),
    "test_a_round_can_be_repeated": ("fedfast", "fcf", "fl-dssm"),
    "test_ctrl_c_within_a_round_loses_only_that_round": ("fedfast", "fcf"),
    "test_half_the_noise_is_caught": ("fcf", "fedals"),
    "test_an_attack_through_nodes_is_the_simulation": ("pieck-fedfast-none", "noise-fcf-bounded"),
    "test_columns_are_those_of_the_messages": ("[fedfast]", "[fcf]"),
    "test_pages_fit": ("500-dark",),
    "test_a_page_of_runs_fits": ("[500]",),
    "test_a_page_of_a_comparison_fits": ("[500]",),
    "test_the_page_fits": ("[500]",),
    "test_the_server_ends_while_a_page_follows": ("[15]",),
    "test_clients_may_be_on_several_nodes": ("fedfast", "fcf"),
    "test_same_seed_same_bits": ("fedfast", "fcf", "bpr"),
    "test_reevaluation_agrees_with_the_run": ("fedfast", "fcf", "bpr", "[pfedrec"),
    "test_held_out_items_never_leave_a_node": ("fedfast", "fcf", "fedease", "[pfedrec"),
    "test_timestamps_never_leave_a_node": ("fedfast", "fcf", "fl-dssm"),
    "test_messages_hold_updates_and_no_names": ("fedfast", "fcf", "fl-dssm"),
    "test_metrics_and_recommendations_equal_the_simulation": ("fedfast", "fcf", "fedrecon"),
    "test_samples_equal_those_of_the_slow_twin": ("[0]", "[7]", "[22]"),
    "test_a_round_without_a_quorum_is_repeated": ("5-",),
    "test_a_canary": ("[0.0-pfpl+]", "[1.0-sfpl+]"),
    "test_a_copy_of_a_stopped_server_resumes": ("3-",),
    "test_an_old_backup_gives_the_same_model": ("fedfast-False", "pfpl+-True"),
    "test_a_federation_is_the_simulation": ("5-",),
    "test_the_run_equals_the_simulation": ("3-",),
    "test_an_invalid_permit_moves_nobody": ("another key", "expired"),
    "test_users_move_with_their_private_state": ("pfpl+", "fcf"),
    "test_a_server_that_dies_repeats_its_round_without_a_count": ("[5]",),
    "test_a_user_who_is_erased_is_erased_on_the_server": ("[fcf]", "[fedbso]"),
    "test_all_users_of_a_node_get_what_the_node_recommends": ("fcf", "pfpl+"),
    "test_a_run_imports_nothing_that_does_not_count": ("[fedavg]", "[fl-dssm]"),
    "test_a_thousand_hostile_updates_change_nothing": ("[fedfast]", "[fcf]", "[fedals]"),
    "test_the_first_screen_has_summary_scoreboard_and_figure": ("fedfast-500", "leaks-1200"),
}
"""Tests with many cases, and what the names of those have that are not among the long tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of tests with many cases that take seconds each, most are among the long tests."""
    for item in items:
        second_tower = item.path.parent.name in OF_ALL_ALGORITHMS and any(
            name in item.name for name in SECOND_TOWERS
        )
        chosen = REPRESENTATIVES.get(item.name.partition("[")[0])
        if second_tower or (chosen and not any(part in item.name for part in chosen)):
            item.add_marker(pytest.mark.long)


@pytest.fixture
def real_data(monkeypatch: pytest.MonkeyPatch):
    """`real_data("ml-100k")` makes a real dataset loadable by name, or skips the test."""

    def need(name: str, *signature: str) -> None:
        if (SHARED_DATASETS / name).is_dir():
            monkeypatch.setenv("COTERIE_DATA", str(SHARED_DATASETS))
        elif not find_local(name, signature):
            pytest.skip(
                f"the dataset {name} is neither in {SHARED_DATASETS} nor in the data folder"
            )

    return need


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser that Playwright drives; one for the tests of a file."""
    with driven() as opened:
        yield opened


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script that finds faults of accessibility, or the test is skipped."""
    return axe_script(tmp_path_factory.mktemp("axe"))


@pytest.fixture(scope="session")
def shared_datasets() -> Path:
    """The folder of real datasets next to the checkout; it may not exist."""
    return SHARED_DATASETS


@pytest.fixture(scope="session")
def people() -> Interactions:
    """Two hundred synthetic users: enough to learn from, small enough for every test."""
    return generate(Synthetic(n_users=200, n_items=120, n_groups=4, mean_interactions=20))


@pytest.fixture(scope="session")
def few_people() -> Interactions:
    """Forty users: under secure aggregation each exchanges shares with all others."""
    return generate(Synthetic(n_users=40, n_items=30, n_groups=2, mean_interactions=8))
