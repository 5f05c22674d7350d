"""Assigns the columns of a file or data frame to roles, and guesses common names.

A column named exactly as the role needs no guess, and neither does one named by the user. For the
other roles a column is guessed by its name, without case, spaces and punctuation: `User-ID`,
`userId` and `user_id` are the same. Two columns that fit are an error.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.data.first_line import FirstLine, likely_columns
from coterie.data.read_facts import UsedColumn
from coterie.data.table import REQUIRED, ROLES, check_roles, shown
from coterie.errors import DataError, did_you_mean

NO_COLUMN = "-"
"""`--columns timestamp=-` leaves a role without a column."""
MOST_SHOWN = 12
THINGS = [
    "album",
    "anime",
    "app",
    "article",
    "artist",
    "beer",
    "book",
    "business",
    "course",
    "film",
    "game",
    "gmap",
    "hotel",
    "item",
    "joke",
    "listing",
    "movie",
    "news",
    "paper",
    "place",
    "podcast",
    "poi",
    "product",
    "recipe",
    "restaurant",
    "show",
    "song",
    "track",
    "venue",
    "video",
    "wine",
]
COMMON_NAMES: dict[str, frozenset[str]] = {
    "user_id": frozenset(
        [
            "user",
            "userid",
            "uid",
            "username",
            "reviewer",
            "reviewerid",
            "reviewername",
            "customer",
            "customerid",
            "account",
            "accountid",
            "member",
            "memberid",
            "profileid",
            "visitorid",
            "readerid",
            "listenerid",
            "personid",
        ]
    ),
    "item_id": frozenset(
        [name for thing in THINGS for name in (thing, f"{thing}id")]
        + ["iid", "asin", "parentasin", "isbn", "isbn10", "isbn13", "sku", "contentid", "itemsku"]
    ),
    "rating": frozenset(
        [
            "rating",
            "ratings",
            "overall",
            "star",
            "stars",
            "starrating",
            "score",
            "bookrating",
            "movierating",
            "userrating",
            "reviewrating",
            "reviewscore",
            "overallrating",
            "reviewoverall",
            "itemrating",
        ]
    ),
    "timestamp": frozenset(
        [
            "timestamp",
            "time",
            "date",
            "datetime",
            "utc",
            "utctime",
            "unixtime",
            "unixtimestamp",
            "ts",
            "when",
            "createdat",
            "created",
            "reviewtime",
            "unixreviewtime",
            "reviewdate",
            "ratingtime",
            "ratingdate",
            "eventtime",
            "submitted",
            "submissiondate",
            "epoch",
        ]
    ),
}
"""Role -> names without case and punctuation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRoles:
    """Which column has which role."""

    positions: dict[str, int]
    guessed: frozenset[str]
    """Roles whose column was guessed."""
    names: tuple[str, ...]
    """All columns."""

    def name(self, role: str) -> str:
        return self.names[self.positions[role]]

    def used(self) -> dict[str, UsedColumn]:
        return {
            role: UsedColumn(name=self.name(role), guessed=role in self.guessed)
            for role in self.positions
        }

    def described(self) -> tuple[str, ...]:
        """Lines for display: used and unused columns, and what follows if there are no times."""
        used = [self._described(role) for role in self.positions]
        lines = [f"columns: {', '.join(used)}"]
        taken = set(self.positions.values())
        unused = [repr(name) for n, name in enumerate(self.names) if n not in taken]
        if unused:
            more = f" and {len(unused) - MOST_SHOWN} more" if len(unused) > MOST_SHOWN else ""
            lines.append(f"columns not used: {', '.join(unused[:MOST_SHOWN])}{more}")
        if "timestamp" not in self.positions:
            lines.append("no column has times: splits are random, drawn by the seed")
        return tuple(lines)

    def _described(self, role: str) -> str:
        how = " (guessed)" if role in self.guessed else ""
        name = self.name(role)
        return role if name == role else f"{role} is {name!r}{how}"


FRAME = "data frame: "
"""How errors about a data frame begin; their remedy is Python, not an option."""


def assign_columns(
    where: str,
    names: Sequence[str],
    chosen: Mapping[str, str],
    first_line: FirstLine | None = None,
) -> ColumnRoles:
    """The column of every role. `where` begins an error, such as "a.csv:1: ".

    `first_line` is that of a text file; errors look into it for a remedy.
    """
    check_roles(chosen)
    _refuse_repeated_names(where, names, first_line)
    positions: dict[str, int] = {}
    guessed = set()
    for role in ROLES:
        name = chosen.get(role, role)
        if name == NO_COLUMN and role not in REQUIRED:
            continue
        if name not in names and role not in chosen:
            found = _guess(where, role, names, {*chosen.values(), *ROLES})
            guessed |= {role} if found else set()
            name = found or name
        if name in names:
            positions[role] = list(names).index(name)
        elif role in REQUIRED or role in chosen:
            what = f"no column was recognised as {role}"
            if role in chosen:
                what = f"there is no column {name!r} for {role}"
            remedy = _remedy(where, role, name, names, first_line)
            raise DataError(f"{where}{what}; {remedy}")
    return ColumnRoles(positions=positions, guessed=frozenset(guessed), names=tuple(names))


def known_names(cells: Sequence[str]) -> list[str]:
    """The cells that are the name of a role, or one that is guessed."""
    common = set(ROLES).union(*COMMON_NAMES.values())
    return [cell for cell in cells if cell.strip() in common or _key(cell) in common]


def _refuse_repeated_names(where: str, names: Sequence[str], first_line: FirstLine | None) -> None:
    for n, name in enumerate(names):
        if name and name in names[:n]:
            raise DataError(
                f"{where}columns {list(names).index(name) + 1} and {n + 1} are both named "
                f"{name!r}; expected distinct names. Rename one{_or_no_header(first_line)}."
            )


def _or_no_header(first_line: FirstLine | None) -> str:
    if first_line is None or not first_line.looks_like_a_row:
        return ""
    columns = likely_columns(first_line.cells)
    return f"; if the file has no header, pass --no-header --columns {columns}"


def _guess(where: str, role: str, names: Sequence[str], taken: set[str]) -> str | None:
    fitting = [name for name in names if name not in taken and _key(name) in COMMON_NAMES[role]]
    if len(fitting) > 1:
        alternatives = ", ".join(map(repr, fitting[:MOST_SHOWN]))
        choices = " or ".join(_choice(where, role, name) for name in fitting[:MOST_SHOWN])
        nothing = "" if role in REQUIRED else f", or {_choice(where, role, NO_COLUMN)} to use none"
        raise DataError(
            f"{where}the columns {alternatives} all fit {role}; expected one. "
            f"Pass {choices}{nothing}."
        )
    return fitting[0] if fitting else None


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _remedy(
    where: str, role: str, name: str, names: Sequence[str], first_line: FirstLine | None
) -> str:
    """Which columns there are instead of the one that is missing, and what to pass."""
    listed = ", ".join(map(repr, names[:MOST_SHOWN]))
    more = ", ..." if len(names) > MOST_SHOWN else ""
    if first_line is not None and (separator := first_line.other_separator):
        return (
            f"the only column is {shown(first_line.cells[0])}. The line looks separated by "
            f"{separator!r}; pass --delimiter {separator!r} or leave it out."
        )
    if first_line is not None and not first_line.is_header:
        return (
            f"without a header, columns are numbered from 1 to {len(names)}. "
            f"Pass --columns {likely_columns(first_line.cells)}"
        )
    choice = _choice(where, role, "NAME")
    if first_line is not None and first_line.looks_like_a_row:
        return (
            f"there are {listed}{more}. If the file has no header, pass --no-header --columns "
            f"{likely_columns(first_line.cells)}; if it has one, pass {choice}."
        )
    suggestion = did_you_mean(name, names)
    meant = f" {suggestion}" if suggestion.startswith("Did") else ""
    return f"there are {listed}{more}. Pass {choice}.{meant}"


def _choice(where: str, role: str, name: str) -> str:
    if where == FRAME:
        return f'columns={{"{role}": "{name}"}}'
    return f"--columns {shlex.quote(f'{role}={name}')}"
