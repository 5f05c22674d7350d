"""Reads Parquet files, with the same columns and rules as text files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.column_names import assign_columns
from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import MOST_LINES_SHOWN, CheckedTable, check_ratings, check_times
from coterie.data.times import IN_ANY_UNIT, frame_times
from coterie.errors import DataError, MissingExtra
from coterie.types import Bools, Ids

if TYPE_CHECKING:
    import pandas as pd


def read(path: Path, options: ReadOptions) -> Interactions:
    frame = _load(path)
    names = [str(c) for c in frame.columns]
    columns: dict[str, Ids] = {}
    good = np.ones(len(frame), bool)
    skipped: dict[str, int] = {}
    roles = assign_columns(f"{path}: ", names, options.columns)
    reading = [f"{len(frame):,} rows read", *roles.described()]
    skipped_lines: dict[str, tuple[int, ...]] = {}
    for role, position in roles.positions.items():
        column = frame.iloc[:, position]
        if role == "timestamp":
            times = frame_times(column)
            reading.append(f"times: {names[position]!r} has {times.note}")
            columns[role], broken, rule = check_times(times.seconds, IN_ANY_UNIT)
        else:
            columns[role], broken, rule = _check(role, column)
        if broken.any() and not options.skip_bad_rows:
            row = int(np.argmax(broken))
            value = frame.iloc[row, position]
            shown = value.item() if isinstance(value, np.generic) else value
            raise DataError(
                f"{path}:{row + 1}: column {names[position]!r} is {shown!r}; {rule}. "
                "Fix the row or pass --skip-bad-rows."
            )
        if newly := int((broken & good).sum()):
            skipped[rule] = newly
            first = np.flatnonzero(broken & good)[:MOST_LINES_SHOWN] + 1
            skipped_lines[rule] = tuple(first.tolist())
        good &= ~broken
    if not good.any():
        raise DataError(
            f"{path}: contains no interactions; expected at least one good row. "
            "Check that it is the right file."
        )
    kept = {role: column[good] for role, column in columns.items()}
    return options.build(
        CheckedTable(
            source=str(path),
            columns=kept,
            lines=np.flatnonzero(good) + 1,
            skipped=skipped,
            skipped_lines=skipped_lines,
            reading=tuple(reading),
            used=roles.used(),
        )
    )


def _load(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError:
        raise MissingExtra("Reading parquet", "parquet") from None
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist. Check the path.") from None
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise DataError(
            f"{path}: is not a readable parquet file ({why}). Fetch or write it again."
        ) from None


def _check(role: str, column: pd.Series) -> tuple[Ids, Bools, str]:
    import pandas as pd

    if role in ("user_id", "item_id"):
        return column.to_numpy(), (column.isna() | column.eq("")).to_numpy(bool), "expected an id"
    return check_ratings(pd.to_numeric(column, errors="coerce").to_numpy(np.float64))
