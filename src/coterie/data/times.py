"""The unit of a column of times: seconds, milliseconds, microseconds, nanoseconds, or ISO 8601."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.table import LATEST, number_of, numbers_of, or_nan, time_of
from coterie.types import Bools, Doubles

if TYPE_CHECKING:
    import pandas as pd

UNITS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
IN_ANY_UNIT = (
    "expected ISO 8601, such as 2019-04-03, or seconds or milliseconds since 1970, "
    "one unit for the whole column, before 2100"
)
"""The rule for times whose unit is found by `in_seconds`."""
EARLIEST = 10**8
"""Seconds, in 1973. Milliseconds and smaller units before it would be mistaken for seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsColumn:
    """Times in seconds since 1970, and the unit that they were in."""

    seconds: Doubles
    unit: str

    @property
    def note(self) -> str:
        if self.unit == "seconds":
            return "seconds since 1970"
        if self.unit in ("ISO 8601", "datetimes"):
            return f"{self.unit}, as UTC where no time zone is given"
        return f"{self.unit} since 1970, stored as whole seconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTimes:
    numbers: Doubles
    """Numbers as they are, dates as seconds since 1970, and NaN for anything else."""
    is_number: Bools


def times_of(cells: list[str]) -> ParsedTimes:
    numbers = numbers_of(cells, number_of)
    is_number = ~np.isnan(numbers)
    for place in np.flatnonzero(~is_number):
        numbers[place] = or_nan(time_of, cells[place])
    return ParsedTimes(numbers=numbers, is_number=is_number)


def frame_times(column: pd.Series) -> SecondsColumn:
    """The times of a data frame's column of numbers, texts or datetimes; NaN where it has none."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        moments = pd.to_datetime(column, utc=True).dt.tz_localize(None).astype("datetime64[s]")
        seconds = np.where(column.isna(), np.nan, moments.astype("int64").to_numpy(np.float64))
        return SecondsColumn(seconds=seconds, unit="datetimes")
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64).copy()
    is_number = ~np.isnan(numbers)
    for row in np.flatnonzero(~is_number):
        numbers[row] = or_nan(time_of, str(column.iloc[row]))
    return in_seconds(numbers, is_number)


def in_seconds(numbers: Doubles, is_number: Bools | None = None) -> SecondsColumn:
    """Convert a column to seconds.

    The unit is the one in which the lower median lies between 1973 and 2100, so that a single
    wrong value does not decide. `is_number` is False for dates; those are seconds already.
    """
    if is_number is None:
        is_number = np.ones(len(numbers), bool)
    known = np.sort(numbers[is_number & np.isfinite(numbers)])
    if not len(known):
        return SecondsColumn(seconds=numbers, unit="ISO 8601")
    middle = known[(len(known) - 1) // 2]
    for unit, parts in UNITS.items():
        if EARLIEST * parts <= middle <= LATEST * parts:
            return SecondsColumn(seconds=np.where(is_number, numbers / parts, numbers), unit=unit)
    return SecondsColumn(seconds=numbers, unit="seconds")
