"""The options of all dataset readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from coterie.data.interactions import Interactions
from coterie.data.table import CheckedTable, refuse_duplicates

Duplicates = Literal["newest", "oldest", "error"]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    columns: dict[str, str] = field(default_factory=dict)
    """role -> the name of its column, if they differ."""
    skip_bad_rows: bool = False
    duplicates: Duplicates = "newest"
    """Which of several interactions of one user with one item to keep; `error` rejects the file."""

    def build(self, table: CheckedTable) -> Interactions:
        """Interactions from checked columns; applies the policy for repeated pairs."""
        if self.duplicates == "error":
            refuse_duplicates(table)
        columns = table.columns
        return Interactions.from_columns(
            columns["user_id"],
            columns["item_id"],
            columns.get("rating"),
            columns.get("timestamp"),
            keep="oldest" if self.duplicates == "oldest" else "newest",
            notes=table.notes(),
        )
