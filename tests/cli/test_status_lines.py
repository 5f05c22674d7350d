"""What `coterie status` prints of each kind of value."""

from __future__ import annotations

from coterie.cli.federation import _status_lines


def test_values_are_short_words():
    found = {
        "round": 12_345,
        "epsilon": None,
        "open": True,
        "seconds": 0.123456789,
        "alarms": [],
        "quantiles": [0.1234567, 2],
        "nodes": {"ann": {"users": 1_000, "refused": None}},
        "seconds_of_a_recent_round_by_phase": 2,
        "refused": {},
    }
    assert [" ".join(line.split()) for line in _status_lines(found).splitlines()] == [
        "round 12,345",
        "epsilon none",
        "open yes",
        "seconds 0.1235",
        "alarms none",
        "quantiles 0.1235, 2",
        "nodes, ann users 1,000, refused none",
        "seconds of a recent round by phase 2",
        "refused none",
    ]


def test_values_stand_in_one_column():
    lines = _status_lines({"round": 1, "seconds_of_a_recent_round_by_phase": 2}).splitlines()
    assert lines[0].index("1") == lines[1].index("2")
