"""Sizes: the unit, and the deviation in the unit of its mean."""

from __future__ import annotations

import pytest

from coterie.report.sizes import size_text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (0, "0 MB"),
        (32, "32 B"),
        (999.4, "999 B"),
        (1_000, "1.0 kB"),
        (3_000_000, "3.0 MB"),
        (999_960_000, "1.0 GB"),
        (13_381_000_000, "13.4 GB"),
        (2_278_984_000_000, "2.3 TB"),
        (5e18, "5,000.0 PB"),
    ],
)
def test_a_size_has_the_unit_that_keeps_it_short(n_bytes: float, text: str) -> None:
    assert size_text(n_bytes) == text


def test_a_deviation_has_the_unit_of_its_mean() -> None:
    assert size_text(2e12, 3e11) == "2.0 ±0.3 TB"
    assert size_text(2e12, 1e6) == "2.0 TB"
    assert size_text(2e12, None) == "2.0 TB"
    assert size_text(40, 3) == "40 ±3 B"
