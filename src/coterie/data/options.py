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
    encoding: str | None = None
    """Encoding of a csv, tsv or txt file; UTF-8 by default."""
    delimiter: str | None = None
    """What separates the cells of a csv, tsv or txt file; by default its header shows it."""
    header: bool = True
    """Whether the first line of a csv, tsv or txt file has names; if not, columns are numbered."""
    cache: bool = True
    """Whether a large file is read from the cache, and written to it."""

    @property
    def are_for_text(self) -> bool:
        """Whether an option is set that only csv, tsv and txt files have."""
        return self.encoding is not None or self.delimiter is not None or not self.header

    def build(self, table: CheckedTable) -> Interactions:
        """Interactions from checked columns; applies the policy for repeated pairs."""
        if self.duplicates == "error":
            refuse_duplicates(table)
        columns = table.columns
        return Interactions.from_columns(
            table.coded["user_id"] if "user_id" in table.coded else columns["user_id"],
            table.coded["item_id"] if "item_id" in table.coded else columns["item_id"],
            columns.get("rating"),
            columns.get("timestamp"),
            keep="oldest" if self.duplicates == "oldest" else "newest",
            notes=table.notes(),
            reading=table.reading,
            read_facts=table.facts,
        )
