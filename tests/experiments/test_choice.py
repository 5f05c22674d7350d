"""Choosing an algorithm: what is allowed, what is measured, and what is recommended."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import coterie
from coterie.algorithms.registry import algorithm
from coterie.core.progress import SILENT
from coterie.data.interactions import Interactions
from coterie.errors import ConfigError, DataError, UnknownName
from coterie.experiments import choice as choosing
from coterie.experiments.choice import AlgorithmChoice, ChoiceRequest, choose
from coterie.experiments.choice_report import (
    figure,
    learned,
    next_steps,
    notes,
    page,
    recommendation,
    table,
)
from coterie.experiments.config import Experiment
from coterie.experiments.experiment import run
from coterie.report.charts import static_chart
from coterie.report.table import table_width

PROTECTED = "--secure-aggregation secagg"
SMALL = {"n_users": 60, "n_items": 40, "mean_interactions": 10, "n_groups": 3}
PERSONAL = {"pfedrec", "fedrap"}
A_TENTH = {"fedrecon", "fedncf", "colr"}
"""Algorithms of sums whose cohort, a tenth of the users by default, is too small here."""
IN_ROUNDS = {"fcf", "fedmvmf", "fedmf", "lightfr"} | PERSONAL
SUMS = {"pfpl", "pfpl+", "fedals", "fedease", "fedslim"} | IN_ROUNDS | A_TENTH
SEQUENTIAL = {"sfpl", "sfpl+"}
AVERAGING = {"fedavg", "fedfast", "fedavg+actvsamp", "fedavg+actvagg", "fedbso"}
COMPARING = {"gpfedrec"}
TOWERS = {"fl-dssm", "fl-clsm", "sttfedrec-dssm", "sttfedrec-clsm"}
QUICK = {name: {"rounds": 5} for name in AVERAGING | COMPARING | IN_ROUNDS} | {
    name: {"epochs": 3} for name in ("sfpl", "sfpl+", "pfpl", "pfpl+")
}
QUICK |= {name: {"rounds": 5, "participation": 0.5} for name in A_TENTH}


@cache
def chosen(may_leave: str) -> AlgorithmChoice:
    return choose(ChoiceRequest(may_leave=may_leave, settings=SMALL, own=QUICK))


def names(choice: AlgorithmChoice) -> set[str]:
    return {one.name for one in choice.candidates}


def left_out(choice: AlgorithmChoice, allowed: bool) -> set[str]:
    return {one.name for one in choice.left_out if one.allowed == allowed}


# ---- what is allowed


def test_sums_allow_algorithms_that_need_nothing_else() -> None:
    choice = chosen("sums")
    assert names(choice) == SUMS
    assert left_out(choice, False) == AVERAGING | COMPARING | {
        "sttfedrec-dssm",
        "sttfedrec-clsm",
    }
    assert left_out(choice, True) == SEQUENTIAL | {"fl-dssm", "fl-clsm"}


def test_updates_allow_every_federated_algorithm() -> None:
    choice = chosen("updates")
    assert names(choice) == SUMS | SEQUENTIAL | AVERAGING | COMPARING
    assert left_out(choice, True) == TOWERS
    assert left_out(choice, False) == set()


def test_disclosed_allows_algorithms_with_a_rate_at_that_rate() -> None:
    choice = chosen("disclosed")
    assert names(choice) == {"sfpl", "sfpl+", "pfpl", "pfpl+"}
    assert choice.disclosure == 0.1
    assert left_out(choice, False) >= SUMS - {"pfpl", "pfpl+"}


def test_an_allowed_setting_allows_sttfedrec() -> None:
    """With requests=whole nothing of a single client is visible: it is left out for its speed."""
    own = QUICK | {"sttfedrec-dssm": {"requests": "whole"}}
    choice = choose(ChoiceRequest(may_leave="sums", settings=SMALL, own=own))
    assert "sttfedrec-dssm" in left_out(choice, True)


def test_a_catalogue_too_large_for_fedease_is_a_reason() -> None:
    own = QUICK | {"fedease": {"max_memory": 1e-6}}
    choice = choose(ChoiceRequest(may_leave="sums", settings=SMALL, own=own))
    assert names(choice) == SUMS - {"fedease"}
    reason = next(one.reason for one in choice.left_out if one.name == "fedease")
    assert "max_memory allows 1e-06" in reason
    assert "raise it with --set fedease.max_memory=GIB" in reason
    assert "--set core=5" in reason


def test_too_few_clients_for_secure_aggregation_are_a_reason() -> None:
    reasons = {one.name: one.reason for one in chosen("sums").left_out}
    assert reasons["sfpl"] == (
        "a round selects 1 client, and secure aggregation hides a client only among at least 10"
    )


def test_towers_need_texts() -> None:
    data = coterie.load("synthetic", **SMALL)
    bare = replace(data, item_texts=None)
    choice = choose(ChoiceRequest(may_leave="updates", own=QUICK), bare)
    reasons = {one.name: one.reason for one in choice.left_out}
    assert reasons["fl-dssm"] == "item texts are needed, and the data has none"


# ---- what is measured


@pytest.mark.parametrize("may_leave", choosing.LEVELS)
def test_the_best_on_validation_is_recommended(may_leave: str) -> None:
    choice = chosen(may_leave)
    values = [one.value for one in choice.candidates]
    assert values == sorted(values, reverse=True)
    assert choice.best.value == max(values)
    if choice.best.value > choice.popular.value:
        assert choice.recommended is choice.best
    else:
        assert choice.recommended is None


def test_accuracy_is_that_of_a_run_on_the_validation_part() -> None:
    keys = SMALL | {"algorithm": "fedals", "validation": True, "candidates": 0}
    one = run(Experiment.of(keys | {"headline": ["NDCG"], "evaluate_every": 10}))
    expected = one.curve[-1]
    assert (expected["part"], expected["round"]) == ("validation", 10)
    found = next(c for c in chosen("sums").candidates if c.name == "fedals")
    assert found.value == pytest.approx(expected["NDCG@10"], abs=1e-12)


def test_the_test_part_is_neither_trained_on_nor_measured() -> None:
    """The newest interaction of every user is in no part of the comparison."""
    base = Experiment.of({"algorithm": "popular", "validation": True, "candidates": 0} | SMALL)
    data = coterie.load("synthetic", **SMALL)
    parts = choosing.validation_split(base, data)
    held = parts.train.pairs()
    newest = np.ones(len(data), bool)
    newest[:-1] = data.users[1:] != data.users[:-1]
    assert not np.isin(data.pairs()[newest], held).any()
    assert not np.isin(data.pairs()[newest], parts.test.pairs()).any()


@pytest.mark.parametrize("name", sorted(SUMS))
def test_bytes_under_secure_aggregation_are_those_of_a_run(name: str) -> None:
    """But for chance: clients draw their holders."""
    pytest.importorskip("cryptography")
    found = next(one for one in chosen("sums").candidates if one.name == name)
    if name == "pfpl":
        pytest.skip("pfpl+ is the same with fewer rounds")
    keys = SMALL | QUICK.get(name, {}) | {"algorithm": name, "validation": True}
    one = run(Experiment.of(keys | {"secure_aggregation": "secagg"}))
    n = one.result["selections"]["users"]
    counting = algorithm(name).popularity_prior > 0
    assert found.costs.messages == one.result["selections"]["mean"] + counting
    assert found.costs.bytes_up == pytest.approx(one.result["bytes_up"] / n, rel=0.03)
    assert found.costs.bytes_down == pytest.approx(one.result["bytes_down"] / n, rel=0.03)


def test_a_protocol_that_is_set_is_kept() -> None:
    own = QUICK | {"fcf": {"rounds": 2, "secure_aggregation": "ring"}}
    by_name = {
        one.name: one
        for one in choose(ChoiceRequest(may_leave="sums", settings=SMALL, own=own)).candidates
    }
    assert by_name["fcf"].secure_aggregation == "ring"
    assert by_name["fcf"].server_learns.startswith("sums over at most 50 clients")
    assert by_name["fedals"].secure_aggregation == "secagg"
    assert by_name["fedals"].server_learns.startswith("sums over at most 100 clients")


def test_bytes_in_the_clear_are_those_of_a_run() -> None:
    one = run(Experiment.of(SMALL | {"algorithm": "fedavg", "rounds": 5, "validation": True}))
    found = next(c for c in chosen("updates").candidates if c.name == "fedavg")
    assert found.costs.bytes_up == pytest.approx(one.result["bytes_up"] / 60)
    # One more message counts items.
    assert found.costs.messages == one.result["selections"]["mean"] + 1
    assert found.costs.seconds > 0


def test_fedease_sends_pairs_and_downloads_a_matrix() -> None:
    found = next(one for one in chosen("sums").candidates if one.name == "fedease")
    items = chosen("sums").n_items
    assert found.costs.messages == 1
    assert found.costs.model_bytes == 4 * items**2
    # Words of 32 bits; and shares for 40 holders, and of others' secrets.
    assert 4 * items * (items + 1) / 2 < found.costs.bytes_up < 4 * items * (items + 1) / 2 + 7000


def test_fedslim_sends_as_much_and_downloads_only_its_weights() -> None:
    by_name = {one.name: one.costs for one in chosen("sums").candidates}
    found = by_name["fedslim"]
    assert (found.messages, found.bytes_up) == (1, by_name["fedease"].bytes_up)
    offsets = 8 * (chosen("sums").n_items + 1)
    n_weights = (found.model_bytes - offsets) / 8
    assert 0 < n_weights < chosen("sums").n_items ** 2 / 2


def test_training_stops_when_its_time_is_over() -> None:
    choice = choose(ChoiceRequest(may_leave="sums", settings=SMALL, minutes=1e-9))
    by_name = {one.name: one for one in choice.candidates}
    assert by_name["fcf"].was_cut
    assert (by_name["fcf"].steps, by_name["fcf"].all_steps) == (1, 50)
    assert any("stopped by the time limit" in line for line in notes(choice))


def test_many_users_are_sampled_and_items_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "MOST_USERS", 30)
    data = coterie.load("synthetic", **SMALL)
    sampled = choosing.sample_users(data, 0)
    assert (sampled.n_users, sampled.n_items) == (30, data.n_items)
    histories = {str(u): set(data.rows.of(k)) for k, u in enumerate(data.user_ids)}
    for k, user in enumerate(sampled.user_ids):
        assert set(sampled.rows.of(k)) == histories[str(user)]
    choice = choose(ChoiceRequest(may_leave="sums", own=QUICK), data)
    assert (choice.n_users, choice.all_users) == (30, 60)
    assert any("trained on 30 of 60 users" in line for line in notes(choice))


# ---- what is shown


def test_below_popular_is_flagged() -> None:
    choice = chosen("sums")
    above = replace(choice.popular, value=choice.best.value + 0.1)
    worse = replace(choice, popular=above)
    assert worse.recommended is None
    assert all(row[1].endswith(" †") for row in table(worse).rows[:-2])
    assert any(line.startswith("†: below popular") for line in notes(worse))
    assert recommendation(worse).startswith("No allowed algorithm is ahead of the most popular")
    assert worse.to_json()["recommended"] is None
    assert all(one["below_popular"] for one in worse.to_json()["candidates"])


def test_the_table_has_all_candidates_and_both_references() -> None:
    choice = chosen("sums")
    drawn = table(choice)
    assert [row[0] for row in drawn.rows[:-2]] == [one.name for one in choice.candidates]
    assert drawn.rows[-2][0] == "popular"
    assert drawn.rows[-1][0].endswith(" (central)")
    assert all(len(row) == len(drawn.header) for row in drawn.rows)


def test_the_widest_table_fits_in_100_columns() -> None:
    choice = chosen("updates")
    costs = replace(
        choice.best.costs,
        messages=12_345.6,
        bytes_up=888.8e6,
        bytes_down=888.8e6,
        model_bytes=888_800_000,
        seconds=0.00088,
    )
    wide = [
        replace(one, value=0.0, steps=100, all_steps=300, step_name="rounds", costs=costs)
        for one in choice.candidates
    ]
    drawn = table(replace(choice, candidates=tuple(wide)))
    assert table_width(drawn.header, drawn.rows) <= 100


def test_what_the_server_learns_stands_beneath_the_table_once() -> None:
    lines = learned(chosen("updates"))
    whole = [line for line in lines if line.endswith(": of every client: its whole history")]
    assert len(whole) == 1
    assert set(whole[0].split(": ")[0].split(", ")) == {"fedease", "fedslim"}
    assert len({line.split(": ", 1)[1] for line in lines}) == len(lines)


def test_the_server_learns_what_the_contract_declares() -> None:
    of_sums = {one.name: one.server_learns for one in chosen("sums").candidates}
    assert of_sums.pop("fedals").startswith("sums over at most 100 clients; sums of x x^T")
    for name in ("fedease", "fedslim"):
        assert of_sums.pop(name).startswith("sums over at most 100 clients; an item of one")
    assert set(of_sums.values()) == {"sums over at most 100 clients, nothing of a single one"}
    learned = {one.name: one.server_learns for one in chosen("updates").candidates}
    for name in ("fedease", "fedslim"):
        assert learned[name] == "of every client: its whole history"
    assert "; statistics of their history, once" in learned["fedfast"]
    assert learned["fedfast"].endswith("; counts of items as sums over at most 100 clients, once")
    assert "history" in learned["fcf"]


def test_sums_that_reveal_histories_are_named_with_the_best_that_do_not() -> None:
    choice = chosen("sums")
    revealing = {one.name for one in choice.candidates if one.sums_reveal}
    assert revealing == {"fedals", "fedease", "fedslim"}
    assert choice.best.sums_reveal
    hiding = next(one for one in choice.candidates if not one.sums_reveal)
    assert choice.to_json()["without_known_attack"] == hiding.name
    assert chosen("updates").to_json()["without_known_attack"] is None
    assert "does not hide histories" in recommendation(choice)
    first, other, extra = next_steps(choice)
    assert first == f"next: coterie run {choice.best.name} --dataset synthetic {PROTECTED}"
    assert other.endswith(f": coterie run {hiding.name} --dataset synthetic {PROTECTED}")
    assert f"lower by {choice.best.value - hiding.value:.4f}" in other
    assert "pip install 'coterie[secagg]'" in extra
    assert not any(one.sums_reveal for one in chosen("updates").candidates)


def test_sums_without_a_known_attack_need_no_warning() -> None:
    choice = chosen("sums")
    hiding = tuple(one for one in choice.candidates if not one.sums_reveal)
    safe = replace(choice, candidates=hiding)
    assert "histories" not in recommendation(safe)
    assert len(next_steps(safe)) == 2
    revealing = tuple(one for one in choice.candidates if one.sums_reveal)
    unsafe = replace(choice, candidates=revealing)
    assert "no allowed algorithm is without a known attack on its sums" in next_steps(unsafe)


def test_a_recommendation_in_the_clear_says_what_the_server_receives() -> None:
    choice = chosen("updates")
    for one in choice.candidates:
        first = replace(choice, candidates=(one,))
        warning = f"Without secure aggregation the server receives {one.server_learns} ("
        assert warning in recommendation(first)
    slim = next(one for one in choice.candidates if one.name == "fedslim")
    said = recommendation(replace(choice, candidates=(slim,)))
    assert "receives of every client: its whole history" in said
    assert "--may-leave sums" in next_steps(choice)[1]


def test_points_of_the_figure_have_names_and_none_is_hidden() -> None:
    choice = chosen("sums")
    best = choice.best
    twin = replace(best, name="twin")
    drawing = static_chart(figure(replace(choice, candidates=(best, twin))))
    # Beside its point, and so not in the legend.
    assert drawing.count(f">{best.name}<") == 1
    assert drawing.count(">twin<") == 1
    assert 'r="4"' in drawing
    assert 'r="2"' in drawing


def test_the_page_has_the_figure_the_table_and_the_command() -> None:
    choice = chosen("sums")
    html = page(choice, "coterie choose --may-leave sums")
    assert html.count("<svg") == 1
    assert "coterie choose --may-leave sums" in html
    assert "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    drawn = figure(choice)
    assert drawn.log_x
    assert [one.name for one in drawn.series if not one.level] == [
        one.name for one in choice.candidates
    ]


# ---- refusals

REFUSED = [
    (ChoiceRequest(may_leave="nothing"), "--may-leave is 'nothing'; expected sums, updates or"),
    (ChoiceRequest(may_leave="sums", disclosure=0.1), "--disclosure is 0.1, but --may-leave is"),
    (ChoiceRequest(may_leave="sums", minutes=0), "--minutes is 0; expected more than 0"),
    (
        ChoiceRequest(may_leave="sums", settings={"feedback": "explicit"}),
        "setting 'feedback' is 'explicit'",
    ),
    (
        ChoiceRequest(may_leave="sums", settings={"rounds": 3}),
        r"'rounds' \(value 3\) is one of algorithms.*Write for example --set \w+\.rounds=3\.",
    ),
    (ChoiceRequest(may_leave="disclosed", disclosure=2.0), "expected a number from 0 to 1"),
]


@pytest.mark.parametrize(("request_", "complaint"), REFUSED)
def test_mistakes_are_refused(request_: ChoiceRequest, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        choose(request_, None, SILENT)


def test_settings_of_an_unknown_algorithm_are_refused() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'fedals'"):
        choose(ChoiceRequest(may_leave="sums", own={"fedal": {}}))


def test_data_without_a_validation_part_is_refused() -> None:
    pairs = Interactions.from_columns(["a", "a", "b", "b"], ["x", "y", "x", "z"])
    with pytest.raises(DataError, match="no user with 3 interactions"):
        choose(ChoiceRequest(may_leave="sums", dataset="given"), pairs)


def test_choose_is_in_the_api() -> None:
    choice = coterie.choose("synthetic", may_leave="sums", minutes=0.01, **SMALL)
    assert names(choice) == SUMS - A_TENTH
    assert choice.to_json()["part"] == "validation"
