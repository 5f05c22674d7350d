"""After which committed rounds a server and its nodes take a snapshot, to which a run can return.

A server returns to a checkpoint, and its nodes to the private state that they had then. So both
take snapshots after the same rounds, and drop the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_SNAPSHOTS = 100
"""Upper limit for the snapshots that are kept, as a node believes it: each is a copy of its private
state."""


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    every: int = 0
    """Rounds between two snapshots; 0 for none."""
    kept: int = 0
    """The newest snapshots, which stay."""

    def is_due(self, n: int) -> bool:
        """Whether there is a snapshot after n rounds."""
        return bool(self.every and self.kept) and n > 0 and n % self.every == 0

    def due_between(self, before: int, n: int) -> list[int]:
        """The snapshots after more than `before` and up to n rounds that would be kept."""
        if not (self.every and self.kept):
            return []
        last = n // self.every * self.every
        first = max(before // self.every + 1, 1) * self.every
        return list(range(first, last + 1, self.every))[-self.kept :]

    def outdated(self, rounds: list[int]) -> list[int]:
        """Those of some snapshots that are not kept."""
        return sorted(rounds)[: -self.kept or None]


NO_SNAPSHOTS = SnapshotPlan()
