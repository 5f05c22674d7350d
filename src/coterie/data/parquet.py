"""Reads Parquet files, with the same columns and rules as text files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coterie.data.interactions import Interactions
from coterie.data.options import ReadOptions
from coterie.data.table import (
    CheckedTable,
    check_ratings,
    check_times,
    column_positions,
    seconds_of,
)
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
    for role, position in column_positions(str(path), names, options.columns).items():
        columns[role], broken, rule = _check(role, frame.iloc[:, position])
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
        good &= ~broken
    if not good.any():
        raise DataError(
            f"{path}: contains no interactions; expected at least one good row. "
            "Check that it is the right file."
        )
    kept = {role: column[good] for role, column in columns.items()}
    return options.build(CheckedTable(str(path), kept, np.flatnonzero(good) + 1, skipped))


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
    if role == "rating":
        return check_ratings(pd.to_numeric(column, errors="coerce").to_numpy(np.float64))
    return check_times(seconds_of(column))
