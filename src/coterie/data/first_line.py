"""The first line of a text file: names, or already a row."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from coterie.data.table import LATEST, number_of, or_nan
from coterie.data.times import EARLIEST, UNITS

SEPARATORS = ("\t", ";", ",", "|")
"""The usual ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLine:
    """The cells of the first line, and whether they were read as names."""

    cells: tuple[str, ...]
    is_header: bool

    @property
    def looks_like_a_row(self) -> bool:
        return any(is_number(cell) or is_date(cell) for cell in self.cells)

    @property
    def other_separator(self) -> str | None:
        """A usual separator inside the only cell: the line was split by another one."""
        if len(self.cells) != 1:
            return None
        counts = {separator: self.cells[0].count(separator) for separator in SEPARATORS}
        found = max(counts, key=lambda separator: counts[separator])
        return found if counts[found] else None


def likely_columns(cells: Sequence[str]) -> str:
    """The roles that the columns of a row may have, such as "user_id=1,item_id=2,rating=3".

    Users come before items. A number after both is a rating, unless it is a time since 1970; an id
    may be a large number too. A date is a time wherever it stands.
    """
    numbered = dict(enumerate(cells, start=1))
    dates = [n for n, cell in numbered.items() if is_date(cell)]
    others = [n for n in numbered if n not in dates]
    ids = others[:2] if len(others) >= 2 else [1, 2]
    rest = [n for n in others if n not in ids]
    dated = [n for n in dates if n not in ids]
    times = dated or [n for n in rest if is_time(numbered[n])]
    ratings = [n for n in rest if n not in times and is_number(numbered[n])]
    roles = {"user_id": ids[:1], "item_id": ids[1:], "rating": ratings, "timestamp": times}
    return ",".join(f"{role}={columns[0]}" for role, columns in roles.items() if columns)


def is_number(cell: str) -> bool:
    return math.isfinite(or_nan(number_of, cell))


def is_time(cell: str) -> bool:
    """Whether it is a number that may be a time since 1970, in any unit."""
    number = or_nan(number_of, cell)
    return any(EARLIEST * parts <= number <= LATEST * parts for parts in (1, *UNITS.values()))


def is_date(cell: str) -> bool:
    """Whether it is ISO 8601, but not a number such as 20190403."""
    try:
        datetime.fromisoformat(cell.strip())
    except ValueError:
        return False
    return not is_number(cell)
