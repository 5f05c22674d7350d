"""Facts of how a file was read, for programs; `Interactions.reading` has them as sentences."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from coterie.types import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedColumn:
    """The column of a role."""

    name: str
    guessed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedReason:
    """The bad rows that break one rule."""

    reason: str
    rows: int
    lines: tuple[int, ...]
    """The first few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFacts:
    rows: int
    """All rows of the file, skipped ones included."""
    skipped: tuple[SkippedReason, ...]
    columns: dict[str, UsedColumn]
    """Role -> column."""

    def to_json(self) -> JsonObject:
        return asdict(self)

    @classmethod
    def of_json(cls, facts: JsonObject) -> ReadFacts:
        return cls(
            rows=facts["rows"],
            skipped=tuple(
                SkippedReason(reason=each["reason"], rows=each["rows"], lines=tuple(each["lines"]))
                for each in facts["skipped"]
            ),
            columns={role: UsedColumn(**column) for role, column in facts["columns"].items()},
        )
