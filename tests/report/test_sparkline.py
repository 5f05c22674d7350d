"""A row of numbers as bars."""

from __future__ import annotations

from coterie.report.sparkline import sparkline


def test_bars_go_from_the_lowest_to_the_highest() -> None:
    assert sparkline([0.0, 5.0, 7.0]) == "▁▆█"
    assert sparkline([0.3, None, 0.2]) == "█×▁"


def test_equal_numbers_and_none_at_all() -> None:
    assert sparkline([0.5, 0.5]) == "▁▁"
    assert sparkline([None, None]) == "××"
