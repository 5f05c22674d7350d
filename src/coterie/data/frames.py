"""Checks the columns of a data frame that was read from a file, by the rules of text files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.column_names import assign_columns
from coterie.data.options import ReadOptions
from coterie.data.table import (
    REQUIRED,
    CheckedTable,
    Fault,
    SkippedRows,
    check_ratings,
    check_times,
    first_fault,
    no_rows,
)
from coterie.data.times import IN_ANY_UNIT, frame_times
from coterie.types import Bools, Ids, Longs

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOfFile:
    """The rows of a file, and the lines that are none."""

    source: str
    frame: pd.DataFrame
    lines: Longs
    """The line of every row, or its number if the file has no lines."""
    faults: dict[int, Fault] = field(default_factory=dict)
    """Line -> why it is not a row."""


def check_frame(file: FrameOfFile, options: ReadOptions) -> CheckedTable:
    """The first bad row raises; with `skip_bad_rows` all are dropped."""
    names = [str(name) for name in file.frame.columns]
    roles = assign_columns(f"{file.source}: ", names, options.columns)
    n_rows = len(file.lines) + len(file.faults)
    reading = [f"{n_rows:,} rows read", *roles.described()]
    columns: dict[str, Ids] = {}
    faults = dict(file.faults)
    good = np.ones(len(file.lines), bool)
    for role, position in roles.positions.items():
        column = file.frame.iloc[:, position]
        if role == "timestamp":
            times = frame_times(column)
            reading.append(f"times: {names[position]!r} has {times.note}")
            columns[role], broken, rule = check_times(times.seconds, IN_ANY_UNIT)
        else:
            columns[role], broken, rule = _check(role, column)
        for row in np.flatnonzero(broken):
            what = f"column {names[position]!r} is {_plain(column.iloc[row])!r}"
            faults.setdefault(int(file.lines[row]), Fault(what, rule))
        good &= ~broken
    if faults and not options.skip_bad_rows:
        raise first_fault(faults, file.source)
    if not good.any():
        raise no_rows(file.source, tuple(roles.positions), len(faults))
    skipped = SkippedRows()
    skipped.add(faults)
    return CheckedTable(
        source=file.source,
        columns={role: column[good] for role, column in columns.items()},
        lines=file.lines[good],
        skipped=dict(skipped.counts),
        skipped_lines=skipped.first_lines(),
        reading=tuple(reading),
        used=roles.used(),
    )


def _check(role: str, column: pd.Series) -> tuple[Ids, Bools, str]:
    import pandas as pd

    if role in REQUIRED:
        return column.to_numpy(), (column.isna() | column.eq("")).to_numpy(bool), "expected an id"
    return check_ratings(pd.to_numeric(column, errors="coerce").to_numpy(np.float64))


def _plain(value: object) -> object:
    """A value as Python prints it."""
    return value.item() if isinstance(value, np.generic) else value
