"""The methods box: what was searched, and what had not converged."""

from __future__ import annotations

from reproduce.hand_made import report, row, table

from coterie.reproduce.methods import (
    facts,
    not_converged,
    search_text,
    settings_lines,
    still_rising,
)


def test_a_curve_that_gains_in_its_last_tenth_has_not_converged():
    # Rounds 10, 20 and 30: the last value before round 27 is that of round 20.
    assert still_rising(row([0.8], [[0.5, 0.8, 0.82]]), table())
    assert not still_rising(row([0.8], [[0.5, 0.8, 0.805]]), table())
    assert not still_rising(row([0.8]), table())


def test_the_box_names_methods_that_had_not_converged():
    rows = {"good": row([0.8], [[0.5, 0.8, 0.8]]), "slow": row([0.5], [[0.1, 0.3, 0.5]])}
    item = report()["items"][0] | {"tables": [table(rows=rows)]}
    assert not_converged([item])[1:] == ["Table 2, made-up: slow."]


def test_settings_come_with_their_search():
    assert settings_lines(table()) == [
        "good: reg 0.1. Best of 12 trials over reg 0.1 to 1.",
        "weak: reg 0.1.",
    ]
    assert search_text({"trials": 0, "space": {}, "note": ""}) == " The paper gives them."


def test_facts_are_said_once_if_all_items_share_them():
    found = report()
    by_name = {fact.name: fact.lines for fact in facts(found)}
    assert by_name["Seeds"] == ["2."]
    assert by_name["Evaluation"] == ["made-up (loo-50, 100 test users)."]
    assert by_name["Search of settings"] == ["made-up: 12 trials for good."]
    other = found["items"][0] | {"title": "Figure 9: more", "machine": {"cores": 64}}
    by_name = {fact.name: fact.lines for fact in facts(found | {"items": [*found["items"], other]})}
    assert by_name["Machine"] == ["Table 2: 2 cores.", "Figure 9: 64 cores."]
